package watch_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

// parkChildren adds a mirror and parks its jobs for some databases, whose `_security` objects the target has.
func (l *lab) parkChildren(login string, databases ...string) (ids map[string]string) {
	l.Helper()
	_, ids = l.parkChildrenOf(login, databases...)
	return ids
}

// parkChildrenOf is parkChildren, and also returns the run of the mirror.
func (l *lab) parkChildrenOf(login string, databases ...string) (mirror *jobs.Run, ids map[string]string) {
	l.Helper()
	text := `{"source":"http://` + login + `@a.example/","target":"http://b.example/","continuous":true,"mirror":{}}`
	request, err := replicator.ParseRequest([]byte(text), replicator.ParseOptions{})
	require.NoError(l, err)
	_, err = l.jobs.Requests.Replicate(l.Context(), request.Replication, nil)
	require.NoError(l, err)
	mirror = l.accept()
	require.NoError(l, jobs.MirrorRun{Run: mirror}.AddDatabases(l.Context(), databases, 0))
	n, err := jobs.MirrorRun{Run: mirror}.StartDatabases(l.Context(), len(databases))
	require.NoError(l, err)
	require.Equal(l, len(databases), n)
	ids = map[string]string{}
	for range databases {
		run := l.accept()
		database := run.Job().Args.MirroredDatabase
		ids[database] = run.Job().ID
		l.parkChild(run)
	}
	return mirror, ids
}

// parkChild parks the job of a mirror's database after a run that has compared its `_security` object.
func (l *lab) parkChild(run *jobs.Run) {
	l.Helper()
	database := run.Job().Args.MirroredDatabase
	seq := `"` + l.source.seq(database) + `"`
	require.NoError(l, run.Parking(l.Context(), replicator.Parked{Server: server, Database: database, UpdateSeq: seq}))
	l.source.mu.Lock()
	object := l.source.security[database]
	l.source.mu.Unlock()
	_, err := run.Park(l.Context(), func(state *replicator.JobState) {
		state.CheckpointedSourceSeq = []byte(seq)
		state.Security = worker.SecurityDigest(json.RawMessage(object))
	})
	require.NoError(l, err)
}

// A job of a mirror learns within max_idle_sec that the `_security` object of its source has changed, whatever kind of server
// that is, and whatever wakes its jobs.
func TestChangedSecurityWakes(t *testing.T) {
	for name, test := range map[string]struct {
		login          string
		other, digests bool
		look           string // a request for the object
	}{
		"CouchDB with a feed":        {"root:s3cret", false, false, "root GET /db/_security"},
		"settee with a feed":         {"root:s3cret", true, true, "root GET /db/_security"},
		"another server with a feed": {"root:s3cret", true, false, "root GET /db/_security"},
		"CouchDB without a feed":     {"ann:pw", false, false, "ann GET /db/_security"},
		"another one without a feed": {"ann:pw", true, false, "ann GET /db/_security"},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.source.set(func() { l.source.other, l.source.digests = test.other, test.digests })
				l.source.write("db", "still")
				l.source.secure("db", `{"admins":{"names":["a"]}}`)
				l.source.secure("still", `{}`)
				plain := l.park("ann", "still")
				ids := l.parkChildren(test.login, "db", "still")
				n := l.start()
				if test.login == "ann:pw" {
					l.until(n.asks(1))
				} else {
					l.until(n.follows(1))
				}
				l.sleeps(time.Minute, plain, ids["db"], ids["still"])
				l.source.requests("")
				l.source.secure("db", `{"admins":{"names":["b"]}}`)
				took, run := l.woken(ids["db"])
				require.LessOrEqual(t, took, worker.SecurityEvery)
				l.parkChild(run)
				require.LessOrEqual(t, len(l.source.requests(test.look)), 2)

				l.sleeps(32*time.Minute, plain, ids["db"], ids["still"])
				looks := len(l.source.requests(test.look))
				require.LessOrEqual(t, looks, 9)
				switch {
				case test.digests:
					require.Zero(t, looks, "it has told the digest")
				case test.login == "ann:pw" || test.other:
					require.GreaterOrEqual(t, looks, 5)
				}
			})
		})
	}
}

// A source that does not let its object be read wakes the job, so that its run says so.
func TestRefusedSecurityWakes(t *testing.T) {
	for _, login := range []string{"root:s3cret", "ann:pw"} {
		t.Run(login, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.source.write("db")
				l.source.secure("db", `{}`)
				id := l.parkChildren(login, "db")["db"]
				l.source.secure("db", `{"x":1}`)
				l.source.set(func() { l.source.status["/db/_security"] = 403 })
				l.start()
				took, _ := l.woken(id)
				require.LessOrEqual(t, took, worker.SecurityEvery)
			})
		})
	}
}
