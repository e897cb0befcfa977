package watch_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/jobs"
)

// waitFor waits until something is so.
func waitFor(t *testing.T, l *lab, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not %s; the log: %s", what, l.log.String())
		}
	}
}

// A real CouchDB, whose sources are asked by a plain user while there is no database of updates, and which is followed by
// its administrator as soon as there is one.
func TestLiveCouchDB(t *testing.T) {
	t.Parallel()
	peer := couchtest.StartCouchDB(t, nil)
	put := func(path, body string) { peer.Do(t, http.MethodPut, path, []byte(body), http.StatusCreated) }
	put("/_users/org.couchdb.user:ann", `{"name":"ann","password":"pw","roles":[],"type":"user"}`)
	for _, db := range []string{"/one", "/two", "/three"} {
		put(db, "")
		peer.Do(t, http.MethodPut, db+"/_security", []byte(`{"members":{"names":["ann"],"roles":[]}}`), http.StatusOK)
	}
	l := newLab(t, newSource(t), http.DefaultTransport)
	at := peer.URL + "/"
	seq := func(database string) string {
		var info couch.Info
		require.NoError(t, json.Unmarshal(peer.Do(t, http.MethodGet, "/"+database, nil, http.StatusOK), &info))
		return string(info.UpdateSeq)
	}
	parkAs := func(user, password, database string) string {
		text := `{"source":"` + strings.Replace(at, "://", "://"+user+":"+password+"@", 1) + database +
			`","target":"http://b.example/` + user + database + `","continuous":true}`
		request, err := replicator.ParseRequest([]byte(text), replicator.ParseOptions{})
		require.NoError(t, err)
		_, err = l.jobs.Requests.Replicate(t.Context(), request.Replication, nil)
		require.NoError(t, err)
		run := l.accept()
		l.parkRun(run, at, database, seq(database))
		return run.Job().ID
	}
	// CouchDB answers the request for a feed when it has something to send, at the latest with the first heartbeats.
	put("/other", "")
	writes := func(done func() bool) func() bool {
		written := time.Now()
		return func() bool {
			if time.Since(written) > time.Second {
				written = time.Now()
				peer.Do(t, http.MethodPost, "/other", []byte("{}"), http.StatusCreated)
			}
			return done()
		}
	}
	// changes writes a document, and waits for the job that it wakes.
	documents := 0
	changes := func(database, id string) (time.Duration, *jobs.Run) {
		documents++
		began := time.Now()
		put("/"+database+"/d"+strings.Repeat("x", documents), "{}")
		run := l.accept()
		require.Equal(t, id, run.Job().ID)
		return time.Since(began), run
	}

	one, two, three := parkAs("ann", "pw", "one"), parkAs("ann", "pw", "two"), parkAs("ann", "pw", "three")
	n := l.startOn(l.db)
	waitFor(t, l, "asking", n.asks(1))
	require.Contains(t, l.log.String(), `for the user \"ann\", which requires an administrator of the server`)
	took, _ := changes("one", one)
	t.Log("by a question:", took)
	require.EqualValues(t, 1, n.Counts().WakesQuestion)

	// An administrator alone is not enough.
	l.set("replicator.watches/" + at + "=" + peer.Username + ":" + peer.Password)
	waitFor(t, l, "asking for another reason", func() bool {
		return strings.Contains(l.log.String(), "has no database _global_changes; an administrator can create it")
	})
	put("/_global_changes", "")
	l.set()
	waitFor(t, l, "without a login", func() bool { return strings.Count(l.log.String(), "for the user") == 2 })
	l.set("replicator.watches/" + at + "=" + peer.Username + ":" + peer.Password)
	waitFor(t, l, "following", writes(n.follows(1)))
	for wakes := int64(1); ; wakes++ {
		took, run := changes("two", two)
		waitFor(t, l, "counted", func() bool { c := n.Counts(); return c.WakesFeed+c.WakesSafety >= wakes })
		if n.Counts().WakesFeed > 0 {
			t.Log("by the feed:", took)
			break
		}
		for l.tryToPark(run, at, "two", seq("two")) { // the comparison with which a feed begins has found the change first
			run = l.accept()
		}
	}
	require.EqualValues(t, 1, n.Counts().WakesQuestion)
	require.Zero(t, n.Counts().FeedFailures)

	// The database of updates is made anew, and something happens in between.
	peer.Do(t, http.MethodDelete, "/_global_changes", nil, http.StatusOK)
	put("/three/lost", "{}")
	put("/_global_changes", "")
	woken := make(chan []*jobs.Run, 1)
	go func() {
		runs, _ := l.jobs.Runs.Accept(t.Context(), 1, nil) // without runs, the test fails
		woken <- runs
	}()
	waitFor(t, l, "woken", writes(func() bool { return len(woken) > 0 }))
	runs := <-woken
	require.Len(t, runs, 1)
	require.Equal(t, three, runs[0].Job().ID)
	n.stop()
}

// A feed over real sockets that the server drops is opened again where it was.
func TestLiveDroppedFeed(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	l := newLab(t, s, transport)
	s.write("db", "two")
	id := l.parkAt(server.URL+"/", "root", "db")
	n := l.start()
	waitFor(t, l, "following", func() bool { return s.open() == 1 })
	for range 3 {
		server.CloseClientConnections()
		waitFor(t, l, "dropped", func() bool { return s.open() == 0 })
		s.write("db")
		for woken := true; woken; { // the feed may name the database after the first comparison has found the change
			run := l.accept()
			require.Equal(t, id, run.Job().ID)
			woken = l.tryToPark(run, server.URL+"/", "db", `"`+s.seq("db")+`"`)
		}
	}
	n.stop()
	require.Zero(t, n.Counts().WakesQuestion)
}
