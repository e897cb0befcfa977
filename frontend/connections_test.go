package frontend_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv/enginetest"
)

// client is one connection to a node.
type client struct {
	*testing.T
	net.Conn
	answers *bufio.Reader
}

func (n *node) connect() *client {
	n.Helper()
	conn, err := n.dial(n.Context())
	require.NoError(n, err)
	n.Cleanup(func() { _ = conn.Close() })
	return &client{n.T, conn, bufio.NewReader(conn)}
}

// send sends a request, or a part of one. If the node has closed the connection, sending may fail.
func (c *client) send(text string) { _, _ = io.WriteString(c, text) }

func (c *client) ask() {
	c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
}

// answer reads the next answer. closes reports whether it is the last one on its connection.
func (c *client) answer() (got answer, closes bool) {
	c.Helper()
	response, err := http.ReadResponse(c.answers, nil)
	require.NoError(c, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(c, err)
	return answer{status: response.StatusCode, header: response.Header, body: string(text)}, response.Close
}

// status returns the status of the next answer, or 0 if the connection ends without one.
func (c *client) status() int {
	c.Helper()
	response, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(c, err)
	return response.StatusCode
}

// The connection that has had no request for the longest time makes room.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/max_connections=3")
	idle, slow, silent := n.connect(), n.connect(), n.connect()
	idle.ask()
	require.Equal(t, http.StatusOK, idle.status())
	n.idle(slow, silent, idle)
	slow.send("GET / HTTP/1.1\r\nHost:")
	// They are in the order in which the node noticed them: slow and silent, then idle.
	late := []*client{n.connect(), n.connect(), n.connect()}
	for _, c := range late {
		c.ask()
		require.Equal(t, http.StatusOK, c.status())
	}
	n.idle(late...)
	for _, c := range []*client{slow, silent, idle} {
		require.Equal(t, 0, c.status(), "it was closed")
	}
	for _, c := range late {
		c.ask()
		require.Equal(t, http.StatusOK, c.status())
	}
}

// idle waits until these clients have no request, and no others.
func (n *node) idle(clients ...*client) {
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
	db := enginetest.Control(memory(t))
	n := startOn(t, db, listenTCP(t), "chttpd/max_connections=2")
	_ = db.HoldBefore()
	busy := []*client{n.connect(), n.connect()}
	for _, c := range busy {
		c.send("GET /db HTTP/1.1\r\n" + rawHead + "\r\n")
	}
	require.Eventually(t, func() bool { return n.handler.Usage().Requests == 2 }, time.Minute, time.Millisecond)
	for range 3 {
		refused := n.connect()
		refused.ask()
		require.Equal(t, 0, refused.status())
	}
	n.log.line(t, `"level":"warn"`, "[chttpd] max_connections", `"connections":2`)
	lines, _ := n.log.read()
	require.Equal(t, 1, strings.Count(lines, "max_connections"), "it is said once")

	// With HTTP/2 a connection has many requests.
	another := httptest.NewRecorder()
	n.handler.ServeHTTP(another, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusServiceUnavailable, another.Code)
	require.Contains(t, another.Body.String(), "too many requests")

	require.NoError(t, busy[0].Close())
	require.Eventually(t, func() bool {
		c := n.connect()
		c.ask()
		return c.status() == http.StatusOK
	}, time.Minute, time.Millisecond)
}

// receiving waits until the node waits for the bodies of these clients, in this order.
func (n *node) receiving(clients ...*client) {
	n.Helper()
	want := []string{}
	for _, c := range clients {
		want = append(want, c.LocalAddr().String())
	}
	require.Eventually(n, func() bool { return slices.Equal(want, n.handler.Usage().Receiving) }, time.Minute, time.Millisecond)
}

// follow opens a feed, with or without a body.
func (c *client) follow(request, body string) {
	c.Helper()
	c.send(fmt.Sprintf("%s HTTP/1.1\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", request, rawHead, len(body), body))
	line, err := c.answers.ReadString('\n')
	require.NoError(c, err)
	require.Equal(c, "HTTP/1.1 200 OK\r\n", line)
}

// A connection whose body stalls makes room, after the connections without a request, and in the order in which the
// bodies stalled. A feed that waits for changes, whose body has arrived, makes room after all of these.
func TestMaxConnectionsWithBodies(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/max_connections=5")
	n.newDatabase("db")
	var slow []*client
	for range 4 {
		c := n.connect()
		c.send("POST /_session HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n{")
		slow = append(slow, c)
		n.receiving(slow...)
	}
	idle := n.connect()
	idle.ask()
	require.Equal(t, http.StatusOK, idle.status())
	n.idle(idle)
	slow[0].send(" ")
	n.receiving(slow[1], slow[2], slow[3], slow[0])

	const plain, filtered = "GET /db/_changes?feed=continuous&heartbeat=60000", "POST /db/_changes?feed=continuous&heartbeat=60000&filter=_doc_ids"
	const ids = `{"doc_ids":["a"]}`
	feed := n.connect()
	feed.follow(plain, "")
	n.waits(1)
	require.Equal(t, 0, idle.status(), "who has no request goes first")
	n.connect().follow(filtered, ids)
	require.Equal(t, 0, slow[1].status())
	n.connect().follow(plain, ids) // which is not read
	require.Equal(t, 0, slow[2].status())
	n.receiving(slow[3], slow[0])

	slow[3].send(strings.Repeat(" ", 59998) + "}")
	require.Equal(t, http.StatusBadRequest, slow[3].status(), "it names nobody")
	slow[3].follow(filtered, ids)
	n.connect().follow(filtered, ids)
	require.Equal(t, 0, slow[0].status())
	n.waits(5)
	late := n.connect()
	late.ask()
	require.Equal(t, http.StatusOK, late.status(), "all others have sent their bodies")
	rest, err := io.ReadAll(feed.answers)
	require.NoError(t, err)
	require.Contains(t, string(rest), `{"last_seq":"`)
}

// The bound can be changed while the node runs.
func TestMaxConnectionsChanges(t *testing.T) {
	t.Parallel()
	n := start(t)
	// Kept open, it would be closed to make room, which its next request might notice too late.
	n.do(http.MethodPut, "/_node/_local/_config/chttpd/max_connections", `"1"`, "Connection", "close").is(t, http.StatusOK)
	var before *client
	for range 3 {
		c := n.connect()
		c.ask()
		require.Equal(t, http.StatusOK, c.status())
		if before != nil {
			require.Equal(t, 0, before.status(), "it made room")
		}
		before = c
	}
	require.Equal(t, http.StatusBadRequest, n.do(http.MethodPut, "/_node/_local/_config/chttpd/max_connections", `"0"`).status)
}

// Browsers are told not to guess the type of an answer, and errors do not name the version of
// this program.
func TestHeadersOfAnswers(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.newDatabase("db")
	for _, target := range []string{"/", "/db", "/db/_all_docs", "/db/_changes", "/nothing", "/db/nothing", "/_node/_local/_config"} {
		for _, method := range []string{http.MethodGet, http.MethodHead, "BREW"} {
			got := n.do(method, target, "")
			require.Equal(t, []string{"nosniff"}, got.header.Values("X-Content-Type-Options"), "%s %s", method, target)
			require.Equal(t, []string{"settee"}, got.header.Values("Server"))
			if got.status >= http.StatusBadRequest {
				require.NotContains(t, got.body+fmt.Sprint(got.header), "1.2.3")
			}
		}
	}
	c := n.connect()
	c.send("GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + strings.Repeat("x", 80<<10) + "\r\n\r\n")
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, c.status())
}

// More connections than the memory is for are not promised in silence.
func TestConnectionsBoundedByMemory(t *testing.T) {
	t.Parallel()
	const said = "counts as 4096: connections take at most half of the memory for clients, see [settee] memory_limit_bytes"
	start(t, "chttpd/max_connections=5000").log.line(t, `"level":"warn"`, "[chttpd] max_connections, --set: "+said)
	lines, _ := start(t).log.read()
	require.NotContains(t, lines, said, "the default")
}
