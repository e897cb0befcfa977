package kvtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// metadata returns the metadata version that a transaction sees.
func (b *bench) metadata(tx kv.ReadTransaction) string {
	b.t.Helper()
	version, err := tx.MetadataVersion().Await()
	b.check(err)
	return string(version[:])
}

// testMetadataVersion tests the metadata version. Other tests, and other stores of the cluster, may change it at any
// time.
func testMetadataVersion(t *testing.T, b *bench) {
	b.testMetadataStamps()
	b.testMetadataOfView()
	for name, read := range map[string]func(tx kv.Transaction) kv.ReadTransaction{
		"itself":   func(tx kv.Transaction) kv.ReadTransaction { return tx },
		"snapshot": func(tx kv.Transaction) kv.ReadTransaction { return tx.Snapshot() },
	} {
		require.ErrorIs(t, b.failure(func(tx kv.Transaction) error {
			tx.ChangeMetadataVersion()
			_, err := read(tx).MetadataVersion().Await()
			return err
		}), kv.ErrUnreadable, name)
	}
	var ended kv.Transaction
	b.read(func(tx kv.Transaction) { ended = tx })
	_, err := ended.MetadataVersion().Await()
	require.ErrorIs(t, err, kv.ErrUsedAfterEnd)
}

// testMetadataStamps: the metadata version becomes the stamp of the commit that changes it.
func (b *bench) testMetadataStamps() {
	for range 5 {
		b.write(func(tx kv.Transaction) {
			tx.SetVersionstampedValue(b.key("v"), stampedValue("", 0))
			tx.ChangeMetadataVersion()
		})
		b.read(func(tx kv.Transaction) {
			stamp := b.get(tx, "v")[:10]
			require.GreaterOrEqual(b.t, b.metadata(tx), stamp)
			require.GreaterOrEqual(b.t, b.metadata(tx.Snapshot()), stamp)
		})
	}
	last := ""
	b.read(func(tx kv.Transaction) { last = b.metadata(tx) })
	b.write(func(tx kv.Transaction) { tx.ChangeMetadataVersion() }) // and nothing else
	b.read(func(tx kv.Transaction) { require.Greater(b.t, b.metadata(tx), last) })
}

// testMetadataOfView: a transaction sees a change if, and only if, it sees what was committed with it.
func (b *bench) testMetadataOfView() {
	change := func(tx kv.Transaction) {
		tx.SetVersionstampedValue(b.key("v"), stampedValue("", 0))
		tx.ChangeMetadataVersion()
	}
	b.write(change)
	b.read(func(tx kv.Transaction) {
		before := b.get(tx, "v")[:10]
		b.write(change)
		require.Equal(b.t, before, b.get(tx, "v")[:10])
		seen := b.metadata(tx)
		require.GreaterOrEqual(b.t, seen, before)
		b.read(func(later kv.Transaction) {
			after := b.get(later, "v")[:10]
			require.Less(b.t, seen, after)
			require.GreaterOrEqual(b.t, b.metadata(later), after)
		})
	})
}
