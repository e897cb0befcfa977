package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/config"
	"settee/pkg/couch/couchtest"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/kvtest"
	"settee/pkg/retry"
	"settee/pkg/sockopt"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

// server is a CouchDB in memory whose databases have no documents.
type server struct {
	uuid string

	mu        sync.Mutex
	down      bool
	databases map[string]string // their instance_start_time
	marks     map[string]string // their _local/settee-mirror
}

func newServer(uuid string, databases ...string) *server {
	s := &server{uuid: uuid, databases: map[string]string{}, marks: map[string]string{}}
	for _, name := range databases {
		s.databases[name] = "1"
	}
	return s
}

// change changes the server.
func (s *server) change(change func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *server) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// names returns the names of the databases in their order.
func (s *server) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.databases))
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if s.isDown() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	answer := any(map[string]any{"couchdb": "Welcome", "uuid": s.uuid, "vendor": map[string]string{"name": "test"}})
	name, local, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch name {
	case "":
	case "_all_dbs":
		answer = s.names()
	case "_dbs_info":
		answer = s.infos(r)
	default:
		answer = s.database(r.Method, name, local)
	}
	if answer == nil {
		w.WriteHeader(http.StatusNotFound)
		answer = map[string]string{"error": "not_found", "reason": "Database does not exist."}
	} else if text, is := answer.(string); is {
		w.WriteHeader(http.StatusNotFound)
		answer = map[string]string{"error": "not_found", "reason": text}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// infos answers POST /_dbs_info.
func (s *server) infos(r *http.Request) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var asked struct{ Keys []string }
	_ = json.NewDecoder(r.Body).Decode(&asked)
	rows := []any{}
	for _, name := range asked.Keys {
		rows = append(rows, map[string]any{"key": name, "info": map[string]string{"db_name": name, "instance_start_time": s.databases[name]}})
	}
	return rows
}

// database answers a request for a database or its mark. nil means that there is no database, and a string why something else is
// missing.
func (s *server) database(method, name, local string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	instance, exists := s.databases[name]
	switch mark := s.marks[name]; {
	case !exists:
		return nil
	case method == http.MethodDelete:
		delete(s.databases, name)
		return map[string]bool{"ok": true}
	case local == "":
		return map[string]string{"db_name": name, "instance_start_time": instance, "update_seq": "0"}
	case local == "_local/settee-mirror" && mark != "":
		return json.RawMessage(mark)
	}
	return "missing"
}

// lab is a run of a mirror, in a bubble.
type lab struct {
	*testing.T
	store *jobs.Store
	run   *jobs.Run
	ended chan error
}

// inLab runs a test with the run of a mirror from one server to another, with members in its object "mirror" and with settings.
func inLab(t *testing.T, source, target *server, members string, settings []string, test func(l *lab)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		layer := fdbjobs.Open(db, []byte("jobs"), fdbjobs.Options{Derive: jobs.Derivations()})
		defer layer.Close()
		store, err := jobs.Open(t.Context(), db, layer, jobs.Options{Documents: []byte("docs")})
		require.NoError(t, err)
		docs := docstore.Open(db, []byte("docs"), docstore.Options{Hooks: store.Documents.Hooks(nil)})
		defer docs.Close()
		repdb, err := docs.Create(t.Context(), "_replicator")
		require.NoError(t, err)
		_, err = repdb.Put(t.Context(), docstore.Edit{ID: "m", Body: docjson.Must(
			`{"source": "http://a.example/", "target": "http://b.example/", "continuous": true, "mirror": {` + members + `}}`,
		)})
		require.NoError(t, err)
		l := &lab{T: t, store: store, ended: make(chan error, 1)}
		l.run = l.accept()
		id, err := l.run.Job().Args.Replication.ID(store.ServerUUID, "")
		require.NoError(t, err)
		require.NoError(t, l.run.Identify(t.Context(), id))
		cfg, _, err := config.Load(config.Options{Flags: settings})
		require.NoError(t, err)
		transport := couchtest.Pipe(t, map[string]http.Handler{"a.example": source, "b.example": target})
		requests := worker.DefaultConfig()
		requests.Transport = func(replicator.Endpoint, *sockopt.Options) http.RoundTripper { return transport }
		stopping, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		running.Go(func() {
			_, err := Run(t.Context(), Options{
				Run: jobs.MirrorRun{Run: l.run}, Config: func() *config.Config { return cfg }, Stop: stopping, Log: zerolog.Nop(), Worker: requests,
				KeepAlive: func(ctx context.Context, update func(context.Context) error) error {
					for retry.Wait(ctx, l.run.Heartbeat()) == nil {
						if err := update(ctx); errors.Is(err, fdbjobs.ErrHalt) {
							return err
						}
					}
					return nil
				},
			})
			l.ended <- err
		})
		l.pass(time.Second)
		test(l)
	})
}

// accept takes a job that is due.
func (l *lab) accept() *jobs.Run {
	l.Helper()
	runs, err := l.store.Runs.Accept(l.Context(), 1, nil)
	require.NoError(l, err)
	require.NoError(l, runs[0].Start(l.Context(), "node", "pid"))
	return runs[0]
}

// pass lets time pass.
func (l *lab) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// copyAll makes the jobs of n databases say that they have copied everything, to databases whose instance is 1, and returns them.
func (l *lab) copyAll(n int) map[string]*jobs.Run {
	l.Helper()
	runs := map[string]*jobs.Run{}
	for range n {
		run := l.accept()
		require.NoError(l, run.Update(l.Context(), func(s *replicator.JobState) {
			s.Activity = &replicator.Activity{Doing: replicator.DoingWaiting}
			s.Target = replicator.MirrorTarget{Claim: replicator.TargetMade, Instance: "1"}
		}))
		runs[run.Job().Args.MirroredDatabase] = run
	}
	return runs
}

// states returns the databases that the mirror knows, with their states.
func (l *lab) states() map[string]replicator.MirroredState {
	l.Helper()
	list, err := jobs.MirrorRun{Run: l.run}.Databases(l.Context(), "", 100)
	require.NoError(l, err)
	states := map[string]replicator.MirroredState{}
	for _, d := range list {
		states[d.Database] = d.State
	}
	return states
}

// progress returns what the mirror tells of itself.
func (l *lab) progress() replicator.MirrorProgress {
	l.Helper()
	job, err := l.store.Lists.Get(l.Context(), l.run.Job().ID)
	require.NoError(l, err)
	return *job.State.Mirror
}

func TestServersThatAreOne(t *testing.T) {
	inLab(t, newServer("u", "one"), newServer("u"), ``, nil, func(l *lab) {
		require.ErrorIs(l, <-l.ended, errSameServer)
	})
}

func TestMirrorWithinAServer(t *testing.T) {
	inLab(t, newServer("u", "one", "copy-of-one"), newServer("u"), `"prefix": "copy-of-"`, nil, func(l *lab) {
		assert.Equal(l, map[string]replicator.MirroredState{"one": "starting"}, l.states())
	})
}

func TestMostDatabasesOfAMirror(t *testing.T) {
	inLab(t, newServer("u", "one", "three", "two"), newServer("v"), ``, []string{"replicator/mirror_databases=2"}, func(l *lab) {
		assert.Len(l, l.states(), 2)
		progress := l.progress()
		assert.EqualValues(l, 1, progress.LeftOut)
		assert.Equal(l, "two", progress.FirstLeftOut[0].Database)
	})
}

// A database that its target has lost or created anew is copied again. The others are left as they are.
func TestTargetThatLosesDatabases(t *testing.T) {
	names := []string{"kept", "lost", "replaced"}
	target := newServer("v", names...)
	inLab(t, newServer("u", names...), target, ``, nil, func(l *lab) {
		l.copyAll(3)
		l.pass(2 * time.Minute)
		assert.Equal(l, map[string]replicator.MirroredState{"kept": "up_to_date", "lost": "up_to_date", "replaced": "up_to_date"}, l.states())
		target.change(func(s *server) {
			delete(s.databases, "lost")
			s.databases["replaced"] = "2"
		})
		l.pass(2 * time.Minute)
		assert.Equal(l, map[string]replicator.MirroredState{"kept": "up_to_date", "lost": "copying", "replaced": "copying"}, l.states())
		assert.EqualValues(l, 2, l.progress().Target.Lost.Databases)
	})
}

// A mirror that deletes databases deletes those that a mirror has made of a source that is gone, after a time.
func TestDatabasesThatAreDeleted(t *testing.T) {
	names := []string{"back", "kept", "made", "other"}
	source, target := newServer("u", names...), newServer("v", names...)
	for _, name := range names {
		target.marks[name] = fmt.Sprintf(`{"_id": "_local/settee-mirror", "_rev": "0-1", "made_from": {"server": "u test", "database": %q}}`, name)
	}
	target.marks["other"] = strings.ReplaceAll(target.marks["other"], "u test", "w test")
	inLab(t, source, target, `"deleted": "delete"`, []string{"replicator/mirror_delete_after_sec=600"}, func(l *lab) {
		l.copyAll(4)
		source.change(func(s *server) {
			for _, name := range []string{"back", "made", "other"} {
				delete(s.databases, name)
			}
		})
		l.pass(2 * time.Minute)
		assert.Equal(l, map[string]replicator.MirroredState{"back": "gone", "kept": "up_to_date", "made": "gone", "other": "gone"}, l.states())
		assert.Equal(l, names, target.names())
		source.change(func(s *server) { s.databases["back"] = "1" })
		l.pass(20 * time.Minute)
		assert.Equal(l, []string{"back", "kept", "other"}, target.names(), "no mirror of this source has made the other one")
		assert.Equal(l, map[string]replicator.MirroredState{"back": "starting", "kept": "up_to_date"}, l.states())
	})
}

// If somebody runs the mirror at once, the databases that count as up to date are compared again, but not while the target does
// not answer.
func TestMirrorRunAtOnce(t *testing.T) {
	target := newServer("v", "one", "two")
	inLab(t, newServer("u", "one", "two"), target, ``, nil, func(l *lab) {
		runs := l.copyAll(2)
		l.pass(2 * time.Minute)
		update := func(name string) error { return runs[name].Update(l.Context(), func(*replicator.JobState) {}) }
		target.change(func(s *server) { s.down = true })
		_, err := l.store.Requests.RunNow(l.Context(), l.run.Job().ID)
		require.NoError(l, err)
		l.pass(30 * time.Second)
		require.NoError(l, errors.Join(update("one"), update("two")))
		target.change(func(s *server) { s.down = false })
		_, err = l.store.Requests.RunNow(l.Context(), l.run.Job().ID)
		require.NoError(l, err)
		l.pass(30 * time.Second)
		require.ErrorIs(l, update("one"), fdbjobs.ErrHalt)
		require.ErrorIs(l, update("two"), fdbjobs.ErrHalt)
	})
}
