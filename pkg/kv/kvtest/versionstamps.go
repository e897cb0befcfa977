package kvtest

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// stampedKey appends to key, a key of the database, the commit's stamp and the writer's two bytes.
func stampedKey(key []byte, order uint16) []byte {
	offset := uint32(len(key))
	key = append(key, make([]byte, len(kv.Versionstamp{}))...)
	key = binary.BigEndian.AppendUint16(key, order)
	return binary.LittleEndian.AppendUint32(key, offset)
}

// stampedValue returns a value of text, a stamp and the writer's two bytes.
func stampedValue(text string, order uint16) []byte { return stampedKey([]byte(text), order) }

func testVersionstamps(t *testing.T, b *bench) {
	last := ""
	for i := range 20 {
		b.write(func(tx kv.Transaction) {
			tx.SetVersionstampedKey(stampedKey(b.key("k/"), 1), []byte("one"))
			tx.SetVersionstampedKey(stampedKey(b.key("k/"), 2), []byte("two"))
			tx.SetVersionstampedValue(b.key("v"), stampedValue("at ", 3))
		})
		value := b.value("v")
		require.Len(t, value, len("at ")+12)
		stamp := value[len("at "):][:10]
		require.Equal(t, "at "+stamp+"\x00\x03", value)
		require.Greater(t, stamp, last, "stamps grow with each commit")
		last = stamp
		require.Equal(t, "one", b.value("k/"+stamp+"\x00\x01"))
		require.Equal(t, "two", b.value("k/"+stamp+"\x00\x02"))
		b.read(func(tx kv.Transaction) {
			require.Len(t, b.keys(tx, "k/", "k0", kv.RangeOptions{}), 2*(i+1))
		})
	}
	b.testManyStamps()
	b.testStampPlaces()
	b.testConcurrentStamps()
}

// testManyStamps: the writer's bytes distinguish the keys of one transaction.
func (b *bench) testManyStamps() {
	const many = 1000
	b.write(func(tx kv.Transaction) {
		for i := range many {
			tx.SetVersionstampedKey(stampedKey(b.key("many/"), uint16(i)), fmt.Append(nil, i))
		}
	})
	b.read(func(tx kv.Transaction) {
		pairs, err := tx.GetRange(b.between("many/", "many0"), kv.RangeOptions{}).Slice()
		b.check(err)
		require.Len(b.t, pairs, many)
		for i, pair := range pairs {
			require.Equal(b.t, fmt.Sprint(i), string(pair.Value), "the writer's bytes decide their order")
		}
	})
}

// testStampPlaces: a stamp may be at any position, and the bytes around it are kept.
func (b *bench) testStampPlaces() {
	const stamp = "..........."
	template := func(before, after string) []byte {
		text := before + stamp[:10] + after
		return binary.LittleEndian.AppendUint32([]byte(text), uint32(len(before)))
	}
	b.reset("place", "x")
	b.write(func(tx kv.Transaction) {
		tx.SetVersionstampedKey(template(b.data+"key ", " behind"), []byte("k"))
		tx.SetVersionstampedValue(b.key("value"), template("", ""))
		tx.SetVersionstampedValue(b.key("long"), template("before ", " behind"))
	})
	at := b.value("value")
	require.Len(b.t, at, 10)
	b.read(func(tx kv.Transaction) {
		require.Equal(b.t, []string{
			"key " + at + " behind=k",
			"long=before " + at + " behind",
			"place=x",
			"value=" + at,
		}, b.pairs(tx, b.all(), kv.RangeOptions{}))
	})
}

// testConcurrentStamps: stamps are unique.
func (b *bench) testConcurrentStamps() {
	const writers, commits = 8, 25
	var group sync.WaitGroup
	errs := make(chan error, writers)
	for w := range writers {
		group.Go(func() {
			for i := range commits {
				err := b.once(func(tx kv.Transaction) {
					tx.SetVersionstampedKey(stampedKey(b.key("c/"), 0), fmt.Append(nil, w, i))
				})
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	require.NoError(b.t, <-errs)
	b.read(func(tx kv.Transaction) {
		require.Len(b.t, b.keys(tx, "c/", "c0", kv.RangeOptions{}), writers*commits)
	})
}

// testUnreadable: a transaction cannot read what it wrote with a versionstamp, but it can read the keys next to it.
func testUnreadable(t *testing.T, b *bench) {
	b.set("a", "1", "v", "2")
	stamped := func(tx kv.Transaction) {
		tx.SetVersionstampedKey(stampedKey(b.key("k/"), 0), nil)
		tx.SetVersionstampedValue(b.key("v"), stampedValue("", 0))
	}
	get := func(tx kv.ReadTransaction, key string) error {
		_, err := tx.Get(b.key(key)).Await()
		return err
	}
	slice := func(tx kv.ReadTransaction, begin, end string, opts kv.RangeOptions) error {
		_, err := tx.GetRange(b.between(begin, end), opts).Slice()
		return err
	}
	for name, read := range map[string]func(tx kv.Transaction) error{
		"value":                func(tx kv.Transaction) error { return get(tx, "v") },
		"value as a snapshot":  func(tx kv.Transaction) error { return get(tx.Snapshot(), "v") },
		"range over the value": func(tx kv.Transaction) error { return slice(tx, "u", "w", kv.RangeOptions{}) },
		"range over the key":   func(tx kv.Transaction) error { return slice(tx, "k", "l", kv.RangeOptions{}) },
		"all, in reverse":      func(tx kv.Transaction) error { return slice(tx, "", "z", kv.RangeOptions{Reverse: true}) },
		"range as a snapshot":  func(tx kv.Transaction) error { return slice(tx.Snapshot(), "", "z", kv.RangeOptions{}) },
		"value set again": func(tx kv.Transaction) error {
			tx.Set(b.key("v"), []byte("3"))
			return get(tx, "v")
		},
		"value added to": func(tx kv.Transaction) error {
			tx.Add(b.key("v"), 1)
			return get(tx, "v")
		},
	} {
		err := b.failure(func(tx kv.Transaction) error {
			stamped(tx)
			return read(tx)
		})
		require.ErrorIs(t, err, kv.ErrUnreadable, name)
	}
	b.try(func(tx kv.Transaction) {
		stamped(tx)
		require.Equal(t, "1", b.get(tx, "a"))
		require.Equal(t, none, b.get(tx, "kk"))
		require.Equal(t, []string{"a"}, b.keys(tx, "", "k", kv.RangeOptions{}))
		require.Empty(t, b.keys(tx, "l", "m", kv.RangeOptions{}))
		// It can be read after it is cleared.
		tx.Clear(b.key("v"))
		require.Equal(t, none, b.get(tx, "v"))
		tx.ClearRange(b.between("k", "l"))
		require.Equal(t, []string{"a"}, b.keys(tx, "", "z", kv.RangeOptions{}))
	})
}
