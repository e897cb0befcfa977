package faultkv_test

import (
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/memkv"
)

// TestConformance: an engine with faults is still one that conforms. Left out are
// the faults that keep a group of the suite from what it looks for.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts   faultkv.Options
		exempt map[string]faultkv.Options // by group
	}{
		"without faults": {},
		"every commit unknown once": {
			opts: faultkv.Options{Script: faultkv.UnknownOnce},
			exempt: map[string]faultkv.Options{
				"Isolation": {}, // looks for transactions whose first run succeeds
			},
		},
		"from a seed": {
			// A watch that never ends is what the suite finds wrong.
			opts: faultkv.Options{Seed: 1, MaxLag: 10 * time.Millisecond, Rates: faultkv.Rates{
				faultkv.Conflict: 0.1, faultkv.UnknownCommitted: 0.1, faultkv.UnknownNotCommitted: 0.1,
				faultkv.TooOld: 0.01, faultkv.Delay: 0.05, faultkv.SpuriousWatch: 0.2, faultkv.LateWatch: 0.2,
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kvtest.Run(t, func(t *testing.T) kv.Database {
				opts := c.opts
				if other, ok := c.exempt[path.Base(t.Name())]; ok {
					opts = other
				}
				db := &movable{}
				plain, err := memkv.Open(memkv.Options{Now: db.now})
				require.NoError(t, err)
				db.DB = faultkv.Wrap(plain, opts)
				t.Cleanup(func() { require.NoError(t, db.Close()) })
				return db
			})
		})
	}
}

// movable is a store whose engine's clock goes faster when the suite wants it to.
type movable struct {
	*faultkv.DB
	ahead atomic.Int64
}

func (m *movable) now() time.Time { return time.Now().Add(time.Duration(m.ahead.Load())) }

// Advance implements kvtest.Advancer.
func (m *movable) Advance(d time.Duration) { m.ahead.Add(int64(d)) }
