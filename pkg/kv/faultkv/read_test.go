package faultkv_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
)

func fixed(d time.Duration) func(*rand.Rand) time.Duration {
	return func(*rand.Rand) time.Duration { return d }
}

// TestTooOldRead: after a read that is too old, neither the commit nor any other read of that run succeeds.
func TestTooOldRead(t *testing.T) {
	t.Parallel()
	reads := map[string]func(tx kv.ReadTransaction) error{
		"Get": func(tx kv.ReadTransaction) error { _, err := tx.Get([]byte("k")).Await(); return err },
		"GetRange": func(tx kv.ReadTransaction) error {
			_, err := tx.GetRange(between("a", "z"), kv.RangeOptions{}).Slice()
			return err
		},
		"GetRange of nothing": func(tx kv.ReadTransaction) error {
			_, err := tx.GetRange(between("x", "z"), kv.RangeOptions{}).Slice()
			return err
		},
	}
	for name, read := range reads {
		for _, snapshot := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " snapshot ", snapshot), func(t *testing.T) {
				t.Parallel()
				inBubble(t, faultkv.Options{Script: faultkv.At(faultkv.Read, 1, faultkv.TooOld)}, func(t *testing.T, b *bundle) {
					b.set(t, "k", "l", "m")
					runs := 0
					require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
						runs++
						view := kv.ReadTransaction(tx)
						if snapshot {
							view = tx.Snapshot()
						}
						if err := read(view); runs == 1 {
							require.ErrorIs(t, err, kv.ErrTransactionTooOld)
							for _, again := range reads {
								require.ErrorIs(t, again(tx), kv.ErrTransactionTooOld)
							}
						} else {
							require.NoError(t, err)
						}
						// A function that ignores it fails to commit.
						tx.Set([]byte("w"), fmt.Append(nil, runs))
						return nil
					}))
					assert.Equal(t, 2, runs)
					assert.Equal(t, "2", b.value(t, "w"))
					assert.Equal(t, 1, b.db.Hits(faultkv.TooOld))
				})
			})
		}
	}
}

// TestTooOldSnapshotRead: the commit of a transaction with only snapshot reads checks nothing.
func TestTooOldSnapshotRead(t *testing.T) {
	t.Parallel()
	inBubble(t, faultkv.Options{Script: faultkv.At(faultkv.Read, 1, faultkv.TooOld)}, func(t *testing.T, b *bundle) {
		require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			_, err := tx.Snapshot().Get([]byte("k")).Await()
			require.ErrorIs(t, err, kv.ErrTransactionTooOld)
			tx.Set([]byte("w"), []byte("blind"))
			return nil
		}))
		assert.Equal(t, "blind", b.value(t, "w"))
	})
}

// TestRangeEndsMidway: a faulty range read yields the true beginning of the range, of any length, and then only the
// error.
func TestRangeEndsMidway(t *testing.T) {
	t.Parallel()
	var keys []string
	for i := range 40 {
		keys = append(keys, fmt.Sprintf("%02d", i))
	}
	lengths := map[int]bool{}
	for seed := range uint64(60) {
		opts := faultkv.Options{Seed: seed, Script: faultkv.At(faultkv.Read, 1, faultkv.TooOld)}
		inBubble(t, opts, func(t *testing.T, b *bundle) {
			b.set(t, keys...)
			runs := 0
			require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
				runs++
				var got []string
				var failed error
				for pair, err := range tx.GetRange(between("", "\xff"), kv.RangeOptions{}).All() {
					require.NoError(t, failed, "nothing comes after an error")
					if failed = err; err == nil {
						got = append(got, string(pair.Key))
					} else {
						require.Equal(t, kv.KeyValue{}, pair)
					}
				}
				require.Equal(t, keys[:len(got)], append([]string{}, got...))
				if runs == 1 {
					require.ErrorIs(t, failed, kv.ErrTransactionTooOld)
					lengths[len(got)] = true
				} else {
					require.Len(t, got, len(keys))
				}
				return failed
			}))
			assert.Equal(t, 2, runs)
		})
	}
	assert.True(t, lengths[0], "before the first pair")
	assert.True(t, lengths[len(keys)], "after the last pair")
	assert.Greater(t, len(lengths), 10)

	// A reader that stops earlier does not get the error.
	missed := 0
	for seed := range uint64(20) {
		opts := faultkv.Options{Seed: seed, Script: faultkv.At(faultkv.Read, 1, faultkv.TooOld)}
		inBubble(t, opts, func(t *testing.T, b *bundle) {
			b.set(t, keys...)
			runs := 0
			require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
				runs++
				for _, err := range tx.GetRange(between("", "\xff"), kv.RangeOptions{}).All() {
					return err
				}
				return nil
			}))
			assert.Equal(t, 1+b.db.Hits(faultkv.TooOld), runs)
			missed += 2 - runs
		})
	}
	assert.NotZero(t, missed)
}

// TestDelays: reads that were issued together are delayed at the same time. A commit, and each read that waited for
// another, takes its own time.
func TestDelays(t *testing.T) {
	t.Parallel()
	opts := faultkv.Options{Rates: faultkv.Rates{faultkv.Delay: 1}, Delays: fixed(time.Second)}
	took := func(t *testing.T, b *bundle, fn func(tx kv.Transaction)) time.Duration {
		start := time.Now()
		require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			fn(tx)
			return nil
		}))
		return time.Since(start)
	}
	inBubble(t, opts, func(t *testing.T, b *bundle) {
		b.set(t, "k")
		assert.Equal(t, time.Second, took(t, b, func(tx kv.Transaction) {
			var values []kv.Future[[]byte]
			for range 10 {
				values = append(values, tx.Get([]byte("k")))
			}
			pairs, version := tx.Snapshot().GetRange(between("a", "z"), kv.RangeOptions{}), tx.ReadVersion()
			for range 2 {
				for _, value := range values {
					got, err := value.Await()
					require.NoError(t, err)
					require.Equal(t, "k", string(got))
				}
			}
			got, err := pairs.Slice()
			require.NoError(t, err)
			require.Len(t, got, 1)
			_, err = version.Await()
			require.NoError(t, err)
		}))
		assert.Equal(t, 2*time.Second, took(t, b, func(tx kv.Transaction) {
			for range 2 {
				_, err := tx.Get([]byte("k")).Await()
				require.NoError(t, err)
			}
		}))
		assert.Equal(t, time.Second, took(t, b, func(tx kv.Transaction) { tx.Set([]byte("k"), nil) }))
		assert.Equal(t, 15, b.db.Hits(faultkv.Delay))
		assert.Contains(t, b.trace(), `read 1 (transaction 1, run 1) of "k": delay of 1s`)
	})
}

// TestAfterTheFunction: a transaction cannot be used after its function, even during its commit.
func TestAfterTheFunction(t *testing.T) {
	t.Parallel()
	var kept kv.Transaction
	afterwards := func(t *testing.T) {
		kept.Set([]byte("late"), nil)
		kept.Clear([]byte("k"))
		kept.AddReadConflictKey([]byte("k"))
		_, err := kept.Get([]byte("k")).Await()
		require.ErrorIs(t, err, kv.ErrUsedAfterEnd)
		_, err = kept.Snapshot().ReadVersion().Await()
		require.ErrorIs(t, err, kv.ErrUsedAfterEnd)
		_, err = kept.GetRange(between("a", "z"), kv.RangeOptions{}).Slice()
		require.ErrorIs(t, err, kv.ErrUsedAfterEnd)
		for _, err := range kept.GetRange(between("a", "z"), kv.RangeOptions{}).All() {
			require.ErrorIs(t, err, kv.ErrUsedAfterEnd)
		}
		require.ErrorIs(t, kept.Watch([]byte("k")).Wait(context.Background()), kv.ErrWatchCancelled)
	}
	opts := faultkv.Options{
		Script: faultkv.At(faultkv.Commit, 1, faultkv.Delay),
		Delays: func(*rand.Rand) time.Duration { afterwards(t); return time.Second },
	}
	inBubble(t, opts, func(t *testing.T, b *bundle) {
		b.set(t, "k")
		require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			kept = tx
			tx.Set([]byte("w"), nil)
			return nil
		}))
		afterwards(t)
		assert.Equal(t, 1, b.db.Hits(faultkv.Delay))
		assert.Equal(t, "<none>", b.value(t, "late"))
		assert.Equal(t, "k", b.value(t, "k"))
	})
}
