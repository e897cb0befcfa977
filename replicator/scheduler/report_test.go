package scheduler_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/scheduler"
	"settee/replicator/worker"
)

// breakable is a store that can be broken.
type breakable struct {
	kv.Database
	broken atomic.Bool
}

func (b *breakable) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	if b.broken.Load() {
		return errors.New("the store is broken")
	}
	return b.Database.Transact(ctx, fn)
}

// A run goes on if a report fails, unless it is about to make a target that the job would not know of.
func TestReportsThatFail(t *testing.T) {
	t.Parallel()
	db := &breakable{Database: enginetest.Memory(t)}
	layer := fdbjobs.Open(db, []byte("jobs"), fdbjobs.Options{Derive: jobs.Derivations()})
	t.Cleanup(layer.Close)
	store, err := jobs.Open(t.Context(), db, layer, jobs.Options{})
	require.NoError(t, err)
	cfg, _, err := config.Load(config.Options{})
	require.NoError(t, err)
	told := make(chan error, 2)
	server := scheduler.New(scheduler.Options{
		Jobs: store, Config: func() *config.Config { return cfg }, Node: "node", Log: zerolog.Nop(),
		Replicate: func(ctx context.Context, _ worker.Job, _ worker.Config, reporter worker.Reporter) (worker.Result, error) {
			db.broken.Store(true)
			defer db.broken.Store(false)
			told <- reporter.Report(ctx, worker.Progress{})
			told <- reporter.Report(ctx, worker.Progress{Target: replicator.MirrorTarget{Claim: replicator.TargetMaking}})
			return worker.Result{}, nil
		},
	})
	ctx, drop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	defer func() {
		drop()
		require.ErrorIs(t, <-ended, context.Canceled)
	}()
	n := &node{cluster: &cluster{t: t}, jobs: store}
	n.replicate(`{"source": "http://a.example/db", "target": "http://b.example/db"}`)
	require.NoError(t, <-told)
	require.ErrorContains(t, <-told, "the store is broken")
}
