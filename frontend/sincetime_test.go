package frontend_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
)

// asTime returns a time in the form of the parameter since.
func asTime(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05Z") }

func TestChangesSinceATime(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		began := time.Now()
		time.Sleep(time.Minute)
		write(t, db, doc("second", `{}`))
		time.Sleep(time.Hour)
		all := n.changes("", "")
		require.Equal(t, []string{"first", "second"}, all.ids())
		past, future := asTime(began.Add(30*time.Second)), asTime(time.Now().Add(time.Hour))
		for query, want := range map[string][]string{
			"since=1969-01-01T00:00:00Z": {"first", "second"}, "since=" + asTime(began): {"first", "second"},
			"since=" + past: {"second"}, "last-event-id=" + past: {"second"}, "since=" + past + "&include_docs=true&style=all_docs": {"second"},
			"since=" + future: {}, "since=" + past + "&limit=0": {}, "since=" + past + "&feed=longpoll": {"second"},
			"since=" + past + "&descending=true": {"second", "first"}, "since=2026-13-01T00:00:00Z&descending=true": {"second", "first"},
			"since=" + future + "&feed=longpoll&timeout=100": {},
		} {
			require.Equal(t, want, n.changes("?"+query, "").ids(), query)
		}
		end := n.changes("?since="+future, "")
		require.Equal(t, all.LastSeq, end.LastSeq)
		require.Equal(t, 0, *end.Pending)
		require.Equal(t, 1, *n.changes("?limit=0&since="+past, "").Pending)
		require.Equal(t, []string{"second"}, n.changes("?filter=_doc_ids&since="+past, `{"doc_ids":["first","second"]}`).ids())
		require.Empty(t, n.changes("?filter=_doc_ids&since="+past, `{"doc_ids":["first"]}`).ids())

		f, g := n.follow("?feed=continuous&since="+past), n.follow("?feed=continuous&since="+future)
		h := n.follow("?feed=eventsource", "Last-Event-Id", past)
		w := n.follow("?feed=longpoll&since=" + future)
		f.expect(changed("second"))
		h.expect("data: " + changed("second"))
		w.expect(`{"results":[`)
		synctest.Wait()
		time.Sleep(10 * time.Second)
		write(t, db, doc("third", `{}`))
		f.expect(changed("third"))
		g.expect(changed("third"))
		w.expect(changed("third"))
	})
}

func TestUpdatesSinceATime(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, _ *docstore.Database) {
		time.Sleep(time.Minute)
		began := time.Now()
		n.newDatabase("other")
		time.Sleep(time.Hour)
		f := n.updates("?since=" + asTime(began))
		f.expect(`{"results":[`, updated("other", "created"))
		require.Equal(t, updatesTail, f.rest())
		for _, query := range []string{"?since=2099-01-01T00:00:00Z", "?feed=longpoll&timeout=100&since=2099-01-01T00:00:00Z"} {
			require.Equal(t, "{\"results\":[\n\n"+updatesTail, n.updates(query).rest(), query)
		}
		f = n.updates("?feed=continuous&since=1969-01-01T00:00:00Z")
		f.expect(updated("db", "created"), updated("db", "updated"), updated("other", "created"))
		refused(t, n.get("/_db_updates?since=2026-13-01T00:00:00Z"), http.StatusBadRequest, "bad_request", "invalid_time_format")
		require.Equal(t, http.StatusOK, n.get("/_db_updates?descending=true&since=nowhere").status)
	})
}

func TestTimeSeq(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		const form = `{"time_seq":{"00000000-ffffffff":{"node1.example":[%s]}}}` + "\n"
		require.Equal(t, fmt.Sprintf(form, `["2000-01-01T00:00:00Z",1]`), n.get("/db/_time_seq").body)
		time.Sleep(4 * time.Hour)
		write(t, db, doc("second", `{}`))
		write(t, db, doc("third", `{}`))
		want := fmt.Sprintf(form, `["2000-01-01T00:00:00Z",1],["2000-01-01T03:00:00Z",2]`)
		require.Equal(t, want, n.get("/db/_time_seq").body)
		require.Empty(t, n.do(http.MethodHead, "/db/_time_seq", "").is(t, http.StatusOK).body)
		require.JSONEq(t, `{"ok":true}`, n.do(http.MethodDelete, "/db/_time_seq", "").is(t, http.StatusOK).body)
		require.Equal(t, want, n.get("/db/_time_seq").body, "it follows from the changes")
		for _, method := range []string{http.MethodPost, http.MethodPut, "COPY"} {
			got := n.do(method, "/db/_time_seq", "")
			refused(t, got, http.StatusMethodNotAllowed, "method_not_allowed", "Only DELETE,GET,HEAD allowed")
			require.Equal(t, "DELETE,GET,HEAD", got.header.Get("Allow"))
		}
		n.newDatabase("empty")
		require.Equal(t, fmt.Sprintf(form, ""), n.get("/empty/_time_seq").body)
		refused(t, n.get("/none/_time_seq"), http.StatusNotFound, "not_found", "Database does not exist.")
	})
}
