package frontend_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/bubbletest"
)

func TestWaitForAChangeOfAList(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
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

		tag = got.header.Get("ETag")
		began := time.Now()
		wait()
		require.Equal(t, http.StatusNotModified, (<-waiting).status)
		require.Equal(t, 30*time.Second, time.Since(began).Round(time.Second))

		wait()
		n.handler.Drain()
		require.Equal(t, http.StatusNotModified, (<-waiting).status, "the client asks again, another node")
	})
}
