package databases_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/pkg/docstore"
)

// updates opens a feed of _db_updates.
func (n *node) updates(query string) *webtest.Feed {
	n.Helper()
	return n.OpenAt(http.MethodGet, "/_db_updates"+query, "")
}

func updated(name, kind string) string {
	return fmt.Sprintf(`{"db_name":"%s","type":"%s","seq":"..."}`, name, kind)
}

// updatesTail is the end of a feed that is one object.
const updatesTail = "],\n\"last_seq\":\"...\"}\n\n"

// TestRecordedUpdates compares with what CouchDB 3.5 has answered.
func TestRecordedUpdates(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("wa")
	webtest.Write(t, db, webtest.Doc("a", `{}`))
	n.NewDatabase("wb")
	n.Do(http.MethodDelete, "/wb", "").Is(t, http.StatusOK)
	normal, limited, timedOut := webtest.Recorded(t, 115), webtest.Recorded(t, 116), webtest.Recorded(t, 119)
	for e, rows := range map[*webtest.Exchange][]string{
		&normal:   {updated("wa", "created"), updated("wa", "updated"), updated("wb", "deleted")},
		&limited:  {updated("wb", "deleted"), updated("wa", "updated")},
		&timedOut: nil,
	} {
		got := n.Send(*e)
		n.RequireSame(*e, got, webtest.SameHead)
		before, after, _ := strings.Cut(webtest.AnySequence(e.Answer.Body), "\n")
		tail := after[strings.LastIndex(after, "\n]"):] // what is around the rows is the same to the byte
		require.Equal(t, before+"\n"+strings.Join(rows, ",\r\n")+tail, webtest.AnySequence(got.Body), e.Target)
	}
	for _, number := range []int{121, 122} {
		n.RequireSame(webtest.Recorded(t, number), n.Send(webtest.Recorded(t, number)), webtest.SameText)
	}
	require.Contains(t, webtest.Recorded(t, 115).Answer.Body, ",\r\n{", "the rows of CouchDB are separated like this")
}

func TestUpdatesOfDatabases(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		f := n.updates("?feed=continuous&heartbeat=10000")
		f.Expect(updated("db", "created"), updated("db", "updated"))
		synctest.Wait()
		time.Sleep(10 * time.Second)
		f.Expect("") // a heartbeat
		webtest.Write(t, db, webtest.Doc("second", `{}`))
		f.Expect(updated("db", "updated"))
		n.NewDatabase("other")
		f.Expect(updated("other", "created"))
		n.Do(http.MethodDelete, "/other", "").Is(t, http.StatusOK)
		f.Expect(updated("other", "deleted"))

		g := n.updates("?feed=longpoll&since=now")
		g.Expect(`{"results":[`)
		synctest.Wait()
		time.Sleep(40 * time.Second)
		webtest.Write(t, db, webtest.Doc("third", `{}`))
		g.Expect(updated("db", "updated"))
		require.Equal(t, updatesTail, g.Rest())
		g.After(40 * time.Second)

		h := n.updates("?feed=eventsource&timeout=1500")
		h.Expect("data: "+updated("db", "created"), `id: "..."`, "", "data: "+updated("other", "deleted"))
	})
}

func TestUpdatesTimeOut(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, _ *docstore.Database) {
		f := n.updates("?feed=longpoll&since=now&timeout=1500")
		require.Equal(t, "{\"results\":[\n\n"+updatesTail, f.Rest())
		f.After(1500 * time.Millisecond)
		f = n.updates("?feed=continuous&since=now&timeout=1500")
		require.Equal(t, "{\"last_seq\":\"...\"}\n\n", f.Rest())
		f.After(1500 * time.Millisecond)
	})
}

// TestUpdatesContinue reads pages, each from the end of the one before.
func TestUpdatesContinue(t *testing.T) {
	t.Parallel()
	n := start(t)
	var names []string
	for i := range 7 {
		names = append(names, fmt.Sprintf("db%d", i))
		n.NewDatabase(names[i])
	}
	since, found := "0", []string{}
	for {
		var page struct {
			Results []struct {
				Name string `json:"db_name"`
				Seq  string
			}
			LastSeq string `json:"last_seq"`
		}
		got := n.Get("/_db_updates?limit=3&since="+since).Is(t, http.StatusOK)
		require.NoError(t, json.Unmarshal([]byte(got.Body), &page))
		if len(page.Results) == 0 {
			require.Equal(t, since, page.LastSeq)
			break
		}
		for _, row := range page.Results {
			require.Regexp(t, `^[0-9]+-[0-9a-f]+$`, row.Seq)
			found = append(found, row.Name)
		}
		since = page.LastSeq
	}
	require.Equal(t, names, found)
	for _, query := range []string{"?limit=x", "?limit=-1", "?limit=", "?feed=longpoll&timeout=x", "?timeout=-1"} {
		webtest.Refused(t, n.Get("/_db_updates"+query), http.StatusBadRequest, "bad_request", "invalid_integer") // as CouchDB does
	}
	got := n.Get("/_db_updates")
	require.Equal(t, http.StatusNotModified, n.Do(http.MethodGet, "/_db_updates", "", "If-None-Match", got.Header.Get("ETag")).Status)
	require.Equal(t, http.StatusMethodNotAllowed, n.Do(http.MethodPost, "/_db_updates", "{}").Status)
}

// TestGlobalChanges: programs that set up a CouchDB make this database, which the feed does not need.
func TestGlobalChanges(t *testing.T) {
	t.Parallel()
	n := start(t)
	require.Equal(t, http.StatusCreated, n.Do(http.MethodPut, "/_global_changes", "").Status)
	require.Equal(t, http.StatusOK, n.Get("/_global_changes").Status)
}
