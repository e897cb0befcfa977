package scheduler_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/replicator/jobs"
	"settee/replicator/scheduler"
)

// barrier holds those that wait for it while it is closed.
type barrier struct{ opening atomic.Pointer[chan struct{}] }

func (b *barrier) close() {
	opening := make(chan struct{})
	b.opening.Store(&opening)
}

func (b *barrier) open() { close(*b.opening.Swap(nil)) }

func (b *barrier) awaitOpen(ctx context.Context) {
	if opening := b.opening.Load(); opening != nil {
		select {
		case <-*opening:
		case <-ctx.Done():
		}
	}
}

// freezing is a store that answers while its gate is open.
type freezing struct {
	kv.Database
	gate *barrier
}

func (f freezing) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	f.gate.awaitOpen(ctx)
	return f.Database.Transact(ctx, fn)
}

func TestOverdue(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var store, configuration barrier
		db := freezing{enginetest.Memory(t), &store}
		layer := fdbjobs.Open(db, []byte("jobs"), fdbjobs.Options{Derive: jobs.Derivations()})
		defer layer.Close()
		all, err := jobs.Open(t.Context(), db, layer, jobs.Options{Documents: []byte("docs")})
		require.NoError(t, err)
		cfg, _, err := config.Load(config.Options{})
		require.NoError(t, err)
		server := scheduler.New(scheduler.Options{Jobs: all, Node: "n", Log: zerolog.Nop(), Config: func() *config.Config {
			configuration.awaitOpen(context.Background())
			return cfg
		}})
		var running sync.WaitGroup
		running.Go(func() { assert.NoError(t, server.Run(context.Background())) })
		// pass passes five minutes, and returns the longest that the server was late.
		pass := func() (late time.Duration) {
			for range 300 {
				time.Sleep(time.Second)
				synctest.Wait()
				late = max(late, server.Overdue())
			}
			return late
		}
		require.Zero(t, pass(), "a node without jobs")
		for name, g := range map[string]*barrier{"the store is frozen": &store, "the rescheduling hangs": &configuration} {
			g.close()
			require.Greater(t, pass(), 4*time.Minute, name)
			g.open()
			time.Sleep(time.Minute)
			require.Zero(t, pass(), "it goes on after: "+name)
		}
		require.NoError(t, server.Shutdown(context.Background()))
		running.Wait()
	})
}
