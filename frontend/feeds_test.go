package frontend_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// Time is the bubble's in these tests, and the network and the store are in memory.

// feed is a changes feed as its client reads it.
type feed struct {
	*testing.T
	response *http.Response
	lines    *bufio.Reader
	began    time.Time
}

// follow opens a feed of the database db.
func (n *node) follow(query string, headers ...string) *feed {
	n.Helper()
	return n.open(http.MethodGet, query, "", headers...)
}

func (n *node) open(method, query, body string, headers ...string) *feed {
	n.Helper()
	return n.openAt(method, "/db/_changes"+query, body, headers...)
}

func (n *node) openAt(method, target, body string, headers ...string) *feed {
	n.Helper()
	began := time.Now()
	r, err := http.NewRequestWithContext(n.Context(), method, "http://"+n.address+target, strings.NewReader(body))
	require.NoError(n, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := n.client.Do(r)
	require.NoError(n, err)
	require.Equal(n, http.StatusOK, response.StatusCode)
	n.Cleanup(func() { response.Body.Close() })
	return &feed{n.T, response, bufio.NewReader(response.Body), began}
}

// line waits for a line.
func (f *feed) line() string {
	f.Helper()
	line, err := f.lines.ReadString('\n')
	require.NoError(f, err)
	return anySequence(strings.TrimSuffix(line, "\n"))
}

// expect waits for lines that begin so, and no others.
func (f *feed) expect(prefixes ...string) {
	f.Helper()
	for _, prefix := range prefixes {
		line := f.line()
		require.True(f, strings.HasPrefix(line, prefix) && (prefix != "" || line == ""), "%q is not %q", line, prefix)
	}
}

// rest waits for the end.
func (f *feed) rest() string {
	f.Helper()
	text, err := io.ReadAll(f.lines)
	require.NoError(f, err)
	return anySequence(string(text))
}

// after requires that so much time has passed since the feed was opened.
func (f *feed) after(d time.Duration) {
	f.Helper()
	require.Equal(f, d, time.Since(f.began))
}

func changed(id string) string { return `{"seq":"...","id":"` + id + `"` }

const (
	tail = `],` + "\n" + `"last_seq":"...","pending":0}` + "\n\n"
	last = `{"last_seq":"...","pending":0}` + "\n\n"
)

// inBubble runs a test of a node with the database db, in which there is one document.
func inBubble(t *testing.T, settings []string, test func(t *testing.T, n *node, db *docstore.Database)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, memory(t), listenPipe(), settings...)
		db := n.newDatabase("db")
		write(t, db, doc("first", `{"n":1}`))
		test(t, n, db)
	})
}

func TestLongpoll(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		f := n.follow("?feed=longpoll")
		f.expect(`{"results":[`, changed("first"))
		require.Equal(t, tail, f.rest())
		f.after(0)
		f = n.follow("?feed=longpoll&since=now")
		f.expect(`{"results":[`) // at once
		synctest.Wait()
		time.Sleep(40 * time.Second)
		write(t, db, doc("second", `{}`))
		f.expect(changed("second"))
		require.Equal(t, tail, f.rest())
		f.after(40 * time.Second)
	})
}

func TestFeedsTimeOut(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, _ *docstore.Database) {
		for query, want := range map[string]time.Duration{
			"":                             time.Minute,
			"&timeout=1500":                1500 * time.Millisecond,
			"&timeout=0":                   0,
			"&timeout=60001":               time.Minute,
			"&timeout=9999999999999999999": time.Minute,
		} {
			f := n.follow("?feed=longpoll&since=now" + query)
			require.Equal(t, "{\"results\":[\n\n"+tail, f.rest())
			f.after(want)
			f = n.follow("?feed=continuous" + query)
			f.expect(changed("first"))
			require.Equal(t, last, f.rest())
			f.after(want)
			f = n.follow("?feed=eventsource" + query)
			f.expect("data: "+changed("first"), `id: "..."`, "")
			require.Equal(t, "\n", f.rest())
			f.after(want)
		}
	})
}

func TestChangesTimeoutIsASetting(t *testing.T) {
	inBubble(t, []string{"chttpd/changes_timeout=7000"}, func(t *testing.T, n *node, _ *docstore.Database) {
		for query, want := range map[string]time.Duration{"": 7 * time.Second, "&timeout=50000": 7 * time.Second, "&timeout=2000": 2 * time.Second} {
			f := n.follow("?feed=continuous&since=now" + query)
			require.Equal(t, last, f.rest())
			f.after(want)
		}
		for _, query := range []string{"true", "60000", "7000"} {
			f := n.follow("?feed=continuous&since=now&heartbeat=" + query)
			f.expect("")
			f.after(7 * time.Second)
		}
	})
}

// Heartbeats of many feeds are further apart.
func TestHeartbeatsOfManyFeeds(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, _ *docstore.Database) {
		var first *feed
		const feeds = 300
		for range feeds {
			f := n.follow("?feed=continuous&since=now&heartbeat=100")
			if first == nil {
				first = f
				continue
			}
			go func() { _, _ = io.Copy(io.Discard, f.response.Body) }()
		}
		synctest.Wait()
		first.expect("") // of the time when it had no company
		began := time.Now()
		for range 10 {
			first.expect("")
		}
		require.Equal(t, 10*feeds*time.Millisecond, time.Since(began))
	})
}

func TestHeartbeats(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		// As it was recorded (036): there is no timeout then.
		f := n.follow("?feed=longpoll&since=now&heartbeat=500&timeout=1500")
		f.expect(`{"results":[`)
		for i := range 9 {
			f.expect("")
			f.after(time.Duration(i+1) * 500 * time.Millisecond)
		}
		f = n.follow("?feed=continuous&heartbeat=500") // 037
		f.expect(changed("first"), "", "", "")
		f.after(1500 * time.Millisecond)
		f = n.follow("?feed=eventsource&heartbeat=500")
		f.expect("data: "+changed("first"), `id: "..."`, "", "event: heartbeat", "data: ", "", "event: heartbeat", "data: ", "")
		f.after(time.Second)
		require.Equal(t, "text/event-stream", f.response.Header.Get("Content-Type"))
		require.Equal(t, "no-cache", f.response.Header.Get("Cache-Control"))
		f = n.follow("?feed=continuous&since=now&heartbeat=1") // too often
		for i := range 10 {
			f.expect("")
			f.after(time.Duration(i+1) * 100 * time.Millisecond)
		}
		f = n.follow("?feed=live&since=now&heartbeat=true")
		for i := range 600 {
			f.expect("")
			f.after(time.Duration(i+1) * time.Minute)
		}
		write(t, db, doc("second", `{}`))
		f.expect(changed("second"))
		f.after(10 * time.Hour)
	})
}

func TestContinuous(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		f := n.follow("?feed=continuous&include_docs=true&heartbeat=30000")
		f.expect(changed("first"))
		rev := current(t, db, "first")
		for i := range 5 {
			time.Sleep(time.Second)
			rev = write(t, db, docstore.Edit{ID: "first", Rev: rev, Body: docjson.Must(fmt.Appendf(nil, `{"n":%d}`, i))})[0]
			require.Contains(t, f.line(), fmt.Sprintf(`"n":%d}`, i))
		}
		write(t, db, docstore.Edit{ID: "first", Rev: rev, Deleted: true}, doc("second", `{}`))
		f.expect(changed("first"), changed("second"))
		f.after(5 * time.Second)

		limited := n.follow("?feed=continuous&limit=3&heartbeat=30000")
		limited.expect(changed("first"), changed("second"))
		write(t, db, doc("third", `{}`), doc("fourth", `{}`))
		limited.expect(changed("third"))
		require.Equal(t, strings.Replace(last, `:0}`, `:1}`, 1), limited.rest())
		f.expect(changed("third"), changed("fourth"))
		require.Equal(t, last, n.follow("?feed=continuous&since=now&limit=0").rest())
		f = n.follow("?feed=continuous&descending=true&limit=2")
		f.expect(changed("fourth"), changed("third"))
		require.Equal(t, strings.Replace(last, `:0}`, `:2}`, 1), f.rest())
		f = n.follow("?feed=continuous&descending=true")
		f.expect(changed("fourth"), changed("third"), changed("second"), changed("first"))
		require.Equal(t, last, f.rest())
	})
}

func TestFilteredFeeds(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		stop := n.traffic(db)
		defer stop()
		// Changes that do not pass the filter delay neither the end of a feed nor its heartbeats.
		for _, request := range [][2]string{
			{"?filter=_doc_ids", `{"doc_ids":["first"]}`}, {"?filter=_selector", `{"selector":{"n":1}}`}, {"?filter=_design", ""},
		} {
			f := n.open(http.MethodPost, request[0]+"&since=now&feed=longpoll&timeout=10400", request[1])
			text, err := io.ReadAll(f.lines)
			require.NoError(t, err)
			require.Equal(t, "{\"results\":[\n\n"+tail, anySequence(string(text)))
			f.after(10400 * time.Millisecond)
			require.Equal(t, n.get("/db").json(t)["update_seq"], seqs(string(text))[0], "what did not pass was dealt with")

			f = n.open(http.MethodPost, request[0]+"&since=now&feed=continuous&heartbeat=2500", request[1])
			for i := range 4 {
				f.expect("")
				f.after(time.Duration(i+1) * 2500 * time.Millisecond)
			}
		}
		f := n.open(http.MethodPost, "?filter=_doc_ids&feed=continuous&heartbeat=60000", `{"doc_ids":["first","_design/x"]}`)
		f.expect(changed("first"))
		time.Sleep(10 * time.Second)
		write(t, db, doc("_design/x", `{}`))
		f.expect(changed("_design/x"))
		write(t, db, docstore.Edit{ID: "first", Rev: current(t, db, "first"), Deleted: true})
		f.expect(changed("first"))
		f.after(10 * time.Second)
	})
}

// traffic writes a document each second.
func (n *node) traffic(db *docstore.Database) (stop func()) {
	ctx, cancel := context.WithCancel(n.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
			if _, err := db.Write(ctx, []docstore.Edit{doc(fmt.Sprintf("traffic%d", i), `{}`)}, docstore.WriteOptions{}); err != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// slow is a store whose transactions take a second each after now is closed.
type slow struct {
	kv.Database
	now chan struct{}
}

func (s *slow) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	select {
	case <-s.now:
		time.Sleep(time.Second)
	default:
	}
	return s.Database.Transact(ctx, fn)
}

// A feed that reads many changes that do not pass its filter sends heartbeats meanwhile, and sends what it has found
// before.
func TestFeedsThatReadLong(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		store := &slow{memory(t), make(chan struct{})}
		n := startOn(t, store, listenPipe())
		db := n.newDatabase("db")
		write(t, db, doc("_design/x", `{}`))
		n.fill(db, 20*500, `{}`) // 500 is what one transaction reads
		close(store.now)
		f := n.follow("?filter=_design&feed=continuous&heartbeat=3000")
		f.expect(changed("_design/x"))
		shown := time.Since(f.began)
		require.Less(t, shown, 8*time.Second)
		f.expect("", "", "", "")
		require.Equal(t, 12*time.Second, (time.Since(f.began) - shown).Round(2*time.Second))
		require.NoError(t, f.response.Body.Close())
		f = n.follow("?filter=_design")
		f.expect(`{"results":[`, changed("_design/x"), "", "")
		require.Equal(t, tail, strings.TrimLeft(f.rest(), "\n"))
	})
}

func TestFeedOfADeletedDatabase(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		feeds := map[string]*feed{}
		for _, kind := range []string{"longpoll", "continuous", "eventsource"} {
			feeds[kind] = n.follow("?since=now&heartbeat=50000&feed=" + kind)
		}
		time.Sleep(time.Second)
		require.NoError(t, db.Delete(t.Context()))
		require.Equal(t, "{\"results\":[\n\n"+tail, feeds["longpoll"].rest())
		require.Equal(t, last, feeds["continuous"].rest())
		require.Equal(t, "\n", feeds["eventsource"].rest())
		feeds["continuous"].after(time.Second)
	})
}

func TestFeedsEndWhenTheNodeDrains(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		waiting := n.follow("?since=now&heartbeat=50000&feed=longpoll")
		time.Sleep(time.Second)
		n.handler.Drain()
		require.Equal(t, "{\"results\":[\n\n"+tail, waiting.rest())
		waiting.after(time.Second)
		write(t, db, doc("second", `{}`))
		// Feeds that are opened now get the changes that there are.
		f := n.follow("?heartbeat=50000&feed=continuous&since=now")
		require.Equal(t, last, f.rest())
		f = n.follow("?heartbeat=50000&feed=continuous")
		f.expect(changed("first"))
		require.Equal(t, strings.Replace(last, `:0}`, `:1}`, 1), f.rest())
		require.Equal(t, []string{"first", "second"}, n.changes("", "").ids(), "a feed that does not wait is whole")
	})
}

func TestEventSourceGoesOn(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		write(t, db, doc("second", `{}`))
		text := n.get("/db/_changes?feed=eventsource&limit=1").body
		id := strings.TrimPrefix(strings.Split(text, "\n")[1], "id: ")
		require.Regexp(t, `^"[1-9][0-9]*-[0-9a-f]{24}"$`, id)
		f := n.follow("?feed=eventsource&since=0&limit=1", "Last-Event-ID", id)
		f.expect("data: "+changed("second"), `id: "..."`, "")
		require.Equal(t, "\n", f.rest())
		f = n.follow("?feed=continuous&limit=1", "Last-Event-ID", id)
		f.expect(changed("first")) // it is of event sources
		f = n.follow("?feed=eventsource&limit=1&seq_interval=3")
		f.expect(`data: {"seq":null,"id":"first"`, "") // without an id, so that a browser comes again with an earlier one
		require.Equal(t, "\n", f.rest())
	})
}

func TestClientOfAFeedThatHangsUp(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		f := n.follow("?feed=continuous&heartbeat=60000")
		f.expect(changed("first"))
		require.NoError(t, f.response.Body.Close())
		n.log.line(t, "the client hung up")
		require.EqualValues(t, 200, n.log.line(t, `"path":"/db/_changes"`)["status"])
		require.NoError(t, db.Delete(t.Context()))
		lines, _ := n.log.read()
		require.NotContains(t, lines, `"level":"error"`)
	})
}

func TestClientOfAFeedThatDoesNotRead(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, _ *docstore.Database) {
		conn := n.connect()
		began := time.Now()
		conn.send("GET /db/_changes?feed=continuous&heartbeat=10000 HTTP/1.1\r\n" + rawHead + "\r\n")
		require.EqualValues(t, 200, n.log.line(t, `"path":"/db/_changes"`)["status"])
		require.Equal(t, time.Minute, time.Since(began))
	})
}

func TestStoreThatFailsWhileAFeedWaits(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		store := enginetest.Control(memory(t))
		n := startOn(t, store, listenPipe())
		write(t, n.newDatabase("db"), doc("first", `{}`))
		f := n.follow("?feed=continuous&heartbeat=60000")
		f.expect(changed("first"))
		synctest.Wait()
		store.Fail(errors.New("broken"))
		_, err := io.ReadAll(f.lines)
		require.Error(t, err, "an answer that is not whole does not look so")
		require.Contains(t, n.log.line(t, "could not be finished")["reason"], "broken")
	})
}

func TestChangesBodyThatStandsStill(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, _ *docstore.Database) {
		conn := n.connect()
		conn.send("POST /db/_changes?filter=_doc_ids HTTP/1.1\r\n" + rawHead + "Content-Length: 21\r\n\r\n")
		for _, c := range `{"doc_ids":["firs` { // slow, but it comes
			time.Sleep(50 * time.Second)
			conn.send(string(c))
		}
		began := time.Now()
		require.Equal(t, http.StatusRequestTimeout, conn.status())
		require.Equal(t, time.Minute, time.Since(began))
	})
}
