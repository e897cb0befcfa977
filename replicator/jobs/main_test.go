package jobs_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/memkv"
	"settee/pkg/kv/pebblekv"
	"settee/replicator"
	"settee/replicator/jobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

// store is one that can lose the result of each commit once, so that the
// transaction runs again after it, and that can be broken.
type store struct {
	*faultkv.DB
	on     atomic.Bool
	broken atomic.Bool // every transaction fails
}

func newStore(db kv.Database) *store {
	s := &store{}
	s.DB = faultkv.Wrap(db, faultkv.Options{Script: func(call faultkv.Call) faultkv.Fault {
		if s.on.Load() {
			return faultkv.UnknownOnce(call)
		}
		return faultkv.None
	}})
	return s
}

var errBroken = errors.New("the store is broken")

func (s *store) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	if s.broken.Load() {
		return errBroken
	}
	return s.DB.Transact(ctx, fn)
}

// bundle is replication jobs on a store of their own.
type bundle struct {
	*testing.T
	db    *store
	layer *fdbjobs.Layer
	store *jobs.Store
}

func setup(t *testing.T, opts ...jobs.Options) *bundle {
	t.Helper()
	db, err := memkv.Open(memkv.Options{})
	require.NoError(t, err)
	return setupOn(t, db, opts...)
}

func setupOn(t *testing.T, db kv.Database, opts ...jobs.Options) *bundle {
	t.Helper()
	b := &bundle{T: t, db: newStore(db)}
	b.layer = fdbjobs.Open(b.db, []byte("jobs"))
	t.Cleanup(func() {
		b.layer.Close()
		require.NoError(t, db.Close())
	})
	var err error
	b.store, err = jobs.Open(t.Context(), b.db, b.layer, append(opts, jobs.Options{UUID: "0123456789abcdef0123456789abcdef"})[0])
	require.NoError(t, err)
	return b
}

// onEngines runs a test on each engine.
func onEngines(t *testing.T, test func(b *bundle)) {
	t.Run("memkv", func(t *testing.T) {
		t.Parallel()
		test(setup(t))
	})
	if db, ok := kvtest.Cluster(t); ok {
		t.Run("fdbkv", func(t *testing.T) { test(setupOn(t, db)) })
	}
	t.Run("pebblekv", func(t *testing.T) {
		t.Parallel()
		db, err := pebblekv.Open(t.TempDir(), pebblekv.Options{})
		require.NoError(t, err)
		test(setupOn(t, db))
	})
}

// definition parses a body of POST /_replicate with the given members.
func (b *bundle) definition(members string) *replicator.Replication {
	b.Helper()
	text := `{"source": "http://adm:secret@a.example/db", "target": "http://b.example/db"`
	if members != "" {
		text += ", " + members
	}
	request, err := replicator.ParseRequest([]byte(text+"}"), replicator.ParseOptions{})
	require.NoError(b, err)
	return request.Replication
}

// replicate adds the replication with the given members.
func (b *bundle) replicate(members string) *jobs.Job {
	b.Helper()
	job, err := b.store.Replicate(b.Context(), b.definition(members), nil)
	require.NoError(b, err)
	return job
}

// accept takes a job, and starts it.
func (b *bundle) accept() *jobs.Run {
	b.Helper()
	run, err := b.store.Accept(b.Context())
	require.NoError(b, err)
	require.NoError(b, run.Start(b.Context(), "node1", "pid1"))
	return run
}

func (b *bundle) get(id string) *jobs.Job {
	b.Helper()
	job, err := b.store.Get(b.Context(), id)
	require.NoError(b, err)
	return job
}

func (b *bundle) gone(id string) {
	b.Helper()
	_, err := b.store.Get(b.Context(), id)
	require.ErrorIs(b, err, jobs.ErrNotFound)
}

// total is how many jobs have not ended.
func (b *bundle) total() int {
	b.Helper()
	found, total, err := b.store.List(b.Context(), 0, jobs.MaxLimit)
	require.NoError(b, err)
	require.Len(b, found, int(total))
	return int(total)
}

func id(base byte) replicator.ID {
	text := make([]byte, 32)
	for i := range text {
		text[i] = base
	}
	return replicator.ID{Base: string(text)}
}

func eventTypes(job *jobs.Job) []string {
	var types []string
	for _, event := range job.State.History {
		types = append(types, event.Type)
	}
	return types
}
