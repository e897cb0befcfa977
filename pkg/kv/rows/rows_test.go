package rows_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

func transact(t *testing.T, fn func(tx kv.Transaction) error) {
	t.Helper()
	db, err := memkv.Open(memkv.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Transact(t.Context(), fn))
}

func TestChunks(t *testing.T) {
	t.Parallel()
	s := tuple.SubspaceFromBytes([]byte("s"))
	for size, want := range map[int]int64{
		0: 1, 1: 1, rows.ChunkSize: 1, rows.ChunkSize + 1: 2, 3 * rows.ChunkSize: 3,
	} {
		data := bytes.Repeat([]byte("x"), size)
		transact(t, func(tx kv.Transaction) error {
			none, err := rows.JoinChunks(tx.GetRange(rows.Range(s), kv.RangeOptions{}))
			assert.Nil(t, none)
			require.NoError(t, err)
			assert.Equal(t, want, rows.SetChunks(tx, s, data))
			assert.Equal(t, want, rows.Chunks(size))
			got, err := rows.JoinChunks(tx.GetRange(rows.Range(s), kv.RangeOptions{}))
			assert.NotNil(t, got)
			assert.True(t, bytes.Equal(data, got))
			return err
		})
	}
}

func TestInts(t *testing.T) {
	t.Parallel()
	transact(t, func(tx kv.Transaction) error {
		n, err := rows.AwaitInt(tx.Get([]byte("n")))
		require.NoError(t, err)
		assert.Zero(t, n)
		tx.Set([]byte("n"), rows.Int(-3))
		tx.Add([]byte("n"), 45)
		n, err = rows.AwaitInt(tx.Get([]byte("n")))
		assert.EqualValues(t, 42, n)
		return err
	})
	_, err := rows.ParseInt([]byte("no"))
	require.ErrorIs(t, err, tuple.ErrMalformed)
}

func TestLastString(t *testing.T) {
	t.Parallel()
	s := tuple.SubspaceFromBytes([]byte("s"))
	last, err := rows.LastString(s, s.Pack(int64(1), "id"))
	require.NoError(t, err)
	assert.Equal(t, "id", last)
	for _, key := range [][]byte{s.Pack(), s.Pack("id", int64(1))} {
		_, err := rows.LastString(s, key)
		require.ErrorIs(t, err, tuple.ErrMalformed)
	}
	_, err = rows.LastString(s, []byte("other"))
	require.ErrorIs(t, err, tuple.ErrNotInSubspace)
}

// TestScan: elements are stored by their types, null only where it may be, and everything else is malformed.
func TestScan(t *testing.T) {
	t.Parallel()
	var name string
	var n int64
	var maybe, missing *int64
	value := tuple.Tuple{"a", int64(1), int64(2), nil, "not needed"}
	require.NoError(t, rows.Scan("a value", value.Pack(), &name, &n, &maybe, &missing, nil))
	assert.Equal(t, "a", name)
	assert.EqualValues(t, 1, n)
	assert.EqualValues(t, 2, *maybe)
	assert.Nil(t, missing)
	for of, packed := range map[string][]byte{
		"no tuple": {0xfe}, "too few elements": tuple.Tuple{"a"}.Pack(), "too many": tuple.Tuple{"a", int64(1), nil, nil}.Pack(),
		"another type": tuple.Tuple{"a", "b", nil}.Pack(), "null": tuple.Tuple{nil, int64(1), nil}.Pack(),
		"another type that may be null": tuple.Tuple{"a", int64(1), "b"}.Pack(),
	} {
		err := rows.Scan("a value", packed, &name, &n, &maybe)
		require.ErrorIs(t, err, tuple.ErrMalformed, of)
		require.ErrorContains(t, err, "reading a value", of)
	}
	s := tuple.SubspaceFromBytes([]byte("s"))
	require.NoError(t, rows.ScanKey("a key", s, s.Pack("b", int64(3)), &name, &n))
	assert.Equal(t, "b", name)
	require.ErrorIs(t, rows.ScanKey("a key", s, []byte("other"), &name), tuple.ErrNotInSubspace)
	assert.False(t, rows.Store(tuple.Tuple{true}, &n))
}
