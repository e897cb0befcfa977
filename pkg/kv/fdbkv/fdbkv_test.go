//go:build fdb

package fdbkv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/fdbkv"
)

// patience is the longest time that a test waits for an event.
const patience = 2 * time.Minute

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// do runs fn in a transaction that must succeed.
func do(t *testing.T, db kv.Database, fn func(tx kv.Transaction)) {
	t.Helper()
	require.NoError(t, db.Transact(patient(t), func(tx kv.Transaction) error {
		fn(tx)
		return nil
	}))
}

// contents returns the pairs of a store as key=value.
func contents(t *testing.T, db kv.Database) []string {
	t.Helper()
	pairs, err := kv.TransactValue(patient(t), db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
		return tx.GetRange(everything, kv.RangeOptions{}).Slice()
	})
	require.NoError(t, err)
	all := []string{}
	for _, pair := range pairs {
		all = append(all, string(pair.Key)+"="+string(pair.Value))
	}
	return all
}

// TestPrefix: a store sees and changes only the keys with its prefix.
func TestPrefix(t *testing.T) {
	t.Parallel()
	outer, prefix := empty(t)
	inner := open(t, cluster(t), prefix+"p")
	neighbours := []string{"o=", "o\xff\xff=", "q=", "q\x00="}
	do(t, outer, func(tx kv.Transaction) {
		for _, pair := range neighbours {
			tx.Set([]byte(strings.TrimSuffix(pair, "=")), nil)
		}
	})
	require.Empty(t, contents(t, inner))
	do(t, inner, func(tx kv.Transaction) {
		tx.Set(nil, []byte("first"))
		tx.Set([]byte("m"), []byte("1"))
		tx.SetVersionstampedKey([]byte("s0123456789\x01\x00\x00\x00"), []byte("last"))
	})
	found := contents(t, inner)
	require.Len(t, found, 3)
	require.Equal(t, []string{"=first", "m=1"}, found[:2])
	require.Len(t, found[2], len("s0123456789=last"))
	require.True(t, strings.HasPrefix(found[2], "s") && strings.HasSuffix(found[2], "=last"), "%q", found[2])
	do(t, inner, func(tx kv.Transaction) { tx.ClearRange(everything) })
	require.Equal(t, neighbours, contents(t, outer))
}

// TestPrefixConflicts: keys outside a store do not make its transactions conflict.
func TestPrefixConflicts(t *testing.T) {
	t.Parallel()
	outer, prefix := empty(t)
	inner := open(t, cluster(t), prefix+"p")
	do(t, inner, func(tx kv.Transaction) { tx.Set([]byte("k"), nil) })
	for name, read := range map[string]func(tx kv.Transaction) error{
		"range": func(tx kv.Transaction) error {
			_, err := tx.GetRange(everything, kv.RangeOptions{}).Slice()
			return err
		},
		"reverse": func(tx kv.Transaction) error {
			_, err := tx.GetRange(everything, kv.RangeOptions{Limit: 10, Reverse: true}).Slice()
			return err
		},
	} {
		// A cluster may run a transaction again for its own reasons, but hardly each one.
		free := false
		for range 5 {
			free = free || runsOnce(t, inner, read, func() {
				do(t, outer, func(tx kv.Transaction) {
					tx.Set([]byte("o"), nil)
					tx.Set([]byte("q"), nil)
				})
			})
		}
		require.True(t, free, "%s: conflicts with writes beside the store", name)
		do(t, inner, func(tx kv.Transaction) { tx.Clear([]byte("out")) })
	}
}

// runsOnce reports whether the first run of a transaction that reads and writes commits although beside was committed
// in between.
func runsOnce(t *testing.T, db kv.Database, read func(tx kv.Transaction) error, beside func()) bool {
	t.Helper()
	runs := 0
	require.NoError(t, db.Transact(patient(t), func(tx kv.Transaction) error {
		runs++
		if err := read(tx); err != nil {
			return err
		}
		if runs == 1 {
			beside()
		}
		tx.Set([]byte("out"), nil)
		return nil
	}))
	return runs == 1
}

func TestPrefixCountsTowardsKeySize(t *testing.T) {
	t.Parallel()
	db, prefix := empty(t)
	longest := bytes.Repeat([]byte("k"), kv.MaxKeySize-len(prefix))
	do(t, db, func(tx kv.Transaction) {
		tx.Set(longest, []byte("v"))
		value, err := tx.Get(longest).Await()
		require.NoError(t, err)
		require.Equal(t, "v", string(value))
		tx.ClearRange(kv.KeyRange{Begin: longest, End: kv.KeyAfter(longest)})
	})
	for name, write := range map[string]func(tx kv.Transaction){
		"set":   func(tx kv.Transaction) { tx.Set(kv.KeyAfter(longest), nil) },
		"clear": func(tx kv.Transaction) { tx.Clear(kv.KeyAfter(longest)) },
		"add":   func(tx kv.Transaction) { tx.Add(kv.KeyAfter(longest), 1) },
		"count": func(tx kv.Transaction) { tx.AddOrClear(kv.KeyAfter(longest), 1) },
		"stamp": func(tx kv.Transaction) { tx.SetVersionstampedKey(make([]byte, len(longest)+1), nil) },
		"range": func(tx kv.Transaction) {
			tx.ClearRange(kv.KeyRange{Begin: []byte("a"), End: bytes.Repeat([]byte("k"), len(longest)+2)})
		},
		"conflict": func(tx kv.Transaction) { tx.AddWriteConflictKey(kv.KeyAfter(longest)) },
	} {
		err := db.Transact(patient(t), func(tx kv.Transaction) error {
			write(tx)
			return nil
		})
		require.ErrorIs(t, err, kv.ErrKeyTooLarge, name)
	}
}

// TestContextEnds: an ended ctx ends Transact, and nothing is committed.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	db, _ := empty(t)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	err := db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Set([]byte("k"), nil)
		cancel(cause)
		return nil
	})
	require.ErrorIs(t, err, cause)
	require.NotErrorIs(t, err, kv.ErrCommitUnknown)
	err = db.Transact(ctx, func(kv.Transaction) error {
		t.Error("a function runs after the end of its context")
		return nil
	})
	require.ErrorIs(t, err, cause)

	ctx, cancelTimeout := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancelTimeout()
	err = db.Transact(ctx, func(tx kv.Transaction) error {
		for {
			if _, err := tx.Get([]byte("k")).Await(); err != nil {
				return fmt.Errorf("reading: %w", err)
			}
		}
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, kv.ErrCommitUnknown)

	ctx, cancelTimeout = context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancelTimeout()
	err = db.Transact(ctx, func(tx kv.Transaction) error { return kv.ErrNotCommitted })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Empty(t, contents(t, db))
}

// TestContextEndsAtAnyMoment: if ctx ends during a commit, what Transact returns about the commit is true, at once and
// later.
func TestContextEndsAtAnyMoment(t *testing.T) {
	t.Parallel()
	db, _ := empty(t)
	const workers, attempts = 4, 100
	var group sync.WaitGroup
	refused := make(chan string, workers*attempts)
	for worker := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 19))
			for i := range attempts {
				key := fmt.Sprintf("%d/%d", worker, i)
				ctx, cancel := context.WithCancel(context.Background())
				timer := time.AfterFunc(time.Duration(random.IntN(5_000))*time.Microsecond, cancel)
				err := db.Transact(ctx, func(tx kv.Transaction) error {
					if _, err := tx.Get([]byte(key)).Await(); err != nil {
						return err
					}
					tx.Set([]byte(key), nil)
					return nil
				})
				timer.Stop()
				cancel()
				switch {
				case err == nil:
					value, err := kv.TransactValue(patient(t), db, func(tx kv.Transaction) ([]byte, error) {
						return tx.Get([]byte(key)).Await()
					})
					if err != nil || value == nil {
						refused <- fmt.Sprintf("%s: committed and not there (%v)", key, err)
					}
				case !errors.Is(err, context.Canceled):
					refused <- fmt.Sprintf("%s: %v", key, err)
				case !errors.Is(err, kv.ErrCommitUnknown):
					refused <- key
				}
			}
		})
	}
	group.Wait()
	close(refused)
	there := strings.Join(contents(t, db), " ")
	for key := range refused {
		require.Regexp(t, `^\d+/\d+$`, key)
		require.NotContains(t, there+" ", key+"= ", "an attempt that said it had not committed")
	}
}

func TestRetries(t *testing.T) {
	t.Parallel()
	db, _ := empty(t)
	for _, code := range []int{1007, 1009, 1020, 1021, 1037, 1038, 1039, 1042, 1051, 1078, 1213, 1223} {
		injected := &kv.Error{Code: code, Text: "injected"}
		require.True(t, kv.Retryable(injected))
		key, runs := fmt.Appendf(nil, "after %d", code), 0
		require.NoError(t, db.Transact(patient(t), func(tx kv.Transaction) error {
			if runs++; runs == 1 {
				tx.Set([]byte("of the first run"), nil)
				return fmt.Errorf("wrapped: %w", injected)
			}
			tx.Set(key, nil)
			return nil
		}), code)
		require.GreaterOrEqual(t, runs, 2)
	}
	require.Len(t, contents(t, db), 12)
	for _, failure := range []error{
		errors.New("no"), kv.ErrValueTooLarge, kv.ErrWatchCancelled, &kv.Error{},
		fmt.Errorf("wrapped: %w", kv.ErrUnreadable),
	} {
		runs := 0
		err := db.Transact(patient(t), func(tx kv.Transaction) error {
			runs++
			tx.Set([]byte("failed"), nil)
			return failure
		})
		require.Same(t, failure, err)
		require.Equal(t, 1, runs)
	}
	require.Len(t, contents(t, db), 12)
}

// TestSlow: a transaction that is repeated for long is reported with its last error.
func TestSlow(t *testing.T) {
	t.Parallel()
	var reports []kv.Slow
	db, err := fdbkv.Open(t.Context(), cluster(t), fdbkv.Options{Prefix: []byte(randomPrefix()), Options: kv.Options{
		SlowAfter: time.Millisecond, Slow: func(s kv.Slow) { reports = append(reports, s) },
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	runs := 0
	require.NoError(t, db.Transact(patient(t), func(kv.Transaction) error {
		if runs++; len(reports) == 0 {
			time.Sleep(time.Millisecond)
			return kv.ErrNotCommitted
		}
		return nil
	}))
	require.Len(t, reports, 1)
	require.Equal(t, runs-1, reports[0].Runs)
	require.ErrorIs(t, reports[0].Err, kv.ErrNotCommitted)
}

// TestErrorOfRead: an error of the client arrives with its code, and is retried when the function returns it.
func TestErrorOfRead(t *testing.T) {
	t.Parallel()
	db, _ := empty(t)
	runs := 0
	err := db.Transact(patient(t), func(tx kv.Transaction) error {
		if runs++; runs == 2 {
			return errors.New("ran again")
		}
		tx.SetVersionstampedValue([]byte("k"), make([]byte, 14))
		_, err := tx.Get([]byte("k")).Await()
		require.ErrorIs(t, err, kv.ErrUnreadable)
		require.ErrorContains(t, err, "1036")
		return kv.ErrTransactionTooOld
	})
	require.EqualError(t, err, "ran again")
}

func TestUsedAfterEnd(t *testing.T) {
	t.Parallel()
	db, _ := empty(t)
	do(t, db, func(tx kv.Transaction) { tx.Set([]byte("k"), []byte("v")) })
	var (
		stale  kv.Transaction
		result kv.RangeResult
		value  kv.Future[[]byte]
	)
	do(t, db, func(tx kv.Transaction) {
		stale, result = tx, tx.GetRange(everything, kv.RangeOptions{})
		value = tx.Get([]byte("k"))
		got, err := value.Await()
		require.NoError(t, err)
		require.Equal(t, "v", string(got))
	})
	got, err := value.Await()
	require.NoError(t, err, "a future may be awaited several times")
	require.Equal(t, "v", string(got))

	stale.Set([]byte("late"), nil)
	stale.ClearRange(everything)
	for name, err := range map[string]error{
		"get":      last(stale.Get([]byte("k")).Await()),
		"snapshot": last(stale.Snapshot().Get([]byte("k")).Await()),
		"range":    last(stale.GetRange(everything, kv.RangeOptions{}).Slice()),
		"version":  last(stale.ReadVersion().Await()),
		"watch":    stale.Watch([]byte("k")).Wait(patient(t)),
	} {
		require.ErrorIs(t, err, kv.ErrUsedAfterEnd, name)
	}
	require.Error(t, last(result.Slice()))
	for _, err := range result.All() {
		require.Error(t, err)
	}
	require.Equal(t, []string{"k=v"}, contents(t, db))
}

// last returns the error of a result.
func last[T any](_ T, err error) error { return err }

// TestLargeRange: a range of many batches is the same by All and Slice.
func TestLargeRange(t *testing.T) {
	t.Parallel()
	db, _ := empty(t)
	const pairs = 3_000
	want := make([]string, pairs)
	do(t, db, func(tx kv.Transaction) {
		for i := range want {
			want[i] = fmt.Sprintf("%06d=%0500d", i, i)
			key, value, _ := strings.Cut(want[i], "=")
			tx.Set([]byte(key), []byte(value))
		}
	})
	require.Equal(t, want, contents(t, db))
	for _, opts := range []kv.RangeOptions{
		{}, {Limit: 1_234}, {Limit: -1}, {Limit: 1 << 40},
	} {
		n := pairs
		if opts.Limit > 0 {
			n = min(n, opts.Limit)
		}
		for _, opts.Reverse = range []bool{false, true} {
			require.NoError(t, db.Transact(patient(t), func(tx kv.Transaction) error { // which repeats what takes too long
				result, i := tx.GetRange(everything, opts), 0
				for pair, err := range result.All() {
					if err != nil {
						return err
					}
					at := i
					if opts.Reverse {
						at = pairs - 1 - i
					}
					require.Equal(t, want[at], string(pair.Key)+"="+string(pair.Value))
					i++
				}
				require.Equal(t, n, i, "%+v", opts)
				all, err := tx.GetRange(everything, opts).Slice()
				if err != nil {
					return err
				}
				require.Len(t, all, n, "%+v", opts)
				return nil
			}))
		}
	}
}

func TestMaxWatches(t *testing.T) {
	t.Parallel()
	db, err := fdbkv.Open(t.Context(), ownClusterFile(t), fdbkv.Options{Prefix: []byte(randomPrefix()), MaxWatches: 2})
	require.NoError(t, err)
	watch := func(key string) (w kv.Watch) {
		do(t, db, func(tx kv.Transaction) { w = tx.Watch([]byte(key)) })
		return w
	}
	first, second := watch("a"), watch("b")
	require.ErrorIs(t, watch("c").Wait(patient(t)), kv.ErrTooManyWatches)
	first.Cancel()
	third := watch("c")
	require.ErrorIs(t, first.Wait(patient(t)), kv.ErrWatchCancelled)
	do(t, db, func(tx kv.Transaction) {
		tx.Set([]byte("b"), nil)
		tx.Set([]byte("c"), nil)
	})
	require.NoError(t, second.Wait(patient(t)))
	require.NoError(t, third.Wait(patient(t)))
	do(t, db, func(tx kv.Transaction) { tx.ClearRange(everything) })
	require.NoError(t, db.Close())
}

// TestWatchOutlivesTransaction: neither the end of a transaction's context nor its deadline ends a watch.
func TestWatchOutlivesTransaction(t *testing.T) {
	t.Parallel()
	db, _ := empty(t)
	var w kv.Watch
	for timeout, done := 100*time.Millisecond, false; !done; timeout *= 2 {
		require.Less(t, timeout, patience)
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		err := db.Transact(ctx, func(tx kv.Transaction) error {
			w = tx.Watch([]byte("k"))
			tx.Set([]byte("other"), nil)
			return nil
		})
		done = err == nil
		<-ctx.Done()
	}
	do(t, db, func(tx kv.Transaction) { tx.Set([]byte("k"), nil) })
	require.NoError(t, w.Wait(patient(t)))

	var cancelled kv.Watch
	do(t, db, func(tx kv.Transaction) {
		cancelled = tx.Watch([]byte("k"))
		cancelled.Cancel()
	})
	require.ErrorIs(t, cancelled.Wait(patient(t)), kv.ErrWatchCancelled)
}

func TestClose(t *testing.T) {
	t.Parallel()
	db, err := fdbkv.Open(t.Context(), cluster(t), fdbkv.Options{Prefix: []byte(randomPrefix())})
	require.NoError(t, err)
	var w kv.Watch
	do(t, db, func(tx kv.Transaction) { w = tx.Watch([]byte("k")) })

	inside, proceed := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		var once sync.Once
		ended <- db.Transact(context.Background(), func(tx kv.Transaction) error {
			once.Do(func() { close(inside) })
			<-proceed
			_, err := tx.Get([]byte("k")).Await()
			return err
		})
	}()
	<-inside
	closed := make(chan error, 1)
	go func() { closed <- db.Close() }()
	// Close has begun once transactions are refused, and it still waits.
	for ctx := patient(t); !errors.Is(db.Transact(ctx, func(kv.Transaction) error { return nil }), kv.ErrClosed); {
		require.NoError(t, ctx.Err())
	}
	require.Empty(t, closed)
	close(proceed)
	require.NoError(t, <-ended)
	require.NoError(t, <-closed)
	require.ErrorIs(t, w.Wait(patient(t)), kv.ErrClosed)
	w.Cancel()
	require.ErrorIs(t, db.Close(), kv.ErrClosed)
}

// TestPanic: a function that panics leaves nothing behind.
func TestPanic(t *testing.T) {
	t.Parallel()
	db, _ := empty(t)
	var w kv.Watch
	require.PanicsWithValue(t, "no", func() {
		_ = db.Transact(patient(t), func(tx kv.Transaction) error {
			tx.Set([]byte("k"), nil)
			w = tx.Watch([]byte("k"))
			panic("no")
		})
	})
	require.ErrorIs(t, w.Wait(patient(t)), kv.ErrWatchCancelled)
	require.Empty(t, contents(t, db))
}
