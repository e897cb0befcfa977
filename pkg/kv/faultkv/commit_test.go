package faultkv_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
)

// TestCommitFaults: each fault has its effect on the commit that it hits, and the function runs again.
func TestCommitFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault     faultkv.Fault
		committed bool // the first run
	}{
		{faultkv.Conflict, false},
		{faultkv.TooOld, false},
		{faultkv.UnknownNotCommitted, false},
		{faultkv.UnknownCommitted, true},
	} {
		t.Run(c.fault.String(), func(t *testing.T) {
			t.Parallel()
			opts := faultkv.Options{Script: faultkv.At(faultkv.Commit, 1, c.fault)}
			inBubble(t, opts, func(t *testing.T, b *bundle) {
				runs := 0
				require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
					if runs++; runs == 2 {
						want := "<none>"
						if c.committed {
							want = "written"
						}
						assert.Equal(t, want, b.value(t, "run 1"))
					}
					return write(fmt.Sprint("run ", runs))(tx)
				}))
				require.Equal(t, 2, runs)
				assert.Equal(t, "written", b.value(t, "run 2"))
				assert.Equal(t, 1, b.db.Hits(c.fault))
				assert.Equal(t, 2, b.db.Calls(faultkv.Commit))
				assert.Equal(t, []string{"commit 1 (transaction 1, run 1): " + c.fault.String()}, b.trace())
			})
		})
	}
}

// TestNothingToCommit: a transaction that only reads has no commit that could fail, and one that has read nothing does
// not conflict.
func TestNothingToCommit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fault faultkv.Fault
		fn    func(tx kv.Transaction)
	}{
		{"read only", faultkv.UnknownCommitted, func(tx kv.Transaction) { _, _ = tx.Get([]byte("k")).Await() }},
		{"read conflict only", faultkv.Conflict, func(tx kv.Transaction) { tx.AddReadConflictKey([]byte("k")) }},
		{"watch", faultkv.UnknownCommitted, func(tx kv.Transaction) { tx.Watch([]byte("k")).Cancel() }},
		{"empty range", faultkv.UnknownCommitted, func(tx kv.Transaction) { tx.ClearRange(between("k", "k")) }},
		{"blind write", faultkv.Conflict, func(tx kv.Transaction) { tx.Add([]byte("k"), 1) }},
		{"blind clear, too old", faultkv.TooOld, func(tx kv.Transaction) { tx.Clear([]byte("k")) }},
		{"snapshot", faultkv.Conflict, func(tx kv.Transaction) {
			_, _ = tx.Snapshot().Get([]byte("k")).Await()
			tx.Set([]byte("k"), nil)
		}},
		{"range that nothing was taken from", faultkv.Conflict, func(tx kv.Transaction) {
			tx.GetRange(between("a", "z"), kv.RangeOptions{})
			tx.Set([]byte("k"), nil)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			always := func(call faultkv.Call) faultkv.Fault {
				if call.Op == faultkv.Commit {
					return c.fault
				}
				return faultkv.None
			}
			inBubble(t, faultkv.Options{Script: always}, func(t *testing.T, b *bundle) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				require.NoError(t, b.db.Transact(ctx, func(tx kv.Transaction) error {
					c.fn(tx)
					return nil
				}))
				assert.Empty(t, b.trace())
			})
		})
	}
}

// TestCommittingOps: each kind of write makes a commit, and each kind of read without a snapshot can conflict.
func TestCommittingOps(t *testing.T) {
	t.Parallel()
	key, stamped := []byte("k"), make([]byte, 14)
	writes := map[string]func(tx kv.Transaction){
		"Set":                    func(tx kv.Transaction) { tx.Set(key, nil) },
		"Clear":                  func(tx kv.Transaction) { tx.Clear(key) },
		"ClearRange":             func(tx kv.Transaction) { tx.ClearRange(between("a", "z")) },
		"Add":                    func(tx kv.Transaction) { tx.Add(key, 1) },
		"AddOrClear":             func(tx kv.Transaction) { tx.AddOrClear(key, 1) },
		"SetVersionstampedKey":   func(tx kv.Transaction) { tx.SetVersionstampedKey(stamped, nil) },
		"SetVersionstampedValue": func(tx kv.Transaction) { tx.SetVersionstampedValue(key, stamped) },
		"AddWriteConflictKey":    func(tx kv.Transaction) { tx.AddWriteConflictKey(key) },
		"ChangeMetadataVersion":  func(tx kv.Transaction) { tx.ChangeMetadataVersion() },
	}
	reads := map[string]func(tx kv.Transaction){
		"Get":      func(tx kv.Transaction) { _, _ = tx.Get([]byte("r")).Await() },
		"GetRange": func(tx kv.Transaction) { _, _ = tx.GetRange(between("a", "z"), kv.RangeOptions{}).Slice() },
		"GetRange in part": func(tx kv.Transaction) {
			for _, err := range tx.GetRange(between("a", "z"), kv.RangeOptions{}).All() {
				_ = err
				break
			}
		},
		"AddReadConflictKey":   func(tx kv.Transaction) { tx.AddReadConflictKey(key) },
		"AddReadConflictRange": func(tx kv.Transaction) { tx.AddReadConflictRange(between("a", "z")) },
	}
	check := func(name string, fault faultkv.Fault, fn func(tx kv.Transaction)) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, faultkv.Options{Script: faultkv.At(faultkv.Commit, 1, fault)}, func(t *testing.T, b *bundle) {
				b.set(t, "m")
				runs := 0
				require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
					runs++
					fn(tx)
					return nil
				}))
				assert.Equal(t, 2, runs)
			})
		})
	}
	for name, write := range writes {
		check(name, faultkv.UnknownCommitted, write)
	}
	for name, read := range reads {
		check(name, faultkv.Conflict, func(tx kv.Transaction) { read(tx); tx.Set([]byte("w"), nil) })
	}
}

// TestEnginesOwnRetries: without a fault the outcome is the engine's, including conflicts and failures.
func TestEnginesOwnRetries(t *testing.T) {
	t.Parallel()
	inBubble(t, faultkv.Options{}, func(t *testing.T, b *bundle) {
		var watches []kv.Watch
		conflict := func(tx kv.Transaction) error {
			watches = append(watches, tx.Watch([]byte("w")))
			err := write("k")(tx)
			if len(watches) == 1 {
				b.set(t, "read")
			}
			return err
		}
		require.NoError(t, b.db.Transact(t.Context(), conflict))
		require.Len(t, watches, 2)
		require.ErrorIs(t, watches[0].Wait(t.Context()), kv.ErrWatchCancelled)
		b.set(t, "w")
		require.NoError(t, watches[1].Wait(t.Context()))

		// A final conflict is not an unknown result.
		ctx, cancel := context.WithCancel(t.Context())
		err := b.db.Transact(ctx, func(tx kv.Transaction) error {
			err := write("never")(tx)
			b.set(t, "read")
			cancel()
			return err
		})
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, kv.ErrCommitUnknown)
		assert.Equal(t, "<none>", b.value(t, "never"))

		failure := errors.New("no")
		require.Equal(t, failure, b.db.Transact(t.Context(), func(kv.Transaction) error { return failure }))
		require.ErrorIs(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			tx.Set(make([]byte, kv.MaxKeySize+1), nil)
			return nil
		}), kv.ErrKeyTooLarge)
		assert.Empty(t, b.trace())
	})
}

// TestEndAfterUnknown: once a commit was reported unknown, the end of ctx leaves the result unknown, wherever it
// occurs, even if a read in the function returns it. Other errors of the function are kept.
func TestEndAfterUnknown(t *testing.T) {
	t.Parallel()
	failure := errors.New("no")
	for _, fault := range []faultkv.Fault{faultkv.UnknownCommitted, faultkv.UnknownNotCommitted} {
		for name, c := range map[string]struct {
			second  func(tx kv.Transaction, end func()) error // the second run
			unknown bool
			is      error
		}{
			"in the function": {func(tx kv.Transaction, end func()) error { end(); return kv.ErrNotCommitted }, true, context.Canceled},
			"function failed": {func(kv.Transaction, func()) error { return failure }, false, failure},
			"function saw it": {func(_ kv.Transaction, end func()) error { end(); return context.Canceled }, true, context.Canceled},
		} {
			t.Run(fmt.Sprint(fault, " ", name), func(t *testing.T) {
				t.Parallel()
				inBubble(t, faultkv.Options{Script: faultkv.At(faultkv.Commit, 1, fault)}, func(t *testing.T, b *bundle) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					runs := 0
					err := b.db.Transact(ctx, func(tx kv.Transaction) error {
						if runs++; runs == 2 {
							return c.second(tx, cancel)
						}
						return write("k")(tx)
					})
					require.ErrorIs(t, err, c.is)
					assert.Equal(t, c.unknown, errors.Is(err, kv.ErrCommitUnknown))
				})
			})
		}
	}
}

// TestEndBetweenRuns: the same holds if ctx ends before there is another run.
func TestEndBetweenRuns(t *testing.T) {
	t.Parallel()
	for _, fault := range []faultkv.Fault{faultkv.UnknownCommitted, faultkv.UnknownNotCommitted} {
		ctx, cancel := context.WithCancel(context.Background())
		opts := faultkv.Options{Script: func(call faultkv.Call) faultkv.Fault {
			if call.Op != faultkv.Commit {
				return faultkv.None
			}
			cancel()
			return fault
		}}
		inBubble(t, opts, func(t *testing.T, b *bundle) {
			err := b.db.Transact(ctx, write("k"))
			require.ErrorIs(t, err, kv.ErrCommitUnknown)
			require.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, fault == faultkv.UnknownCommitted, b.value(t, "k") == "written")
		})
	}
}

// TestEndDuringDelay: if ctx ends during a commit, its result is unknown. The commit may or may not have been made.
func TestEndDuringDelay(t *testing.T) {
	t.Parallel()
	made := map[bool]int{}
	for seed := range uint64(40) {
		opts := faultkv.Options{
			Seed:   seed,
			Script: faultkv.At(faultkv.Commit, 1, faultkv.Delay),
			Delays: fixed(time.Second),
		}
		inBubble(t, opts, func(t *testing.T, b *bundle) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			defer cancel()
			var watch kv.Watch
			start := time.Now()
			err := b.db.Transact(ctx, func(tx kv.Transaction) error {
				watch = tx.Watch([]byte("w"))
				return write("k")(tx)
			})
			require.ErrorIs(t, err, kv.ErrCommitUnknown)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, time.Second/2, time.Since(start))
			require.ErrorIs(t, watch.Wait(t.Context()), kv.ErrWatchCancelled)
			made[b.value(t, "k") == "written"]++
		})
	}
	assert.NotZero(t, made[true])
	assert.NotZero(t, made[false])
}

// TestReportsAreTrue: of random transactions under all faults, each run had the effect that its report allows.
func TestReportsAreTrue(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		opts := faultkv.Options{Seed: seed, Rates: faultkv.Rates{
			faultkv.Conflict: 0.2, faultkv.UnknownCommitted: 0.2, faultkv.UnknownNotCommitted: 0.2,
			faultkv.TooOld: 0.1, faultkv.Delay: 0.3,
		}}
		inBubble(t, opts, func(t *testing.T, b *bundle) {
			for n := range 100 {
				run := 0
				require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
					run++
					return write(fmt.Sprintf("%d/%d", n+1, run))(tx)
				}))
				assert.Equal(t, "written", b.value(t, fmt.Sprintf("%d/%d", n+1, run)), "the last run")
			}
			for _, e := range b.events {
				want := "<none>"
				switch e.Fault {
				case faultkv.Delay:
					continue
				case faultkv.UnknownCommitted:
					want = "written"
				default:
				}
				assert.Equal(t, want, b.value(t, fmt.Sprintf("%d/%d", e.Call.Transaction, e.Call.Run)), "%v", e)
			}
			for _, fault := range []faultkv.Fault{
				faultkv.Conflict, faultkv.UnknownCommitted, faultkv.UnknownNotCommitted, faultkv.TooOld, faultkv.Delay,
			} {
				assert.NotZero(t, b.db.Hits(fault), "%v", fault)
			}
		})
	}
}

// TestPanic: a function that panics leaves no watch behind.
func TestPanic(t *testing.T) {
	t.Parallel()
	inBubble(t, faultkv.Options{}, func(t *testing.T, b *bundle) {
		var watch kv.Watch
		require.PanicsWithValue(t, "oh", func() {
			_ = b.db.Transact(t.Context(), func(tx kv.Transaction) error {
				watch = tx.Watch([]byte("k"))
				panic("oh")
			})
		})
		require.ErrorIs(t, watch.Wait(t.Context()), kv.ErrWatchCancelled)
		require.NoError(t, b.db.Close())
	})
}
