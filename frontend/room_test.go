package frontend_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend"
	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
	"settee/pkg/docstore"
)

// waits returns when so many requests wait for an event.
func (n *node) waits(many int) {
	n.Helper()
	require.Eventually(n, func() bool { return n.handler.Usage().Waits == many }, time.Minute, time.Millisecond)
}

// crowded is a listener whose clients have addresses that the test chooses.
type crowded struct {
	net.Listener
	addresses chan string
}

func (l *crowded) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &comesFrom{conn, addressed(<-l.addresses)}, nil
}

type comesFrom struct {
	net.Conn
	address net.Addr
}

func (c *comesFrom) RemoteAddr() net.Addr { return c.address }

type addressed string

func (addressed) Network() string  { return "tcp" }
func (a addressed) String() string { return string(a) }

// crowd is a node and its clients, which come from anywhere.
type crowd struct {
	*node
	documents *docstore.Database
	addresses chan string
	feeds     []*crowdFeed
}

func startCrowd(t *testing.T, settings ...string) *crowd {
	t.Helper()
	listener := &crowded{webtest.ListenTCP(t), make(chan string, 1)}
	n := startOn(t, webtest.Memory(t), listener, settings...)
	return &crowd{node: n, documents: n.NewDatabase("db"), addresses: listener.addresses}
}

func (c *crowd) connectFrom(address string) *webtest.Conn {
	c.Helper()
	c.addresses <- address
	return c.Connect()
}

// crowdFeed is a feed on a connection of its own.
type crowdFeed struct {
	*webtest.Conn
	response *http.Response
}

func followFeed(c *webtest.Conn, kind string) *crowdFeed {
	c.Helper()
	c.Send("GET /db/_changes?heartbeat=60000&feed=" + kind + " HTTP/1.1\r\n" + webtest.RawHead + "\r\n")
	response, err := http.ReadResponse(c.Answers, nil)
	require.NoError(c, err)
	require.Equal(c, http.StatusOK, response.StatusCode)
	c.Cleanup(func() {
		c.Close() // otherwise the body would be read to its end
		response.Body.Close()
	})
	return &crowdFeed{c, response}
}

// follow opens a feed and returns when it waits for changes.
func (c *crowd) followFrom(address, kind string) *crowdFeed {
	c.Helper()
	f := followFeed(c.connectFrom(address), kind)
	c.feeds = append(c.feeds, f)
	c.settled()
	return f
}

// settled returns when all feeds that have not ended wait for changes.
func (c *crowd) settled() {
	c.Helper()
	c.waits(min(len(c.feeds), 4))
}

// ends requires that the feed has ended as it should, and that its connection is closed.
func (f *crowdFeed) ends(want string) {
	f.Helper()
	text, err := io.ReadAll(f.response.Body)
	require.NoError(f, err, "the answer is whole")
	require.Equal(f, want, webtest.AnySequence(string(text)))
	_, err = f.Answers.ReadByte()
	require.ErrorIs(f, err, io.EOF)
}

const (
	continuousEnd = `{"last_seq":"...","pending":0}` + "\n\n"
	longpollEnd   = "{\"results\":[\n\n],\n\"last_seq\":\"...\",\"pending\":0}\n\n"
)

// The network with the most feeds makes room, the feed that has waited longest first.
func TestFeedsMakeRoom(t *testing.T) {
	t.Parallel()
	c := startCrowd(t, "chttpd/max_connections=4")
	alone := c.followFrom("192.0.2.1:1000", "continuous")
	// These are one network.
	first := c.followFrom("[2001:db8::1]:1000", "continuous")
	second := c.followFrom("[2001:db8::2]:1001", "longpoll")
	third := c.followFrom("[2001:db8::ffff:1]:1002", "eventsource")

	new1 := c.followFrom("192.0.2.2:1000", "continuous")
	first.ends(continuousEnd)
	new2 := c.followFrom("[2001:db8:0:1::1]:1000", "continuous")
	second.ends(longpollEnd)
	// Now each has one.
	new3 := c.followFrom("192.0.2.3:1000", "continuous")
	alone.ends(continuousEnd)
	new4 := c.followFrom("192.0.2.2:1001", "continuous")
	third.ends("\n")
	new5 := c.followFrom("192.0.2.4:1001", "longpoll")
	new1.ends(continuousEnd)

	// The others go on.
	webtest.Write(t, c.documents, webtest.Doc("a", `{}`))
	for _, f := range []*crowdFeed{new2, new3, new4} {
		line, err := bufio.NewReader(f.response.Body).ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, `"id":"a"`)
	}
	text, err := io.ReadAll(new5.response.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), `"id":"a"`)
}

// With HTTP/2 a connection has many feeds, and each counts.
func TestFeedsOfOneConnectionMakeRoom(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe(), "chttpd/max_connections=3")
		db := n.NewDatabase("db")
		shared := overHTTP2(t, n)
		var feeds []io.Reader
		for range 3 {
			response, err := shared.Get("https://a/db/_changes?feed=continuous&heartbeat=60000")
			require.NoError(t, err)
			defer response.Body.Close()
			feeds = append(feeds, response.Body)
			synctest.Wait()
		}
		require.Equal(t, http.StatusOK, n.Get("/").Status)
		text, err := io.ReadAll(feeds[0])
		require.NoError(t, err)
		require.Equal(t, continuousEnd, webtest.AnySequence(string(text)))
		webtest.Write(t, db, webtest.Doc("a", `{}`))
		for _, feed := range feeds[1:] {
			line, err := bufio.NewReader(feed).ReadString('\n')
			require.NoError(t, err)
			require.Contains(t, line, `"id":"a"`)
		}
		response, err := shared.Get("https://a/")
		require.NoError(t, err, "the connection goes on")
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode)
	})
}

// A request that waits for a replication makes room after the feeds, and its answer says that the replication goes
// on.
func TestReplicationsMakeRoom(t *testing.T) {
	t.Parallel()
	c := startCrowd(t, "chttpd/max_connections=2")
	replicating := c.connectFrom("192.0.2.1:1000")
	body := definition("")
	replicate := fmt.Sprintf("POST /_replicate HTTP/1.1\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", webtest.RawHead, len(body), body)
	replicating.Send(replicate)
	c.waits(1)
	feed := followFeed(c.connectFrom("192.0.2.1:1001"), "continuous")
	c.waits(2)
	// These stay.
	another := followFeed(c.connectFrom("192.0.2.2:1000"), "continuous")
	feed.ends(continuousEnd)
	c.waits(2)
	db := followFeed(c.connectFrom("192.0.2.2:1001"), "continuous")
	another.ends(continuousEnd)
	c.waits(2)
	require.NoError(t, db.Close())
	require.Eventually(t, func() bool { return c.handler.Usage().Open == 1 }, time.Minute, time.Millisecond)

	run := c.accept()
	again := c.connectFrom("192.0.2.3:1000")
	again.Send(replicate)
	c.waits(2)
	c.connectFrom("192.0.2.4:1000").Ask()
	response, err := http.ReadResponse(replicating.Answers, nil)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	webtest.Refused(t, webtest.Answer{Status: response.StatusCode, Body: string(text)}, http.StatusServiceUnavailable, "service_unavailable",
		"too many requests are being answered; the replication "+run.Job().ReplicationID()+" goes on: the same request, sent later, waits for it")
	c.complete(run, `{"ok":true}`)
	require.Equal(t, http.StatusOK, again.Status())
}

// Feeds that were told to end, and whose clients do not read, do not keep others out, and their number is
// bounded.
func TestFeedsThatAreNotRead(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe(), "chttpd/max_connections=1") // which holds nothing
		n.NewDatabase("db")
		var feeds []*crowdFeed
		for range frontend.MaxEnding + 3 {
			feeds = append(feeds, followFeed(n.Connect(), "continuous"))
			synctest.Wait()
		}
		cut, err := io.ReadAll(feeds[0].response.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Empty(t, cut)
		for _, f := range feeds[2 : frontend.MaxEnding+2] {
			f.ends(continuousEnd)
		}
		synctest.Wait()
		require.Equal(t, 1, n.handler.Usage().Waits)
		require.Equal(t, 1, n.handler.Usage().Requests)
	})
}
