package couch_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
)

func TestFeedGoesWrong(t *testing.T) {
	t.Parallel()
	row := `{"seq":1,"id":"x","changes":[{"rev":"1-a"}]}`
	for _, test := range []struct {
		name, body string
		feed       couch.Feed
		rows       int
		is         error
		says       string
	}{
		{name: "empty", body: "", is: io.ErrUnexpectedEOF, says: "the changes feed was cut"},
		{name: "HTML", body: "<html>", is: couch.ErrMalformed, says: `'<' at byte 0, where { should be`},
		{name: "no results", body: `{"last_seq":5}`, is: couch.ErrMalformed, says: "no results"},
		{name: "no last_seq", body: `{"results":[` + row + `]}`, rows: 1, is: couch.ErrMalformed, says: "no last_seq"},
		{name: "cut after a row", body: `{"results":[` + row, rows: 1, is: io.ErrUnexpectedEOF},
		{name: "cut in last_seq", body: `{"results":[` + row + `],"last_seq":5`, rows: 1, is: io.ErrUnexpectedEOF},
		{name: "no comma", body: `{"results":[` + row + row, rows: 1, is: couch.ErrMalformed, says: "a comma or ]"},
		{name: "comma too many", body: `{"results":[` + row + `,]`, rows: 1, is: couch.ErrMalformed},
		{name: "not UTF-8", body: "{\"results\":[{\"id\":\"\xff\"}]", is: couch.ErrMalformed, says: "not UTF-8"},
		{name: "not JSON", body: `{"results":[{"id":"x",}]`, is: couch.ErrMalformed, says: "not JSON"},
		{name: "brackets", body: `{"results":[` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000), is: couch.ErrMalformed},
		{name: "a late error", body: `{"results":[` + "\n" + row + "\n" + `{"error":"internal_server_error","reason":"No DB shards could be opened."}`,
			rows: 1, says: "internal_server_error: No DB shards could be opened.: reading the changes feed: the server gave up"},
		{name: "a late error at the end", body: `{"results":[` + row + `],"error":"timeout"}`, rows: 1, says: "timeout: reading the changes feed"},

		{name: "cut", feed: couch.FeedContinuous, body: row + "\n", rows: 1, is: io.ErrUnexpectedEOF},
		{name: "cut in a row", feed: couch.FeedContinuous, body: row + "\n" + row[:20], rows: 1, is: io.ErrUnexpectedEOF},
		{name: "a late error", feed: couch.FeedContinuous, body: row + "\n" + `{"error":"not_found","reason":"no_db_file"}`, rows: 1,
			says: "not_found: no_db_file"},
	} {
		t.Run(string(test.feed)+" "+test.name, func(t *testing.T) {
			t.Parallel()
			db := saying(t, "application/json", test.body)
			rows, err := rowsUntil(t, db, couch.ChangesOptions{Feed: test.feed})
			require.Len(t, rows, test.rows)
			require.Error(t, err)
			require.NotEqual(t, io.EOF, err)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
			require.ErrorContains(t, err, test.says)
			require.ErrorContains(t, err, "/db/_changes")
		})
	}
}

// A row that is not understood does not end the feed.
func TestUnclearRows(t *testing.T) {
	t.Parallel()
	const row = `{"seq":9,"id":"y","changes":[{"rev":"1-a"}]}`
	for name, test := range map[string]struct{ row, id, seq, says string }{
		"no id":               {`{"seq":1}`, "", "1", "a row without an id"},
		"no revision":         {`{"seq":1,"id":"x","changes":[]}`, "x", "1", `the row of "x" has no revision`},
		"no changes":          {`{"seq":1,"id":"x"}`, "x", "1", `the row of "x" has no revision`},
		"id is a number":      {`{"id":1,"seq":1}`, "", "1", "member id"},
		"changes are numbers": {`{"id":"x","changes":[1],"seq":1}`, "x", "1", `row of "x", member changes`},
		"deleted is a text":   {`{"seq":1,"id":"x","deleted":"yes"}`, "x", "1", "member deleted"},
		"a number":            {`7`, "", "", "not an object"},
		"an array":            {`[]`, "", "", "not an object"},
		"too large":           {`{"seq":1,"id":"x","changes":[` + strings.Repeat(`{"rev":"1-0123456789012345678901234567890"},`, 400_000) + `{"rev":"1-a"}]}`, "x", "1", "larger than this client takes"},
	} {
		for feed, body := range map[couch.Feed]string{
			couch.FeedNormal:     `{"results":[` + test.row + `,` + row + `],"last_seq":9}`,
			couch.FeedContinuous: test.row + "\n" + row + "\n" + `{"last_seq":9}`,
		} {
			t.Run(name+" "+string(feed), func(t *testing.T) {
				t.Parallel()
				rows, err := rowsUntil(t, saying(t, "application/json", body), couch.ChangesOptions{Feed: feed})
				require.Equal(t, io.EOF, err)
				require.Len(t, rows, 2)
				require.ErrorContains(t, rows[0].Err, test.says)
				require.ErrorContains(t, rows[0].Err, "/db/_changes")
				require.Equal(t, test.id, rows[0].ID)
				require.Equal(t, test.seq, string(rows[0].Seq))
				require.Empty(t, rows[0].Revs)
				require.Equal(t, "y", rows[1].ID)
				require.NoError(t, rows[1].Err)
			})
		}
	}
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		_, err := rowsUntil(t, saying(t, "application/json", `{"results":[`+strings.Repeat("7,", 200)+row), couch.ChangesOptions{})
		require.ErrorContains(t, err, "not an object")
	})
}

// TestFeedTorn resets the connection in the middle of a feed.
func TestFeedTorn(t *testing.T) {
	t.Parallel()
	for _, feed := range []couch.Feed{couch.FeedNormal, couch.FeedContinuous} {
		received := make(chan struct{})
		db := serving(t, func(w http.ResponseWriter, r *http.Request) {
			if feed == couch.FeedNormal {
				_, _ = io.WriteString(w, `{"results":[`)
			}
			_, _ = io.WriteString(w, `{"seq":1,"id":"x","changes":[{"rev":"1-a"}]}`)
			flush(w)
			<-received
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
		})
		changes, err := db.Changes(t.Context(), couch.ChangesOptions{Feed: feed})
		require.NoError(t, err)
		_, err = changes.Next()
		require.NoError(t, err)
		close(received)
		_, err = changes.Next()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.ErrorContains(t, err, "the changes feed was cut")
		require.NoError(t, changes.Close())
	}
}

func TestFeedsOfOtherServers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, body string
		feed       couch.Feed
		seqs       []string
		last       string
		pending    int64
	}{
		{
			name: "arrays and nulls", last: `[12,"g1"]`, pending: -1, seqs: []string{`[11,"g1"]`, "", "1.0"},
			body: `{"results":[{"seq":[11,"g1"],"id":"a","changes":[{"rev":"1-a"}]},{"seq":null,"id":"b","changes":[{"rev":"1-a"}]},` +
				`{"seq":1.0,"id":"c","changes":[{"rev":"1-a","more":{}}],"doc":{"x":[1]}}],"last_seq":[12,"g1"],"pending":null}`,
		},
		{
			name: "the tail first", last: `"5-x"`, pending: 3, seqs: []string{`"5-x"`},
			body: `{"pending":3,"last_seq":"5-x","new":{"a":[]},"results":[{"seq":"5-x","id":"a","changes":[{"rev":"1-a"}]}]}`,
		},
		{
			name: "continuous with an end", feed: couch.FeedContinuous, last: `"6-x"`, pending: 0, seqs: []string{`"5-x"`},
			body: "\n\n" + `{"seq":"5-x","id":"a","changes":[{"rev":"1-a"}]}` + "\n\n" + `{"last_seq":"6-x","pending":0}` + "\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			rows, feed := allRows(t, saying(t, "text/plain", test.body), couch.ChangesOptions{Feed: test.feed})
			var seqs []string
			for _, row := range rows {
				seqs = append(seqs, string(row.Seq))
			}
			require.Equal(t, test.seqs, seqs)
			require.Equal(t, test.last, string(feed.LastSeq()))
			pending, ok := feed.Pending()
			require.Equal(t, test.pending >= 0, ok)
			if ok {
				require.Equal(t, test.pending, pending)
			}
		})
	}
}

func TestFeedOptions(t *testing.T) {
	t.Parallel()
	db := open(t, "http://127.0.0.1:1/db", noRetries)
	for _, o := range []couch.ChangesOptions{
		{DocIDs: []string{"x"}, Filter: "f/x"},
		{DocIDs: []string{"x"}, Selector: raw("{}")},
		{Selector: raw("{")},
		{Since: raw("5-x")},
		{Limit: -1},
		{Heartbeat: -time.Second},
	} {
		_, err := db.Changes(t.Context(), o)
		require.ErrorContains(t, err, "changes feed: ")
	}
}

// Old releases of CouchDB accepted a document with an empty id.
func TestARowMayHaveAnEmptyID(t *testing.T) {
	t.Parallel()
	db := saying(t, "application/json", `{"results":[{"seq":1,"id":"","changes":[{"rev":"1-a"}]}],"last_seq":1}`)
	rows, err := rowsUntil(t, db, couch.ChangesOptions{})
	require.Equal(t, io.EOF, err)
	require.Len(t, rows, 1)
	require.Empty(t, rows[0].ID)
	require.Equal(t, []string{"1-a"}, rows[0].Revs)
}
