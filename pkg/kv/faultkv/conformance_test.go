package faultkv_test

import (
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/memkv"
)

// TestConformance: an engine with faults still conforms. The faults that prevent what a group of the suite tests are
// left out.
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
				"Isolation": {}, // needs transactions whose first run succeeds
			},
		},
		"from a seed": {
			// The suite rejects a watch that never ends.
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
				clock := &kvtest.Clock{}
				plain, err := memkv.Open(memkv.Options{Now: clock.Now})
				require.NoError(t, err)
				db := faultkv.Wrap(plain, opts)
				t.Cleanup(func() { require.NoError(t, db.Close()) })
				return clocked{db, clock}
			})
		})
	}
}

// clocked is a store with a clock of its own.
type clocked struct {
	*faultkv.DB
	*kvtest.Clock
}
