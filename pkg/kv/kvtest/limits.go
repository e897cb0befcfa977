package kvtest

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// limitCase is an operation that must fail.
type limitCase struct {
	name string
	want error
	do   func(tx kv.Transaction)
}

func testLimits(t *testing.T, b *bench) {
	// A store with a prefix has less room for keys: at least nine tenths.
	long := b.key(string(bytes.Repeat([]byte("k"), kv.MaxKeySize*9/10-len(b.data))))
	b.write(func(tx kv.Transaction) { tx.Set(long, make([]byte, kv.MaxValueSize)) })
	b.read(func(tx kv.Transaction) {
		got, err := tx.Get(long).Await()
		b.check(err)
		require.Len(t, got, kv.MaxValueSize)
	})
	for _, c := range limitCases(b) {
		violate := func(tx kv.Transaction) {
			tx.Set(b.key("beside"), []byte(c.name))
			c.do(tx)
		}
		err := b.failure(func(tx kv.Transaction) error {
			violate(tx)
			return nil
		})
		require.ErrorIs(t, err, c.want, c.name)
		require.Equal(t, none, b.value("beside"), "%s: the transaction stores nothing", c.name)
	}
	for name, read := range map[string]func(tx kv.ReadTransaction) error{
		"get": func(tx kv.ReadTransaction) error { _, err := tx.Get([]byte("\xff/x")).Await(); return err },
		"range": func(tx kv.ReadTransaction) error {
			_, err := tx.GetRange(kv.KeyRange{Begin: b.key("a"), End: []byte("\xff\xff")}, kv.RangeOptions{}).Slice()
			return err
		},
	} {
		err := b.failure(func(tx kv.Transaction) error { return read(tx) })
		require.ErrorIs(t, err, kv.ErrKeyOutsideLegalRange, name)
		err = b.failure(func(tx kv.Transaction) error { return read(tx.Snapshot()) })
		require.ErrorIs(t, err, kv.ErrKeyOutsideLegalRange, name)
	}
	// The next read returns an error of a write too.
	err := b.failure(func(tx kv.Transaction) error {
		tx.Set(b.key("big"), make([]byte, kv.MaxValueSize+1))
		_, err := tx.Get(b.key("a")).Await()
		return err
	})
	require.ErrorIs(t, err, kv.ErrValueTooLarge)
	// Nine tenths of the largest transaction fit.
	b.write(func(tx kv.Transaction) {
		for i := range 89 {
			tx.Set(b.key(fmt.Sprint("big ", i)), make([]byte, kv.MaxValueSize))
		}
	})
	b.read(func(tx kv.Transaction) { require.Len(t, b.keys(tx, "big ", "big!", kv.RangeOptions{}), 89) })
}

func limitCases(b *bench) []limitCase {
	tooLong := b.key(string(bytes.Repeat([]byte("k"), kv.MaxKeySize+1)))
	tooMuch := make([]byte, kv.MaxValueSize+1)
	system := []byte("\xff/x")
	noRoom := []byte("short\x00\x00\x00\x00")
	return []limitCase{
		{"set of a long key", kv.ErrKeyTooLarge, func(tx kv.Transaction) { tx.Set(tooLong, nil) }},
		{"addition to a long key", kv.ErrKeyTooLarge,
			func(tx kv.Transaction) { tx.Add(tooLong, 1) }},
		{"stamped value of a long key", kv.ErrKeyTooLarge,
			func(tx kv.Transaction) { tx.SetVersionstampedValue(tooLong, stampedValue("", 0)) }},
		{"long stamped key", kv.ErrKeyTooLarge,
			func(tx kv.Transaction) { tx.SetVersionstampedKey(stampedKey(tooLong, 0), nil) }},
		{"long value", kv.ErrValueTooLarge, func(tx kv.Transaction) { tx.Set(b.key("v"), tooMuch) }},
		{"long value of a stamped key", kv.ErrValueTooLarge,
			func(tx kv.Transaction) { tx.SetVersionstampedKey(stampedKey(b.key("s"), 0), tooMuch) }},
		{"set of a system key", kv.ErrKeyOutsideLegalRange, func(tx kv.Transaction) { tx.Set(system, nil) }},
		{"clear of a system key", kv.ErrKeyOutsideLegalRange, func(tx kv.Transaction) { tx.Clear(system) }},
		{"clear of system keys", kv.ErrKeyOutsideLegalRange, func(tx kv.Transaction) {
			tx.ClearRange(kv.KeyRange{Begin: system, End: []byte("\xff/y")})
		}},
		{"addition to a system key", kv.ErrKeyOutsideLegalRange,
			func(tx kv.Transaction) { tx.Add(system, 1) }},
		{"read conflict with system keys", kv.ErrKeyOutsideLegalRange, func(tx kv.Transaction) {
			tx.AddReadConflictRange(kv.KeyRange{Begin: system, End: []byte("\xff/y")})
		}},
		{"write conflict with a system key", kv.ErrKeyOutsideLegalRange,
			func(tx kv.Transaction) { tx.AddWriteConflictKey(system) }},
		{"inverted clear", kv.ErrInvertedRange, func(tx kv.Transaction) { tx.ClearRange(b.between("b", "a")) }},
		{"inverted read conflict", kv.ErrInvertedRange,
			func(tx kv.Transaction) { tx.AddReadConflictRange(b.between("b", "a")) }},
		{"stamped key without room", kv.ErrInvalidOperation,
			func(tx kv.Transaction) { tx.SetVersionstampedKey(noRoom, nil) }},
		{"stamped key without an offset", kv.ErrInvalidOperation,
			func(tx kv.Transaction) { tx.SetVersionstampedKey([]byte("k"), nil) }},
		{"stamped value without room", kv.ErrInvalidOperation,
			func(tx kv.Transaction) { tx.SetVersionstampedValue(b.key("v"), noRoom) }},
		{"many writes", kv.ErrTransactionTooLarge, func(tx kv.Transaction) {
			for i := range 110 {
				tx.Set(b.key(fmt.Sprint("big ", i)), make([]byte, kv.MaxValueSize))
			}
		}},
		{"very many small writes", kv.ErrTransactionTooLarge, func(tx kv.Transaction) {
			for i := range 100_000 {
				tx.Set(b.key(fmt.Sprint("small ", i)), nil)
			}
		}},
		{"many clears", kv.ErrTransactionTooLarge, func(tx kv.Transaction) {
			for i := range 1400 {
				tx.Clear(b.key(fmt.Sprintf("%06d%2000d", i, 0)))
			}
		}},
		{"many conflicts", kv.ErrTransactionTooLarge, func(tx kv.Transaction) {
			for i := range 1300 {
				key := b.key(fmt.Sprintf("%06d%8000d", i, 0))
				tx.AddReadConflictKey(key)
				tx.AddWriteConflictKey(key)
			}
		}},
	}
}

// testAge: a transaction reads for a tenth less than five seconds, and commits nothing after them. A later read is of
// the transaction's version, or an error: FoundationDB drops old versions when it has the time for it, an engine whose
// clock the test moves at once.
func testAge(t *testing.T, b *bench) {
	const tenth = kv.MaxTransactionAge / 10
	for name, read := range map[string]func(tx kv.Transaction, key []byte) ([]byte, error){
		"get":      func(tx kv.Transaction, key []byte) ([]byte, error) { return tx.Get(key).Await() },
		"snapshot": func(tx kv.Transaction, key []byte) ([]byte, error) { return tx.Snapshot().Get(key).Await() },
		"range": func(tx kv.Transaction, key []byte) ([]byte, error) {
			pairs, err := tx.GetRange(kv.PrefixRange(key), kv.RangeOptions{}).Slice()
			if err != nil || len(pairs) == 0 {
				return nil, err
			}
			return pairs[0].Value, nil
		},
		"commit": nil,
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{t: t, db: b.db, data: b.data + name + " ", marks: b.marks}
			_, moves := b.db.(Advancer)
			if !moves {
				t.Parallel()
			}
			b.set("k", "1", "m", "1")
			runs, done := 0, false
			b.read(func(tx kv.Transaction) {
				if done {
					return // the next run
				}
				runs++
				before := fmt.Sprint("run ", runs)
				b.set("l1", before, "l2", before, "l3", before)
				b.get(tx, "k")
				b.pass(kv.MaxTransactionAge - tenth)
				b.get(tx, "m")
				b.set("l1", "later", "l2", "later", "l3", "later")
				b.pass(2 * tenth)
				done = true
				if read == nil {
					tx.Set(b.key("late"), nil)
					return
				}
				for _, key := range []string{"l1", "l2", "l3"} { // a client may know what it has read before
					value, err := read(tx, b.key(key))
					if err != nil {
						require.ErrorIs(t, err, kv.ErrTransactionTooOld)
						return
					}
					require.False(t, moves, "reads after more than five seconds")
					require.Equal(t, before, string(value))
					b.pass(tenth)
				}
			})
			require.Equal(t, none, b.value("late"))
		})
	}
}

// pass lets d pass for the database.
func (b *bench) pass(d time.Duration) {
	if db, ok := b.db.(Advancer); ok {
		db.Advance(d)
		return
	}
	timer, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	<-timer.Done()
}
