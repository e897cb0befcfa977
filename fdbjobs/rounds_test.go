package fdbjobs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// TestClaimRounds: a claim reads what does not depend on each other at the same time, however many jobs it takes: the waiting
// owners; the usage and the ready rows of the first ones; the jobs. It changes each tally once.
func TestClaimRounds(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		store := enginetest.Control(db)
		b := newBundle(t, store)
		for i := range 2 * fdbjobs.MaxClaim {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: "o"})
		}
		for range 2 {
			store.Delay.Store(int64(100 * time.Millisecond))
			began, before := time.Now(), store.Mutations.Load()
			held := b.take(t, fdbjobs.MaxClaim)
			store.Delay.Store(0)
			assert.Len(t, held, fdbjobs.MaxClaim)
			assert.Equal(t, 300*time.Millisecond, time.Since(began))
			// Three keys of each job, two tallies, of which a subtraction is two mutations, and at times a heartbeat.
			assert.LessOrEqual(t, store.Mutations.Load()-before, int64(3*fdbjobs.MaxClaim+3+1))
			after(time.Second)
		}
	})
}
