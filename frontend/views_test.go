package frontend_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
)

// The list of databases waits, too, and has the tag of its first names alone if it is limited.
func TestWaitForADatabase(t *testing.T) {
	t.Parallel()
	n := start(t)
	for _, name := range []string{"a", "b"} {
		n.Do(http.MethodPut, "/"+name, "").Is(t, http.StatusCreated)
	}
	const path = "/_all_dbs?limit=2"
	first := n.Do(http.MethodGet, path, "", "Prefer", "wait=60").Is(t, http.StatusOK)
	tag := first.Header.Get("ETag")
	require.NotEmpty(t, tag)
	n.Do(http.MethodPut, "/c", "").Is(t, http.StatusCreated)
	n.Do(http.MethodGet, path, "", "Prefer", "wait=0", "If-None-Match", tag).Is(t, http.StatusNotModified)
	waiting := make(chan webtest.Answer, 1)
	go func() {
		got, _ := n.Request(http.MethodGet, path, "", "Prefer", "wait=60", "If-None-Match", tag)
		waiting <- got
	}()
	n.waits(1)
	n.Do(http.MethodDelete, "/a", "").Is(t, http.StatusOK)
	require.JSONEq(t, `["b","c"]`, (<-waiting).Is(t, http.StatusOK).Body)
}

func TestWaitForAChangeOfAList(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe())
		first := n.Do(http.MethodGet, "/_scheduler/jobs", "", "Prefer", "wait=30").Is(t, http.StatusOK)
		tag := first.Header.Get("ETag")
		require.NotEmpty(t, tag)

		waiting := make(chan webtest.Answer, 1)
		wait := func() {
			go func() {
				got, _ := n.Request(http.MethodGet, "/_scheduler/jobs", "", "Prefer", "wait=30", "If-None-Match", tag)
				waiting <- got
			}()
			synctest.Wait()
		}
		wait()
		n.waits(1)
		time.Sleep(5 * time.Second)
		require.Empty(t, waiting)
		n.post(definition(`"continuous": true`)).Is(t, http.StatusAccepted)
		got := <-waiting
		require.Equal(t, http.StatusOK, got.Status)
		require.Contains(t, got.Body, "http://a.example/db/") // the total is read apart

		// The total may be the earlier one, so this answer may not be the last one.
		tag = n.Do(http.MethodGet, "/_scheduler/jobs", "", "Prefer", "wait=30").Header.Get("ETag")
		began := time.Now()
		wait()
		require.Equal(t, http.StatusNotModified, (<-waiting).Status)
		require.Equal(t, 30*time.Second, time.Since(began).Round(time.Second))

		wait()
		n.handler.Drain()
		require.Equal(t, http.StatusNotModified, (<-waiting).Status, "the client asks again, another node")
	})
}
