package fdbjobs_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/fdbjobs/upgrade"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// readPairs reads the keys and values of a queue, which a version of the package has written.
func readPairs(t *testing.T, file string) (pairs []kv.KeyValue) {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), " ")
		k, err := hex.DecodeString(key)
		require.NoError(t, err)
		v, err := hex.DecodeString(value)
		require.NoError(t, err)
		pairs = append(pairs, kv.KeyValue{Key: append([]byte(string(prefix)), k...), Value: v})
	}
	return pairs
}

// TestStoreOf010: the jobs of a store that version 0.1.0 has written carry on, and nothing else is left. They are: a pending, a delayed, and two finished jobs, one that runs and has args and a state, and one that
// was added again while it ran.
func TestStoreOf010(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		old := readPairs(t, "testdata/store-5")
		for range 20 { // the versions of a store do not go back
			require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error { tx.Set([]byte("other"), nil); return nil }))
		}
		b := newBundle(t, db)
		b.transact(t, func(tx kv.Transaction) error {
			for _, pair := range old {
				tx.Set(pair.Key, pair.Value)
			}
			return nil
		})
		// Two processes begin at once, and one of them is interrupted.
		interrupted, interrupt := context.WithCancel(t.Context())
		interrupt()
		require.ErrorIs(t, upgrade.Jobs(interrupted, db, prefix), context.Canceled)
		upgraded := make(chan error)
		for range 2 {
			go func() { upgraded <- upgrade.Jobs(t.Context(), db, prefix) }()
		}
		require.NoError(t, errors.Join(<-upgraded, <-upgraded))
		require.NoError(t, upgrade.Jobs(t.Context(), db, prefix))
		b.check(t)
		assert.EqualValues(t, 2, b.count(t, fdbjobs.Pending))
		ended := make(chan string, 6)
		wait := func(id string) {
			go func() {
				job, err := b.jobs.Wait(t.Context(), []string{id})
				if assert.NoError(t, err) {
					ended <- fmt.Sprintf("%s %s", id, job.State)
				}
			}()
		}
		wait("finished")
		assert.Equal(t, `finished {"done":2}`, <-ended)

		wait("running")
		wait("again")
		b.monitor(t)
		after(2 * fdbjobs.DefaultTimeout)
		for _, h := range b.take(t, 4) {
			if h.Job().ID == "running" {
				assert.JSONEq(t, `{"n":1}`, string(h.Job().Args))
				assert.JSONEq(t, `{"done":1}`, string(h.Job().State))
			}
			require.NoError(t, h.Finish(t.Context(), text(`{"done":3}`), nil))
		}
		assert.ElementsMatch(t, []string{`running {"done":3}`, `again {"done":3}`}, []string{<-ended, <-ended})
		after(time.Hour)
		assert.Equal(t, "delayed", b.accept(t).Job().ID)
	})
}

// failsAt is a store that fails from its nth transaction on.
type failsAt struct {
	kv.Database
	left int
}

func (f *failsAt) Transact(ctx context.Context, run func(tx kv.Transaction) error) error {
	if f.left--; f.left < 0 {
		return errors.New("it fails")
	}
	return f.Database.Transact(ctx, run)
}

// TestUpgradeInterrupted: an upgrade that failed anywhere is made by the next one.
func TestUpgradeInterrupted(t *testing.T) {
	db := enginetest.Memory(t)
	b := newBundle(t, db)
	for n := 0; n < 11_000; n += 1_000 {
		var specs []fdbjobs.Spec
		for i := range 1_000 {
			specs = append(specs, fdbjobs.Spec{ID: fmt.Sprint(n + i), Owner: fmt.Sprint((n + i) % 2_500), Ended: true})
		}
		b.transact(t, func(tx kv.Transaction) error { return b.jobs.Add(tx, specs...) })
	}
	b.transact(t, func(tx kv.Transaction) error { b.jobs.ForgetCounters(tx); return nil })
	failed := 0
	for upgrade.Jobs(t.Context(), &failsAt{db, failed}, prefix) != nil {
		failed++
	}
	assert.Equal(t, 1+23+2+3, failed) // to look, to rewrite rows, to read the index, to write
	b.check(t)
}
