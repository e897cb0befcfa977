package docstore_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/tuple"
)

// TestCorrupt: a row that no version of the package has written is an error, not a document.
func TestCorrupt(t *testing.T) {
	t.Parallel()
	b := newBundle(t, enginetest.Memory(t), docstore.Options{})
	ctx := t.Context()
	b.put(t, "d", "", `{}`)
	b.merge(t, "d", "2-x y")
	b.attach(t, "a", "", map[string]*docstore.Upload{"a": b.upload(t, "a", noise(10))})
	_, err := b.db.PutLocal(ctx, "_local/x", "", docjson.Body{})
	require.NoError(t, err)
	require.NoError(t, b.db.SetRevsLimit(ctx, 10))

	attachment := b.get(t, "a", docstore.GetOptions{}).Attachments[0]
	calls := func() error {
		_, info := b.db.Info(ctx)
		_, limit := b.db.RevsLimit(ctx)
		_, local := b.db.GetLocal(ctx, "_local/x")
		_, diff := b.db.RevsDiff(ctx, []docstore.RevsQuery{{ID: "d"}, {ID: "a"}})
		errs := []error{info, limit, local, diff}
		for _, id := range []string{"d", "a"} {
			_, get := b.db.Get(ctx, id, docstore.GetOptions{Sequence: true})
			_, all := b.db.Get(ctx, id, docstore.GetOptions{Conflicts: true})
			errs = append(errs, get, all, last(b.db.OpenRevs(ctx, id, docstore.OpenRevsOptions{})))
		}
		_, content := io.ReadAll(b.db.ReadAttachment(ctx, "a", attachment))
		errs = append(errs, content)
		return errors.Join(append(errs,
			last(b.db.Changes(docstore.ChangesOptions{Documents: true}).All(ctx)),
			last(b.db.Changes(docstore.ChangesOptions{IDs: []string{"d", "a"}}).All(ctx)),
			last(b.db.AllDocs(ctx, docstore.AllDocsOptions{Documents: true, Conflicts: true})),
			last(b.db.AllDocs(ctx, docstore.AllDocsOptions{Keys: []string{"d", "a"}, Documents: true})),
			last(b.store.Databases(ctx, docstore.ListOptions{})), last(b.store.Updates(docstore.UpdatesOptions{}).All(ctx)))...)
	}
	require.NoError(t, calls())

	rows, err := kv.TransactValue(ctx, b.kv, func(tx kv.Transaction) ([]kv.KeyValue, error) {
		return tx.GetRange(kv.PrefixRange(prefix), kv.RangeOptions{}).Slice()
	})
	require.NoError(t, err)
	set := func(key, value []byte) {
		b.transact(t, func(tx kv.Transaction) error {
			tx.Set(key, value)
			return nil
		})
	}
	for _, row := range rows {
		key, err := tuple.Unpack(row.Key[len(prefix):])
		require.NoError(t, err)
		if key[0] == int64(5) || key[0] == int64(3) && unchecked[key[2].(int64)] {
			continue
		}
		for _, value := range [][]byte{nil, []byte("junk"), tuple.Tuple{"name", int64(1), nil, tuple.Tuple{}}.Pack()} {
			set(row.Key, value)
			require.Error(t, calls(), "%v %q", key, value)
		}
		set(row.Key, row.Value)
	}
	require.NoError(t, calls())
}

// unchecked are the rows of a database that may have any value (local documents), or that no call reads: the watched row,
// and the counts of references. A database's row in lives is read when it is created or deleted.
var unchecked = map[int64]bool{6: true, 8: true, 9: true}

// last returns the error that ends a sequence.
func last[T any](seq func(yield func(T, error) bool)) (err error) {
	for _, err = range seq {
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bundle) transact(t *testing.T, fn func(tx kv.Transaction) error) {
	t.Helper()
	require.NoError(t, b.kv.Transact(context.Background(), fn))
}
