package databases_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/pkg/docstore"
)

// asTime returns a time in the form of the parameter since.
func asTime(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05Z") }

func TestChangesSinceATime(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		began := time.Now()
		time.Sleep(time.Minute)
		webtest.Write(t, db, webtest.Doc("second", `{}`))
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

		f, g := n.Follow("?feed=continuous&since="+past), n.Follow("?feed=continuous&since="+future)
		h := n.Follow("?feed=eventsource", "Last-Event-Id", past)
		w := n.Follow("?feed=longpoll&since=" + future)
		f.Expect(webtest.Changed("second"))
		h.Expect("data: " + webtest.Changed("second"))
		w.Expect(`{"results":[`)
		synctest.Wait()
		time.Sleep(10 * time.Second)
		webtest.Write(t, db, webtest.Doc("third", `{}`))
		f.Expect(webtest.Changed("third"))
		g.Expect(webtest.Changed("third"))
		w.Expect(webtest.Changed("third"))
	})
}

func TestUpdatesSinceATime(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, _ *docstore.Database) {
		time.Sleep(time.Minute)
		began := time.Now()
		n.NewDatabase("other")
		time.Sleep(time.Hour)
		f := n.updates("?since=" + asTime(began))
		f.Expect(`{"results":[`, updated("other", "created"))
		require.Equal(t, updatesTail, f.Rest())
		for _, query := range []string{"?since=2099-01-01T00:00:00Z", "?feed=longpoll&timeout=100&since=2099-01-01T00:00:00Z"} {
			require.Equal(t, "{\"results\":[\n\n"+updatesTail, n.updates(query).Rest(), query)
		}
		f = n.updates("?feed=continuous&since=1969-01-01T00:00:00Z")
		f.Expect(updated("db", "created"), updated("db", "updated"), updated("other", "created"))
		webtest.Refused(t, n.Get("/_db_updates?since=2026-13-01T00:00:00Z"), http.StatusBadRequest, "bad_request", "invalid_time_format")
		require.Equal(t, http.StatusOK, n.Get("/_db_updates?descending=true&since=nowhere").Status)
	})
}

func TestTimeSeq(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		const form = `{"time_seq":{"00000000-ffffffff":{"node1.example":[%s]}}}` + "\n"
		require.Equal(t, fmt.Sprintf(form, `["2000-01-01T00:00:00Z",1]`), n.Get("/db/_time_seq").Body)
		time.Sleep(4 * time.Hour)
		webtest.Write(t, db, webtest.Doc("second", `{}`))
		webtest.Write(t, db, webtest.Doc("third", `{}`))
		want := fmt.Sprintf(form, `["2000-01-01T00:00:00Z",1],["2000-01-01T03:00:00Z",2]`)
		require.Equal(t, want, n.Get("/db/_time_seq").Body)
		require.Empty(t, n.Do(http.MethodHead, "/db/_time_seq", "").Is(t, http.StatusOK).Body)
		require.JSONEq(t, `{"ok":true}`, n.Do(http.MethodDelete, "/db/_time_seq", "").Is(t, http.StatusOK).Body)
		require.Equal(t, want, n.Get("/db/_time_seq").Body, "it follows from the changes")
		for _, method := range []string{http.MethodPost, http.MethodPut, "COPY"} {
			got := n.Do(method, "/db/_time_seq", "")
			webtest.Refused(t, got, http.StatusMethodNotAllowed, "method_not_allowed", "Only DELETE,GET,HEAD allowed")
			require.Equal(t, "DELETE,GET,HEAD", got.Header.Get("Allow"))
		}
		n.NewDatabase("empty")
		require.Equal(t, fmt.Sprintf(form, ""), n.Get("/empty/_time_seq").Body)
		webtest.Refused(t, n.Get("/none/_time_seq"), http.StatusNotFound, "not_found", "Database does not exist.")
	})
}
