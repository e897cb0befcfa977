package frontend_test

import (
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

	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
	"settee/pkg/kv/enginetest"
	"settee/replicator"
)

// Time is the bubble's in these tests, and the network and the store are in memory.

func TestReplicateWaitsForHours(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe())
		waiting := n.posting(definition(""))
		run := n.accept()
		require.NoError(t, run.Crash(t.Context(), time.Now().Add(5*time.Hour), 1, replicator.TextFault("", "busy")))
		n.complete(n.accept(), `{"ok":true}`)
		require.Equal(t, http.StatusOK, (<-waiting).Status)
		line := n.Journal.Line(t, `"message":"request"`)
		require.GreaterOrEqual(t, line["duration"], float64((4 * time.Hour).Milliseconds()))
	})
}

func TestBodyThatDoesNotCome(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe())
		conn := n.Connect()
		conn.Send("POST /_replicate HTTP/1.1\r\n" + webtest.RawHead + "Content-Length: 100\r\n\r\n{")
		began := time.Now()
		got, closes := conn.Answer()
		require.Equal(t, time.Minute, time.Since(began))
		require.True(t, closes)
		webtest.Refused(t, got, http.StatusRequestTimeout, "timeout",
			"the request body was not received within 1m0s")
	})
}

func TestHeadersThatDoNotCome(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe())
		conn := n.Connect()
		conn.Send("GET / HTTP/1.1\r\nHost:")
		began := time.Now()
		_, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, 30*time.Second, time.Since(began))
	})
}

func TestAnswerThatIsNotTaken(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe())
		conn := n.Connect()
		for i := range 10 {
			require.Equal(t, http.StatusAccepted, n.post(definition(fmt.Sprintf(`"continuous": true, "doc_ids": ["%d"]`, i))).Status)
		}
		conn.Send("GET /_scheduler/jobs HTTP/1.1\r\n" + webtest.RawHead + "\r\n")
		synctest.Wait()
		time.Sleep(time.Minute + time.Second) // the client does nothing
		text, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Empty(t, text, "the server has given up")
	})
}

func TestStoreThatDoesNotAnswer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Control(webtest.Memory(t))
		n := startOn(t, db, webtest.ListenPipe())
		_ = db.HoldBefore()
		began := time.Now()
		got := n.Get("/_up")
		require.Equal(t, 2*time.Second, time.Since(began))
		require.Equal(t, http.StatusServiceUnavailable, got.Status)
		for reason, request := range map[string]func() webtest.Answer{
			"the store did not answer within 30s": func() webtest.Answer { return n.Get("/_scheduler/jobs") },
			"the store did not answer within 30s: the replication may have been added, and can be posted again": func() webtest.Answer {
				return n.post(definition(""))
			},
		} {
			began = time.Now()
			got := request()
			require.Equal(t, 30*time.Second, time.Since(began))
			webtest.Refused(t, got, http.StatusServiceUnavailable, "service_unavailable", reason)
		}
	})
}

func TestWaitingRequestsKeepNothingOfTheirBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe())
		const size, waiters = 800_000, 8
		body := definition(`"doc_ids": ["` + strings.Repeat("x", size) + `"]`)
		post := func() {
			conn := n.Connect()
			conn.Send(fmt.Sprintf("POST /_replicate HTTP/1.1\r\n"+webtest.RawHead+"Content-Length: %d\r\n\r\n%s", len(body), body))
			synctest.Wait()
		}
		post() // with it comes what is stored, once
		_, stored := profiled("(*Endpoints).Replicate")
		for range waiters {
			post()
		}
		allocated, inUse := profiled("(*Endpoints).Replicate")
		require.Greater(t, allocated, int64(size), "the profile has no allocations of the endpoint")
		require.Less(t, inUse-stored, int64(size))
		require.EqualValues(t, 1, n.Get("/_scheduler/jobs").JSON(t)["total_rows"])
	})
}

// profiled returns the bytes that a function, and what it called, has allocated, and how many of them are in use. The
// runtime samples allocations: most of those of 800,000 bytes are counted, and few small ones.
func profiled(function string) (allocated, inUse int64) {
	runtime.GC() // the profile covers the last collection but one
	runtime.GC()
	var records []runtime.MemProfileRecord
	count, ok := runtime.MemProfile(nil, true)
	for !ok {
		records = make([]runtime.MemProfileRecord, 2*count)
		count, ok = runtime.MemProfile(records, true)
	}
	for _, record := range records[:count] {
		frames := runtime.CallersFrames(record.Stack())
		for more := true; more; {
			var frame runtime.Frame
			frame, more = frames.Next()
			if strings.HasSuffix(frame.Function, function) {
				allocated += record.AllocBytes
				inUse += record.InUseBytes()
				break
			}
		}
	}
	return allocated, inUse
}

func TestStoreThatFailsWhileARequestWaits(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Control(webtest.Memory(t))
		n := startOn(t, db, webtest.ListenPipe())
		waiting := n.posting(definition(""))
		n.accept()
		synctest.Wait()
		db.Fail(errors.New("broken"))
		got := <-waiting // when the store is read the next time
		require.Equal(t, http.StatusInternalServerError, got.Status)
		require.Contains(t, n.Journal.Line(t, "request failed")["reason"], "broken")
	})
}

func TestClientThatHangsUpWhileTheStoreHangs(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Control(webtest.Memory(t))
		n := startOn(t, db, webtest.ListenPipe())
		_ = db.HoldBefore()
		conn := n.Connect()
		conn.Send("GET /_scheduler/jobs HTTP/1.1\r\n" + webtest.RawHead + "\r\n")
		synctest.Wait()
		require.NoError(t, conn.Close())
		n.Journal.Line(t, "the client hung up")
		require.EqualValues(t, 0, n.Journal.Line(t, `"message":"request"`)["status"])
		lines, _ := n.Journal.Lines()
		require.NotContains(t, lines, `"level":"error"`)
	})
}
