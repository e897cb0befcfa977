package docstore_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/memkv"
	"settee/pkg/kv/pebblekv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

var prefix = []byte("docs/")

// bundle is a store with one database.
type bundle struct {
	kv    kv.Database
	store *docstore.Store
	db    *docstore.Database
}

// newBundle closes the store at the end of the test, and finds it in order.
func newBundle(t *testing.T, db kv.Database, opts docstore.Options) *bundle {
	b := &bundle{kv: db, store: docstore.Open(db, prefix, opts)}
	var err error
	b.db, err = b.store.Create(t.Context(), "db")
	require.NoError(t, err)
	t.Cleanup(func() {
		b.store.Close()
		b.check(t)
	})
	return b
}

func openMem(t *testing.T) kv.Database {
	db, err := memkv.Open(memkv.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// onEngines runs a test that does not wait for anything, on every engine.
func onEngines(t *testing.T, test func(t *testing.T, db kv.Database)) {
	t.Parallel()
	t.Run("memkv", func(t *testing.T) {
		t.Parallel()
		test(t, openMem(t))
	})
	if db, ok := kvtest.Cluster(t); ok {
		t.Run("fdbkv", func(t *testing.T) { test(t, db) })
		require.NoError(t, db.Close())
	}
	t.Run("pebblekv", func(t *testing.T) {
		t.Parallel()
		db, err := pebblekv.Open("/store", pebblekv.Options{FS: vfs.NewMem()})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		test(t, db)
	})
}

// inBubble runs a test in memory, where time passes only while all wait.
func inBubble(t *testing.T, test func(t *testing.T, db kv.Database)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, openMem(t)) })
}

// after lets time pass in a bubble.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// unknownOnce makes each of a store's commits be reported unknown once.
func unknownOnce(db kv.Database) kv.Database {
	return faultkv.Wrap(db, faultkv.Options{Script: faultkv.UnknownOnce})
}

func (b *bundle) check(t *testing.T) {
	t.Helper()
	require.NoError(t, b.kv.Transact(context.Background(), func(tx kv.Transaction) error {
		return b.store.Check(tx.Snapshot())
	}))
}

// put writes a document that replaces rev, "" for none.
func (b *bundle) put(t *testing.T, id, rev, body string) string {
	t.Helper()
	got, err := b.tryPut(t, id, rev, body)
	require.NoError(t, err)
	return got
}

func (b *bundle) tryPut(t *testing.T, id, rev, body string) (string, error) {
	t.Helper()
	got, err := b.db.Put(t.Context(), docstore.Edit{ID: id, Rev: parse(t, rev), Body: []byte(body)})
	return got.String(), err
}

func (b *bundle) remove(t *testing.T, id, rev string) string {
	t.Helper()
	got, err := b.db.Put(t.Context(), docstore.Edit{ID: id, Rev: parse(t, rev), Deleted: true})
	require.NoError(t, err)
	return got.String()
}

func parse(t *testing.T, rev string) docstore.Rev {
	t.Helper()
	if rev == "" {
		return docstore.Rev{}
	}
	r, err := docstore.ParseRev(rev)
	require.NoError(t, err)
	return r
}

// replicated reads "4-d c b", a path, or "4-d c b!" of a deleted revision.
func replicated(t *testing.T, id, path string) docstore.Edit {
	t.Helper()
	text, deleted := strings.CutSuffix(path, "!")
	ids := strings.Fields(text)
	rev := parse(t, ids[0])
	ids[0] = rev.ID
	return docstore.Edit{ID: id, Pos: rev.Pos, Path: ids, Deleted: deleted, Body: fmt.Appendf(nil, `{"was":%q}`, path)}
}

// merge writes replicated revisions, all at once, and each has to succeed.
func (b *bundle) merge(t *testing.T, id string, paths ...string) {
	t.Helper()
	var edits []docstore.Edit
	for _, path := range paths {
		edits = append(edits, replicated(t, id, path))
	}
	results, err := b.db.Write(t.Context(), edits, docstore.WriteOptions{Replicated: true})
	require.NoError(t, err)
	for _, r := range results {
		require.NoError(t, r.Err)
	}
}

func (b *bundle) get(t *testing.T, id string, opts docstore.GetOptions) *docstore.Document {
	t.Helper()
	doc, err := b.db.Get(t.Context(), id, opts)
	require.NoError(t, err)
	return doc
}

// leaves returns the leaves of a document, as replicated reads them, the winner last.
func (b *bundle) leaves(t *testing.T, id string) []string {
	t.Helper()
	leaves, err := kv.TransactValue(t.Context(), b.kv, func(tx kv.Transaction) ([]docstore.Leaf, error) {
		return b.db.Leaves(tx, id)
	})
	require.NoError(t, err)
	shown := []string{}
	for _, l := range leaves {
		s := fmt.Sprintf("%d-%s", l.Rev.Pos, strings.Join(l.Path, " "))
		if l.Deleted {
			s += "!"
		}
		shown = append(shown, s)
	}
	return shown
}

func (b *bundle) info(t *testing.T) docstore.Info {
	t.Helper()
	info, err := b.db.Info(t.Context())
	require.NoError(t, err)
	return info
}

// changes returns the rows of a feed.
func (b *bundle) changes(t *testing.T, opts docstore.ChangesOptions) ([]docstore.ChangeRow, docstore.Sequence) {
	t.Helper()
	feed := b.db.Changes(opts)
	var rows []docstore.ChangeRow
	for row, err := range feed.All(t.Context()) {
		require.NoError(t, err)
		rows = append(rows, row)
	}
	return rows, feed.Last()
}

func (b *bundle) allDocs(t *testing.T, opts docstore.AllDocsOptions) []docstore.DocRow {
	t.Helper()
	var rows []docstore.DocRow
	for row, err := range b.db.AllDocs(t.Context(), opts) {
		require.NoError(t, err)
		rows = append(rows, row)
	}
	return rows
}

func changedIDs(rows []docstore.ChangeRow) []string {
	ids := []string{}
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return ids
}

func listedIDs(rows []docstore.DocRow) []string {
	ids := []string{}
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return ids
}

func revs(revs []docstore.Rev) []string {
	shown := []string{}
	for _, rev := range revs {
		shown = append(shown, rev.String())
	}
	return shown
}

func (b *bundle) upload(t *testing.T, id string, content []byte) *docstore.Upload {
	t.Helper()
	u, err := b.db.Upload(t.Context(), id, bytes.NewReader(content), docstore.UploadOptions{})
	require.NoError(t, err)
	return u
}

func (b *bundle) content(t *testing.T, doc *docstore.Document, name string) []byte {
	t.Helper()
	a, ok := doc.Attachment(name)
	require.True(t, ok, name)
	content, err := io.ReadAll(b.db.ReadAttachment(t.Context(), doc.ID, a))
	require.NoError(t, err)
	return content
}
