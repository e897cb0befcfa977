package watch_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
	"settee/replicator"
	"settee/replicator/jobs"
)

// Two looks at the targets, and what their questions take.
const twoLooks = 11 * time.Minute

// login returns a user's part of a URL of a server.
func (s *source) login(user string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return user + ":" + s.admins[user] + s.readers[user] + "@"
}

// parkInto parks a job with a user of the source whose target is a database of b.example, with a user there. It has noted what
// the target is now.
func (l *lab) parkInto(user, database, targetUser, target string) string {
	l.Helper()
	l.target.mu.Lock()
	at := replicator.ParkedTarget{Server: "http://b.example/", Database: target, Instance: l.target.created[target]}
	if l.target.uuid != "" {
		at.Identity = l.target.uuid + " " + l.target.vendor
	}
	l.target.mu.Unlock()
	return l.parkTarget(user, database, "http://"+l.target.login(targetUser)+"b.example/"+target, at)
}

// parkTarget parks a job that has noted its target.
func (l *lab) parkTarget(user, database, target string, at replicator.ParkedTarget) string {
	l.Helper()
	request, err := replicator.ParseRequest(fmt.Appendf(nil, `{"source":"http://%sa.example/%s","target":%q,"continuous":true}`,
		l.source.login(user), database, target), replicator.ParseOptions{})
	require.NoError(l, err)
	_, err = l.jobs.Requests.Replicate(l.Context(), request.Replication, l.user)
	require.NoError(l, err)
	run := l.accept()
	l.parkNoted(run, database, at)
	return run.Job().ID
}

// parkNoted parks the job of a run that has noted its target.
func (l *lab) parkNoted(run *jobs.Run, database string, at replicator.ParkedTarget) {
	l.Helper()
	seq := `"` + l.source.seq(database) + `"`
	require.NoError(l, run.Parking(l.Context(), replicator.Parked{Server: server, Database: database, UpdateSeq: seq, Target: at}))
	woken, err := run.Park(l.Context(), func(state *replicator.JobState) { state.CheckpointedSourceSeq = []byte(seq) })
	require.NoError(l, err)
	require.False(l, woken)
}

// A job whose target has lost what it had is woken within two looks, whatever wakes it otherwise, and whoever may ask the server
// of the targets about several of them.
func TestLostTargetsWake(t *testing.T) {
	for name, test := range map[string]struct {
		login string // of the source and of the target
		lose  func(s *source)
		odd   bool // the server has no _dbs_info, no instance_start_time and no uuid
		helps bool // a third job has a login that may ask
		all   bool // the other jobs, too
	}{
		"deleted":                     {"root", func(s *source) { delete(s.databases, "t") }, false, false, false},
		"created anew":                {"root", func(s *source) { s.created["t"] = "1700000002" }, false, false, false},
		"on another server":           {"root", func(s *source) { s.uuid = "two" }, false, false, true},
		"created anew, by a user":     {"ann", func(s *source) { s.created["t"] = "1700000002" }, false, true, false},
		"on another server, by users": {"ann", func(s *source) { s.uuid = "two" }, false, false, true},
		"deleted on another software": {"root", func(s *source) { delete(s.databases, "t") }, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.source.write("db", "other")
				if l.target.uuid = "one"; test.odd {
					l.target.lacks, l.target.uuid = true, ""
				}
				created := "1700000001"
				if test.odd {
					created = "0"
				}
				l.target.create(created, "t", "u")
				id := l.parkInto(test.login, "db", test.login, "t")
				if test.helps {
					l.source.write("third")
					l.target.create(created, "third")
					l.parkInto("root", "third", "root", "third")
				}
				other := l.parkInto(test.login, "other", test.login, "u")
				n := l.start()
				l.sleeps(20*time.Minute, id, other)
				require.Zero(l, n.Counts().WakesTarget)
				lost := time.Now()
				l.target.set(func() { test.lose(l.target) })
				woken := map[string]bool{}
				run := l.accept()
				woken[run.Job().ID] = true
				require.LessOrEqual(l, time.Since(lost), twoLooks)
				require.NoError(l, run.Start(l.Context(), "node", "pid"))
				require.NoError(l, run.Update(l.Context(), func(state *replicator.JobState) {
					state.Activity = &replicator.Activity{Doing: replicator.DoingCopying}
				}))
				require.NotNil(l, run.Job().State.Behind)
				require.WithinRange(l, run.Job().State.Behind.Since, lost.Add(-twoLooks), lost, "when it was known to have everything")
				if test.all {
					woken[l.accept().Job().ID] = true
				}
				require.Equal(l, map[string]bool{id: true, other: test.all}, map[string]bool{id: woken[id], other: woken[other]})
				time.Sleep(time.Second)
				require.EqualValues(l, len(woken), n.Counts().WakesTarget)
				require.NotContains(l, l.log.String(), "s3cret")
				require.Contains(l, l.log.String(), "targets of parked jobs have lost what they had")
			})
		})
	}
}

// What is not known is not lost: a server that does not answer, that refuses the question, that fails to open its databases, or
// that has several uuids.
func TestUnknownTargetsDoNotWake(t *testing.T) {
	for name, change := range map[string]func(s *source){
		"down":              func(s *source) { s.down = true },
		"slow":              func(s *source) { s.slow = time.Hour },
		"ill":               func(s *source) { s.status["/_dbs_info"], s.status["/"] = 500, 500 },
		"too busy":          func(s *source) { s.status["/_dbs_info"] = 429 },
		"forbidden":         func(s *source) { s.status["/_dbs_info"] = 403 },
		"no list either":    func(s *source) { s.lacks, s.status["/_all_dbs"] = true, 404 },
		"crowded":           func(s *source) { s.crowded = true },
		"missing to others": func(s *source) { s.crowded, s.status["/t"] = true, 403 },
		"an older version":  func(s *source) { s.created["t"] = "0" },
		"a start time":      func(s *source) { s.created["t"] = "1700000001234" },
		"no uuid":           func(s *source) { s.uuid = "" },
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.source.write("db")
				l.target.uuid = "one"
				l.target.create("1700000001", "t")
				id := l.parkInto("root", "db", "root", "t")
				l.start()
				l.sleeps(11*time.Minute, id)
				l.target.set(func() { change(l.target) })
				l.target.requests("")
				l.sleeps(time.Hour, id)
				asked := l.target.requests("")
				require.NotEmpty(l, asked)
				require.Less(l, len(asked), 1_000, "those that are refused with 429 are repeated")
			})
		})
	}
}

// Nodes of a cluster that were given different uuids wake each job at most a few times.
func TestTargetsOfSeveralUUIDs(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db")
		l.target.uuid = "one"
		l.target.create("1700000001", "t")
		id := l.parkInto("root", "db", "root", "t")
		l.target.set(func() { l.target.uuids = []string{"two", "one", "one", "two"} })
		n := l.start()
		for began := time.Now(); time.Since(began) < 3*time.Hour; time.Sleep(time.Minute) {
			if job, err := l.jobs.Lists.Get(l.Context(), id); err == nil && job.Parked().IsZero() {
				run := l.accept()
				at := replicator.ParkedTarget{Server: "http://b.example/", Database: "t", Instance: "1700000001", Identity: "two v"}
				if run.Job().State.Stats.DocsRead++; run.Job().State.Stats.DocsRead%2 == 0 {
					at.Identity = "one v"
				}
				l.parkNoted(run, "db", at)
			}
		}
		require.LessOrEqual(l, n.Counts().WakesTarget, int64(4))
		l.target.set(func() { l.target.created["t"] = "1700000002" })
		l.woken(id)
	})
}

// The look at many targets of one server takes a question for a page of them, with a login that may ask it. When one is lost,
// the others are looked at at once.
func TestTargetsAreAskedInPages(t *testing.T) {
	inLab(t, func(l *lab) {
		const count = 250
		l.target.uuid = "one"
		var ids []string
		for i := range count {
			name := fmt.Sprintf("db%03d", i)
			l.source.write(name)
			l.target.create("1700000001", name)
			ids = append(ids, l.parkInto("root", name, "ann", name))
		}
		n := l.start()
		l.until(n.follows(1))
		l.sleeps(20*time.Minute, ids...)
		require.Less(l, len(l.target.requests("ann POST /_dbs_info")), 3, "it is no administrator")
		l.set("replicator.watches/http://b.example/=root:s3cret")
		l.sleeps(10*time.Minute, ids...)
		l.target.requests("")
		l.sleeps(20*time.Minute, ids...)
		infos := l.target.requests("root POST /_dbs_info")
		require.InDelta(l, 12, len(infos), 3, "%q", infos)
		require.InDelta(l, len(infos), len(l.target.requests("root GET /")), 3)
		require.Empty(l, l.target.requests(""))
		l.target.set(func() { clear(l.target.databases) })
		lost := time.Now()
		for range count {
			l.accept()
		}
		require.LessOrEqual(l, time.Since(lost), 6*time.Minute)
		asked := l.target.requests("ann GET /db")
		require.LessOrEqual(l, len(asked), 70, "then it is believed: %q", asked)
		require.Equal(l, http.MethodGet, strings.Fields(asked[0])[1])
	})
}

// Targets in this store itself, whose jobs' logins may not ask about several databases, are compared by the store, and by the job's
// login before it is woken: another server may have the same uuid, which was restored from a backup.
func TestHostedTargets(t *testing.T) {
	for name, isOther := range map[string]bool{"this settee": false, "another one": true} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				docs := docstore.Open(l.db, []byte("docs"), docstore.Options{})
				l.Cleanup(docs.Close)
				var ids []string
				create := func(name string) {
					db, err := docs.Create(l.Context(), name)
					require.NoError(l, err)
					info, err := db.Info(l.Context())
					require.NoError(l, err)
					l.target.create(info.InstanceStartTime, name)
				}
				l.target.uuid, l.target.vendor = "0123", "settee"
				for _, name := range []string{"anew", "deleted", "there"} {
					l.source.write(name)
					create(name)
					ids = append(ids, l.parkInto("ann", name, "ann", name))
				}
				l.start()
				l.sleeps(11*time.Minute, ids...)
				require.Len(l, l.target.requests("ann POST /_dbs_info"), 1)
				require.NotEmpty(l, l.target.requests("ann GET /"))
				for _, name := range []string{"anew", "deleted"} {
					db, err := docs.Database(l.Context(), name)
					require.NoError(l, err)
					require.NoError(l, db.Delete(l.Context()))
				}
				if isOther {
					_, err := docs.Create(l.Context(), "anew")
					require.NoError(l, err)
					l.sleeps(time.Hour, ids...)
					return
				}
				create("anew")
				l.target.set(func() { delete(l.target.databases, "deleted") })
				woken := []string{l.accept().Job().ID, l.accept().Job().ID}
				require.ElementsMatch(l, ids[:2], woken)
				l.sleeps(time.Hour, ids[2])
			})
		})
	}
}

// A login that a server refuses altogether is tried once an hour: more tries may lock the account.
func TestRefusedTargetLogins(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db")
		l.target.uuid = "one"
		l.target.create("1700000001", "t")
		id := l.parkInto("root", "db", "root", "t")
		l.start()
		l.sleeps(11*time.Minute, id)
		l.target.set(func() {
			l.target.admins["root"] = "other"
			l.target.status["/"] = 401
		})
		l.target.requests("")
		l.sleeps(165*time.Minute, id)
		asked := l.target.requests("")
		require.Len(l, asked, 6, "%q", asked)
		l.target.set(func() {
			l.target.admins["root"] = "s3cret"
			l.target.created["t"] = "1700000002"
			clear(l.target.status)
		})
		took, _ := l.woken(id)
		require.LessOrEqual(t, took, 65*time.Minute)
	})
}

// A shorter time of a round counts at once.
func TestRoundsOfTargetsGetShorter(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db")
		l.target.create("1700000001", "t")
		id := l.parkInto("root", "db", "root", "t")
		l.start()
		l.sleeps(6*time.Minute, id)
		l.set("replicator/max_idle_sec=10")
		l.target.set(func() { delete(l.target.databases, "t") })
		took, _ := l.woken(id)
		require.LessOrEqual(l, took, 15*time.Second)
	})
}
