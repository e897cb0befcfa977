package frontend_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/pkg/kv/enginetest"
)

// The connection that has had no request for the longest time makes room.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/max_connections=3")
	idle, slow, silent := n.Connect(), n.Connect(), n.Connect()
	idle.Ask()
	require.Equal(t, http.StatusOK, idle.Status())
	n.idle(slow, silent, idle)
	slow.Send("GET / HTTP/1.1\r\nHost:")
	// They are in the order in which the node noticed them: slow and silent, then idle.
	late := []*webtest.Conn{n.Connect(), n.Connect(), n.Connect()}
	for _, c := range late {
		c.Ask()
		require.Equal(t, http.StatusOK, c.Status())
	}
	n.idle(late...)
	for _, c := range []*webtest.Conn{slow, silent, idle} {
		require.Equal(t, 0, c.Status(), "it was closed")
	}
	for _, c := range late {
		c.Ask()
		require.Equal(t, http.StatusOK, c.Status())
	}
}

// idle waits until these clients have no request, and no others.
func (n *node) idle(clients ...*webtest.Conn) {
	n.Helper()
	want := []string{}
	for _, c := range clients {
		want = append(want, c.LocalAddr().String())
	}
	slices.Sort(want)
	require.Eventually(n, func() bool { return slices.Equal(want, slices.Sorted(slices.Values(n.handler.Usage().Idle))) }, time.Minute, time.Millisecond)
}

// Requests that are being answered keep their connections, and no other connection is accepted.
func TestMaxConnectionsWithRequests(t *testing.T) {
	t.Parallel()
	db := enginetest.Control(webtest.Memory(t))
	n := startOn(t, db, webtest.ListenTCP(t), "chttpd/max_connections=2")
	_ = db.HoldBefore()
	busy := []*webtest.Conn{n.Connect(), n.Connect()}
	for _, c := range busy {
		c.Send("GET /db HTTP/1.1\r\n" + webtest.RawHead + "\r\n")
	}
	require.Eventually(t, func() bool { return n.handler.Usage().Requests == 2 }, time.Minute, time.Millisecond)
	for range 3 {
		refused := n.Connect()
		refused.Ask()
		require.Equal(t, 0, refused.Status())
	}
	n.Journal.Line(t, `"level":"warn"`, "[chttpd] max_connections", `"connections":2`)
	lines, _ := n.Journal.Lines()
	require.Equal(t, 1, strings.Count(lines, "max_connections"), "it is said once")

	// With HTTP/2 a connection has many requests.
	another := httptest.NewRecorder()
	n.handler.ServeHTTP(another, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusServiceUnavailable, another.Code)
	require.Contains(t, another.Body.String(), "too many requests")

	require.NoError(t, busy[0].Close())
	require.Eventually(t, func() bool {
		c := n.Connect()
		c.Ask()
		return c.Status() == http.StatusOK
	}, time.Minute, time.Millisecond)
}

// receiving waits until the node waits for the bodies of these clients, in this order.
func (n *node) receiving(clients ...*webtest.Conn) {
	n.Helper()
	want := []string{}
	for _, c := range clients {
		want = append(want, c.LocalAddr().String())
	}
	require.Eventually(n, func() bool { return slices.Equal(want, n.handler.Usage().Receiving) }, time.Minute, time.Millisecond)
}

// A connection whose body stalls makes room, after the connections without a request, and in the order in which the
// bodies stalled. A feed that waits for changes, whose body has arrived, makes room after all of these.
func TestMaxConnectionsWithBodies(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/max_connections=5")
	n.NewDatabase("db")
	var slow []*webtest.Conn
	for range 4 {
		c := n.Connect()
		c.Send("POST /_session HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n{")
		slow = append(slow, c)
		n.receiving(slow...)
	}
	idle := n.Connect()
	idle.Ask()
	require.Equal(t, http.StatusOK, idle.Status())
	n.idle(idle)
	slow[0].Send(" ")
	n.receiving(slow[1], slow[2], slow[3], slow[0])

	const plain, filtered = "GET /db/_changes?feed=continuous&heartbeat=60000", "POST /db/_changes?feed=continuous&heartbeat=60000&filter=_doc_ids"
	const ids = `{"doc_ids":["a"]}`
	feed := n.Connect()
	feed.Follow(plain, "")
	n.waits(1)
	require.Equal(t, 0, idle.Status(), "who has no request goes first")
	n.Connect().Follow(filtered, ids)
	require.Equal(t, 0, slow[1].Status())
	n.Connect().Follow(plain, ids) // which is not read
	require.Equal(t, 0, slow[2].Status())
	n.receiving(slow[3], slow[0])

	slow[3].Send(strings.Repeat(" ", 59998) + "}")
	require.Equal(t, http.StatusBadRequest, slow[3].Status(), "it names nobody")
	slow[3].Follow(filtered, ids)
	n.Connect().Follow(filtered, ids)
	require.Equal(t, 0, slow[0].Status())
	n.waits(5)
	late := n.Connect()
	late.Ask()
	require.Equal(t, http.StatusOK, late.Status(), "all others have sent their bodies")
	rest, err := io.ReadAll(feed.Answers)
	require.NoError(t, err)
	require.Contains(t, string(rest), `{"last_seq":"`)
}

// The bound can be changed while the node runs.
func TestMaxConnectionsChanges(t *testing.T) {
	t.Parallel()
	n := start(t)
	// Kept open, it would be closed to make room, which its next request might notice too late.
	n.Do(http.MethodPut, "/_node/_local/_config/chttpd/max_connections", `"1"`, "Connection", "close").Is(t, http.StatusOK)
	var before *webtest.Conn
	for range 3 {
		c := n.Connect()
		c.Ask()
		require.Equal(t, http.StatusOK, c.Status())
		if before != nil {
			require.Equal(t, 0, before.Status(), "it made room")
		}
		before = c
	}
	require.Equal(t, http.StatusBadRequest, n.Do(http.MethodPut, "/_node/_local/_config/chttpd/max_connections", `"0"`).Status)
}

// Browsers are told not to guess the type of an answer, and errors do not name the version of
// this program.
func TestHeadersOfAnswers(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	for _, target := range []string{"/", "/db", "/db/_all_docs", "/db/_changes", "/nothing", "/db/nothing", "/_node/_local/_config"} {
		for _, method := range []string{http.MethodGet, http.MethodHead, "BREW"} {
			got := n.Do(method, target, "")
			require.Equal(t, []string{"nosniff"}, got.Header.Values("X-Content-Type-Options"), "%s %s", method, target)
			require.Equal(t, []string{"settee"}, got.Header.Values("Server"))
			if got.Status >= http.StatusBadRequest {
				require.NotContains(t, got.Body+fmt.Sprint(got.Header), "1.2.3")
			}
		}
	}
	c := n.Connect()
	c.Send("GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + strings.Repeat("x", 80<<10) + "\r\n\r\n")
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, c.Status())
}

// More connections than the memory is for are not promised in silence.
func TestConnectionsBoundedByMemory(t *testing.T) {
	t.Parallel()
	const said = "counts as 4096: connections take at most half of the memory for clients, see [settee] memory_limit_bytes"
	start(t, "chttpd/max_connections=5000").Journal.Line(t, `"level":"warn"`, "[chttpd] max_connections, --set: "+said)
	lines, _ := start(t).Journal.Lines()
	require.NotContains(t, lines, said, "the default")
}
