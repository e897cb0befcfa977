package frontend_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// Time is the bubble's in these tests, and the network and the store are in memory.

func TestReplicateWaitsForHours(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := startOn(t, memory(t), listenPipe())
		waiting := n.posting(definition(""))
		run := n.accept()
		require.NoError(t, run.Crash(t.Context(), time.Now().Add(5*time.Hour), 1, "", "busy"))
		n.complete(n.accept(), `{"ok":true}`)
		require.Equal(t, http.StatusOK, (<-waiting).status)
		line := n.log.line(t, `"message":"request"`)
		require.GreaterOrEqual(t, line["duration"], float64((4 * time.Hour).Milliseconds()))
	})
}

func TestBodyThatDoesNotCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := startOn(t, memory(t), listenPipe())
		conn, err := n.dial(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "POST /_replicate HTTP/1.1\r\n"+rawHead+"Content-Length: 100\r\n\r\n{")
		require.NoError(t, err)
		began := time.Now()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, time.Minute, time.Since(began))
		require.True(t, response.Close)
		refused(t, answer{status: response.StatusCode, body: string(text)}, http.StatusRequestTimeout, "timeout",
			"the request body was not received within 1m0s")
	})
}

func TestHeadersThatDoNotCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := startOn(t, memory(t), listenPipe())
		conn, err := n.dial(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost:")
		require.NoError(t, err)
		began := time.Now()
		_, err = io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, 30*time.Second, time.Since(began))
	})
}

func TestAnswerThatIsNotTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := startOn(t, memory(t), listenPipe())
		conn, err := n.dial(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		for i := range 10 {
			require.Equal(t, http.StatusAccepted, n.post(definition(fmt.Sprintf(`"continuous": true, "doc_ids": ["%d"]`, i))).status)
		}
		_, err = io.WriteString(conn, "GET /_scheduler/jobs HTTP/1.1\r\n"+rawHead+"\r\n")
		require.NoError(t, err)
		synctest.Wait()
		time.Sleep(time.Minute + time.Second) // the client does nothing
		text, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Empty(t, text, "the server has given up")
	})
}

// hanging is a store that answers no more once it is told to.
type hanging struct {
	kv.Database
	stuck chan struct{} // closed: it hangs
}

func (h *hanging) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	select {
	case <-h.stuck:
		<-ctx.Done()
		return context.Cause(ctx)
	default:
		return h.Database.Transact(ctx, fn)
	}
}

func TestStoreThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &hanging{memory(t), make(chan struct{})}
		n := startOn(t, db, listenPipe())
		close(db.stuck)
		began := time.Now()
		got := n.get("/_up")
		require.Equal(t, 2*time.Second, time.Since(began))
		require.Equal(t, http.StatusServiceUnavailable, got.status)
		for reason, request := range map[string]func() answer{
			"the store did not answer within 30s": func() answer { return n.get("/_scheduler/jobs") },
			"the store did not answer within 30s: the replication may have been added, and can be posted again": func() answer {
				return n.post(definition(""))
			},
		} {
			began = time.Now()
			got := request()
			require.Equal(t, 30*time.Second, time.Since(began))
			refused(t, got, http.StatusServiceUnavailable, "service_unavailable", reason)
		}
	})
}

// It is not parallel: other tests would be measured too.
func TestWaitingRequestsKeepNothingOfTheirBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startOn(t, memory(t), listenPipe())
		const size, waiters = 800_000, 8
		body := definition(`"doc_ids": ["` + strings.Repeat("x", size) + `"]`)
		post := func() {
			conn, err := n.dial(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { conn.Close() })
			_, err = fmt.Fprintf(conn, "POST /_replicate HTTP/1.1\r\n"+rawHead+"Content-Length: %d\r\n\r\n%s", len(body), body)
			require.NoError(t, err)
			synctest.Wait()
		}
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC() // twice: pools keep things for one collection
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		post() // with it comes what is stored, once
		before := heap()
		for range waiters {
			post()
		}
		require.Less(t, heap()-before, int64(waiters*size/4))
		require.EqualValues(t, 1, n.get("/_scheduler/jobs").json(t)["total_rows"])
	})
}

func TestStoreThatFailsWhileARequestWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &failing{memory(t), make(chan error, 1)}
		n := startOn(t, db, listenPipe())
		waiting := n.posting(definition(""))
		n.accept()
		synctest.Wait()
		db.failure <- errors.New("broken")
		got := <-waiting // when the store is read the next time
		require.Equal(t, http.StatusInternalServerError, got.status)
		require.Contains(t, n.log.line(t, "request failed")["reason"], "broken")
		require.Error(t, <-db.failure)
	})
}

func TestClientThatHangsUpWhileTheStoreHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &hanging{memory(t), make(chan struct{})}
		n := startOn(t, db, listenPipe())
		close(db.stuck)
		conn, err := n.dial(t.Context())
		require.NoError(t, err)
		_, err = io.WriteString(conn, "GET /_scheduler/jobs HTTP/1.1\r\n"+rawHead+"\r\n")
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, conn.Close())
		n.log.line(t, "the client hung up")
		require.EqualValues(t, 0, n.log.line(t, `"message":"request"`)["status"])
		lines, _ := n.log.read()
		require.NotContains(t, lines, `"level":"error"`)
	})
}
