package frontend_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
)

// updates opens a feed of _db_updates.
func (n *node) updates(query string) *feed {
	n.Helper()
	return n.openAt(http.MethodGet, "/_db_updates"+query, "")
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
	db := n.newDatabase("wa")
	write(t, db, doc("a", `{}`))
	n.newDatabase("wb")
	n.do(http.MethodDelete, "/wb", "").is(t, http.StatusOK)
	normal, limited, timedOut := recorded(t, 115), recorded(t, 116), recorded(t, 119)
	for e, rows := range map[*exchange][]string{
		&normal:   {updated("wa", "created"), updated("wa", "updated"), updated("wb", "deleted")},
		&limited:  {updated("wb", "deleted"), updated("wa", "updated")},
		&timedOut: nil,
	} {
		got := n.send(*e)
		n.requireSame(*e, got, sameHead)
		before, after, _ := strings.Cut(anySequence(e.answer.body), "\n")
		tail := after[strings.LastIndex(after, "\n]"):] // what is around the rows is the same to the byte
		require.Equal(t, before+"\n"+strings.Join(rows, ",\r\n")+tail, anySequence(got.body), e.target)
	}
	for _, number := range []int{121, 122} {
		n.requireSame(recorded(t, number), n.send(recorded(t, number)), sameText)
	}
	require.Contains(t, recorded(t, 115).answer.body, ",\r\n{", "the rows of CouchDB are separated like this")
}

func TestUpdatesOfDatabases(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
		f := n.updates("?feed=continuous&heartbeat=10000")
		f.expect(updated("db", "created"), updated("db", "updated"))
		synctest.Wait()
		time.Sleep(10 * time.Second)
		f.expect("") // a heartbeat
		write(t, db, doc("second", `{}`))
		f.expect(updated("db", "updated"))
		n.newDatabase("other")
		f.expect(updated("other", "created"))
		n.do(http.MethodDelete, "/other", "").is(t, http.StatusOK)
		f.expect(updated("other", "deleted"))

		g := n.updates("?feed=longpoll&since=now")
		g.expect(`{"results":[`)
		synctest.Wait()
		time.Sleep(40 * time.Second)
		write(t, db, doc("third", `{}`))
		g.expect(updated("db", "updated"))
		require.Equal(t, updatesTail, g.rest())
		g.after(40 * time.Second)

		h := n.updates("?feed=eventsource&timeout=1500")
		h.expect("data: "+updated("db", "created"), `id: "..."`, "", "data: "+updated("other", "deleted"))
	})
}

func TestUpdatesTimeOut(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, _ *docstore.Database) {
		f := n.updates("?feed=longpoll&since=now&timeout=1500")
		require.Equal(t, "{\"results\":[\n\n"+updatesTail, f.rest())
		f.after(1500 * time.Millisecond)
		f = n.updates("?feed=continuous&since=now&timeout=1500")
		require.Equal(t, "{\"last_seq\":\"...\"}\n\n", f.rest())
		f.after(1500 * time.Millisecond)
	})
}

// TestUpdatesContinue reads pages, each from the end of the one before.
func TestUpdatesContinue(t *testing.T) {
	t.Parallel()
	n := start(t)
	var names []string
	for i := range 7 {
		names = append(names, fmt.Sprintf("db%d", i))
		n.newDatabase(names[i])
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
		got := n.get("/_db_updates?limit=3&since="+since).is(t, http.StatusOK)
		require.NoError(t, json.Unmarshal([]byte(got.body), &page))
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
		refused(t, n.get("/_db_updates"+query), http.StatusBadRequest, "bad_request", "invalid_integer") // as CouchDB does
	}
	got := n.get("/_db_updates")
	require.Equal(t, http.StatusNotModified, n.do(http.MethodGet, "/_db_updates", "", "If-None-Match", got.header.Get("ETag")).status)
	require.Equal(t, http.StatusMethodNotAllowed, n.do(http.MethodPost, "/_db_updates", "{}").status)
}

// TestGlobalChanges: programs that set up a CouchDB make this database, which the feed does not need.
func TestGlobalChanges(t *testing.T) {
	t.Parallel()
	n := start(t)
	require.Equal(t, http.StatusCreated, n.do(http.MethodPut, "/_global_changes", "").status)
	require.Equal(t, http.StatusOK, n.get("/_global_changes").status)
}
