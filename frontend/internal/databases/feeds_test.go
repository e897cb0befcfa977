package databases_test

import (
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

	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// Time is the bubble's in these tests, and the network and the store are in memory.

// inBubble runs a test of a node with the database db, in which there is one document.
func inBubble(t *testing.T, settings []string, test func(t *testing.T, n *node, db *docstore.Database)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe(), settings...)
		db := n.NewDatabase("db")
		webtest.Write(t, db, webtest.Doc("first", `{"n":1}`))
		test(t, n, db)
	})
}

func TestLongpoll(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		f := n.Follow("?feed=longpoll")
		f.Expect(`{"results":[`, webtest.Changed("first"))
		require.Equal(t, webtest.FeedTail, f.Rest())
		f.After(0)
		f = n.Follow("?feed=longpoll&since=now")
		f.Expect(`{"results":[`) // at once
		synctest.Wait()
		time.Sleep(40 * time.Second)
		webtest.Write(t, db, webtest.Doc("second", `{}`))
		f.Expect(webtest.Changed("second"))
		require.Equal(t, webtest.FeedTail, f.Rest())
		f.After(40 * time.Second)
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
			f := n.Follow("?feed=longpoll&since=now" + query)
			require.Equal(t, "{\"results\":[\n\n"+webtest.FeedTail, f.Rest())
			f.After(want)
			f = n.Follow("?feed=continuous" + query)
			f.Expect(webtest.Changed("first"))
			require.Equal(t, webtest.FeedLast, f.Rest())
			f.After(want)
			f = n.Follow("?feed=eventsource" + query)
			f.Expect("data: "+webtest.Changed("first"), `id: "..."`, "")
			require.Equal(t, "\n", f.Rest())
			f.After(want)
		}
	})
}

func TestChangesTimeoutIsASetting(t *testing.T) {
	inBubble(t, []string{"chttpd/changes_timeout=7000"}, func(t *testing.T, n *node, _ *docstore.Database) {
		for query, want := range map[string]time.Duration{"": 7 * time.Second, "&timeout=50000": 7 * time.Second, "&timeout=2000": 2 * time.Second} {
			f := n.Follow("?feed=continuous&since=now" + query)
			require.Equal(t, webtest.FeedLast, f.Rest())
			f.After(want)
		}
		for _, query := range []string{"true", "60000", "7000"} {
			f := n.Follow("?feed=continuous&since=now&heartbeat=" + query)
			f.Expect("")
			f.After(7 * time.Second)
		}
	})
}

// Heartbeats of many feeds are further apart.
func TestHeartbeatsOfManyFeeds(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, _ *docstore.Database) {
		var first *webtest.Feed
		const feeds = 300
		for range feeds {
			f := n.Follow("?feed=continuous&since=now&heartbeat=100")
			if first == nil {
				first = f
				continue
			}
			go func() { _, _ = io.Copy(io.Discard, f.Response.Body) }()
		}
		synctest.Wait()
		first.Expect("") // of the time when it had no company
		began := time.Now()
		for range 10 {
			first.Expect("")
		}
		require.Equal(t, 10*feeds*time.Millisecond, time.Since(began))
	})
}

func TestHeartbeats(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		// As it was recorded (036): there is no timeout then.
		f := n.Follow("?feed=longpoll&since=now&heartbeat=500&timeout=1500")
		f.Expect(`{"results":[`)
		for i := range 9 {
			f.Expect("")
			f.After(time.Duration(i+1) * 500 * time.Millisecond)
		}
		f = n.Follow("?feed=continuous&heartbeat=500") // 037
		f.Expect(webtest.Changed("first"), "", "", "")
		f.After(1500 * time.Millisecond)
		f = n.Follow("?feed=eventsource&heartbeat=500")
		f.Expect("data: "+webtest.Changed("first"), `id: "..."`, "", "event: heartbeat", "data: ", "", "event: heartbeat", "data: ", "")
		f.After(time.Second)
		require.Equal(t, "text/event-stream", f.Response.Header.Get("Content-Type"))
		require.Equal(t, "no-cache", f.Response.Header.Get("Cache-Control"))
		f = n.Follow("?feed=continuous&since=now&heartbeat=1") // too often
		for i := range 10 {
			f.Expect("")
			f.After(time.Duration(i+1) * 100 * time.Millisecond)
		}
		f = n.Follow("?feed=live&since=now&heartbeat=true")
		for i := range 600 {
			f.Expect("")
			f.After(time.Duration(i+1) * time.Minute)
		}
		webtest.Write(t, db, webtest.Doc("second", `{}`))
		f.Expect(webtest.Changed("second"))
		f.After(10 * time.Hour)
	})
}

func TestContinuous(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		f := n.Follow("?feed=continuous&include_docs=true&heartbeat=30000")
		f.Expect(webtest.Changed("first"))
		rev := current(t, db, "first")
		for i := range 5 {
			time.Sleep(time.Second)
			rev = webtest.Write(t, db, docstore.Edit{ID: "first", Rev: rev, Body: docjson.Must(fmt.Appendf(nil, `{"n":%d}`, i))})[0]
			require.Contains(t, f.Line(), fmt.Sprintf(`"n":%d}`, i))
		}
		webtest.Write(t, db, docstore.Edit{ID: "first", Rev: rev, Deleted: true}, webtest.Doc("second", `{}`))
		f.Expect(webtest.Changed("first"), webtest.Changed("second"))
		f.After(5 * time.Second)

		limited := n.Follow("?feed=continuous&limit=3&heartbeat=30000")
		limited.Expect(webtest.Changed("first"), webtest.Changed("second"))
		webtest.Write(t, db, webtest.Doc("third", `{}`), webtest.Doc("fourth", `{}`))
		limited.Expect(webtest.Changed("third"))
		require.Equal(t, strings.Replace(webtest.FeedLast, `:0}`, `:1}`, 1), limited.Rest())
		f.Expect(webtest.Changed("third"), webtest.Changed("fourth"))
		require.Equal(t, webtest.FeedLast, n.Follow("?feed=continuous&since=now&limit=0").Rest())
		f = n.Follow("?feed=continuous&descending=true&limit=2")
		f.Expect(webtest.Changed("fourth"), webtest.Changed("third"))
		require.Equal(t, strings.Replace(webtest.FeedLast, `:0}`, `:2}`, 1), f.Rest())
		f = n.Follow("?feed=continuous&descending=true")
		f.Expect(webtest.Changed("fourth"), webtest.Changed("third"), webtest.Changed("second"), webtest.Changed("first"))
		require.Equal(t, webtest.FeedLast, f.Rest())
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
			f := n.Open(http.MethodPost, request[0]+"&since=now&feed=longpoll&timeout=10400", request[1])
			text, err := io.ReadAll(f.Lines)
			require.NoError(t, err)
			require.Equal(t, "{\"results\":[\n\n"+webtest.FeedTail, webtest.AnySequence(string(text)))
			f.After(10400 * time.Millisecond)
			require.Equal(t, n.Get("/db").JSON(t)["update_seq"], seqs(string(text))[0], "what did not pass was dealt with")

			f = n.Open(http.MethodPost, request[0]+"&since=now&feed=continuous&heartbeat=2500", request[1])
			for i := range 4 {
				f.Expect("")
				f.After(time.Duration(i+1) * 2500 * time.Millisecond)
			}
		}
		f := n.Open(http.MethodPost, "?filter=_doc_ids&feed=continuous&heartbeat=60000", `{"doc_ids":["first","_design/x"]}`)
		f.Expect(webtest.Changed("first"))
		time.Sleep(10 * time.Second)
		webtest.Write(t, db, webtest.Doc("_design/x", `{}`))
		f.Expect(webtest.Changed("_design/x"))
		webtest.Write(t, db, docstore.Edit{ID: "first", Rev: current(t, db, "first"), Deleted: true})
		f.Expect(webtest.Changed("first"))
		f.After(10 * time.Second)
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
			if _, err := db.Write(ctx, []docstore.Edit{webtest.Doc(fmt.Sprintf("traffic%d", i), `{}`)}, docstore.WriteOptions{}); err != nil {
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
		store := &slow{webtest.Memory(t), make(chan struct{})}
		n := startOn(t, store, webtest.ListenPipe())
		db := n.NewDatabase("db")
		webtest.Write(t, db, webtest.Doc("_design/x", `{}`))
		n.fill(db, 20*500, `{}`) // 500 is what one transaction reads
		close(store.now)
		f := n.Follow("?filter=_design&feed=continuous&heartbeat=3000")
		f.Expect(webtest.Changed("_design/x"))
		shown := time.Since(f.Began)
		require.Less(t, shown, 8*time.Second)
		f.Expect("", "", "", "")
		require.Equal(t, 12*time.Second, (time.Since(f.Began) - shown).Round(2*time.Second))
		require.NoError(t, f.Response.Body.Close())
		f = n.Follow("?filter=_design")
		f.Expect(`{"results":[`, webtest.Changed("_design/x"), "", "")
		require.Equal(t, webtest.FeedTail, strings.TrimLeft(f.Rest(), "\n"))
	})
}

func TestFeedOfADeletedDatabase(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		feeds := map[string]*webtest.Feed{}
		for _, kind := range []string{"longpoll", "continuous", "eventsource"} {
			feeds[kind] = n.Follow("?since=now&heartbeat=50000&feed=" + kind)
		}
		time.Sleep(time.Second)
		require.NoError(t, db.Delete(t.Context()))
		require.Equal(t, "{\"results\":[\n\n"+webtest.FeedTail, feeds["longpoll"].Rest())
		require.Equal(t, webtest.FeedLast, feeds["continuous"].Rest())
		require.Equal(t, "\n", feeds["eventsource"].Rest())
		feeds["continuous"].After(time.Second)
	})
}

func TestFeedsEndWhenTheNodeDrains(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		waiting := n.Follow("?since=now&heartbeat=50000&feed=longpoll")
		time.Sleep(time.Second)
		n.connections.Drain()
		require.Equal(t, "{\"results\":[\n\n"+webtest.FeedTail, waiting.Rest())
		waiting.After(time.Second)
		webtest.Write(t, db, webtest.Doc("second", `{}`))
		// Feeds that are opened now get the changes that there are.
		f := n.Follow("?heartbeat=50000&feed=continuous&since=now")
		require.Equal(t, webtest.FeedLast, f.Rest())
		f = n.Follow("?heartbeat=50000&feed=continuous")
		f.Expect(webtest.Changed("first"))
		require.Equal(t, strings.Replace(webtest.FeedLast, `:0}`, `:1}`, 1), f.Rest())
		require.Equal(t, []string{"first", "second"}, n.changes("", "").ids(), "a feed that does not wait is whole")
	})
}

func TestEventSourceGoesOn(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		webtest.Write(t, db, webtest.Doc("second", `{}`))
		text := n.Get("/db/_changes?feed=eventsource&limit=1").Body
		id := strings.TrimPrefix(strings.Split(text, "\n")[1], "id: ")
		require.Regexp(t, `^"[1-9][0-9]*-[0-9a-f]{24}"$`, id)
		f := n.Follow("?feed=eventsource&since=0&limit=1", "Last-Event-ID", id)
		f.Expect("data: "+webtest.Changed("second"), `id: "..."`, "")
		require.Equal(t, "\n", f.Rest())
		f = n.Follow("?feed=continuous&limit=1", "Last-Event-ID", id)
		f.Expect(webtest.Changed("first")) // it is of event sources
		f = n.Follow("?feed=eventsource&limit=1&seq_interval=3")
		f.Expect(`data: {"seq":null,"id":"first"`, "") // without an id, so that a browser comes again with an earlier one
		require.Equal(t, "\n", f.Rest())
	})
}

func TestClientOfAFeedThatHangsUp(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		f := n.Follow("?feed=continuous&heartbeat=60000")
		f.Expect(webtest.Changed("first"))
		require.NoError(t, f.Response.Body.Close())
		n.Journal.Line(t, "the client hung up")
		require.EqualValues(t, 200, n.Journal.Line(t, `"path":"/db/_changes"`)["status"])
		require.NoError(t, db.Delete(t.Context()))
		lines, _ := n.Journal.Lines()
		require.NotContains(t, lines, `"level":"error"`)
	})
}

func TestClientOfAFeedThatDoesNotRead(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, _ *docstore.Database) {
		conn := n.Connect()
		began := time.Now()
		conn.Send("GET /db/_changes?feed=continuous&heartbeat=10000 HTTP/1.1\r\n" + webtest.RawHead + "\r\n")
		require.EqualValues(t, 200, n.Journal.Line(t, `"path":"/db/_changes"`)["status"])
		require.Equal(t, time.Minute, time.Since(began))
	})
}

func TestStoreThatFailsWhileAFeedWaits(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		store := enginetest.Control(webtest.Memory(t))
		n := startOn(t, store, webtest.ListenPipe())
		webtest.Write(t, n.NewDatabase("db"), webtest.Doc("first", `{}`))
		f := n.Follow("?feed=continuous&heartbeat=60000")
		f.Expect(webtest.Changed("first"))
		synctest.Wait()
		store.Fail(errors.New("broken"))
		_, err := io.ReadAll(f.Lines)
		require.Error(t, err, "an answer that is not whole does not look so")
		require.Contains(t, n.Journal.Line(t, "could not be finished")["reason"], "broken")
	})
}

func TestChangesBodyThatStandsStill(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, _ *docstore.Database) {
		conn := n.Connect()
		conn.Send("POST /db/_changes?filter=_doc_ids HTTP/1.1\r\n" + webtest.RawHead + "Content-Length: 21\r\n\r\n")
		for _, c := range `{"doc_ids":["firs` { // slow, but it comes
			time.Sleep(50 * time.Second)
			conn.Send(string(c))
		}
		began := time.Now()
		require.Equal(t, http.StatusRequestTimeout, conn.Status())
		require.Equal(t, time.Minute, time.Since(began))
	})
}
