package frontend_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
)

// The list of databases waits, too, and has the tag of its first names alone if it is limited.
func TestWaitForADatabase(t *testing.T) {
	t.Parallel()
	n := start(t)
	for _, name := range []string{"a", "b"} {
		n.do(http.MethodPut, "/"+name, "").is(t, http.StatusCreated)
	}
	const path = "/_all_dbs?limit=2"
	first := n.do(http.MethodGet, path, "", "Prefer", "wait=60").is(t, http.StatusOK)
	tag := first.header.Get("ETag")
	require.NotEmpty(t, tag)
	n.do(http.MethodPut, "/c", "").is(t, http.StatusCreated)
	n.do(http.MethodGet, path, "", "Prefer", "wait=0", "If-None-Match", tag).is(t, http.StatusNotModified)
	waiting := make(chan answer, 1)
	go func() {
		got, _ := n.request(http.MethodGet, path, "", "Prefer", "wait=60", "If-None-Match", tag)
		waiting <- got
	}()
	n.waits(1)
	n.do(http.MethodDelete, "/a", "").is(t, http.StatusOK)
	require.JSONEq(t, `["b","c"]`, (<-waiting).is(t, http.StatusOK).body)
}

func TestWaitForAChangeOfAList(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, memory(t), listenPipe())
		first := n.do(http.MethodGet, "/_scheduler/jobs", "", "Prefer", "wait=30").is(t, http.StatusOK)
		tag := first.header.Get("ETag")
		require.NotEmpty(t, tag)

		waiting := make(chan answer, 1)
		wait := func() {
			go func() {
				got, _ := n.request(http.MethodGet, "/_scheduler/jobs", "", "Prefer", "wait=30", "If-None-Match", tag)
				waiting <- got
			}()
			synctest.Wait()
		}
		wait()
		n.waits(1)
		time.Sleep(5 * time.Second)
		require.Empty(t, waiting)
		n.post(definition(`"continuous": true`)).is(t, http.StatusAccepted)
		got := <-waiting
		require.Equal(t, http.StatusOK, got.status)
		require.Contains(t, got.body, "http://a.example/db/") // the total is read apart

		// The total may be the earlier one, so this answer may not be the last one.
		tag = n.do(http.MethodGet, "/_scheduler/jobs", "", "Prefer", "wait=30").header.Get("ETag")
		began := time.Now()
		wait()
		require.Equal(t, http.StatusNotModified, (<-waiting).status)
		require.Equal(t, 30*time.Second, time.Since(began).Round(time.Second))

		wait()
		n.handler.Drain()
		require.Equal(t, http.StatusNotModified, (<-waiting).status, "the client asks again, another node")
	})
}
