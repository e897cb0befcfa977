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

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/kvtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

var prefix = []byte("docs/")

// bundle is a store with one database.
type bundle struct {
	kv    kv.Database
	store *docstore.Store
	db    *docstore.Database
}

// newBundle closes the store at the end of the test, and checks its invariants.
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

// after lets time pass in a bubble.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (b *bundle) check(t *testing.T) {
	t.Helper()
	require.NoError(t, check.Sound(context.Background(), b.kv, b.store.Check))
}

// put writes a document that replaces rev, which may be "".
func (b *bundle) put(t *testing.T, id, rev, body string) string {
	t.Helper()
	got, err := b.tryPut(t, id, rev, body)
	require.NoError(t, err)
	return got
}

func (b *bundle) tryPut(t *testing.T, id, rev, body string) (string, error) {
	t.Helper()
	text, err := docjson.Parse([]byte(body))
	if err != nil {
		return "", err
	}
	got, err := b.db.Put(t.Context(), docstore.Edit{ID: id, Rev: parse(t, rev), Body: text})
	return got.String(), err
}

func (b *bundle) write(t *testing.T, edits []docstore.Edit, opts docstore.WriteOptions) []docstore.Result {
	t.Helper()
	results, err := b.db.Write(t.Context(), edits, opts)
	require.NoError(t, err)
	return results
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

// replicated parses a path such as "4-d c b", or "4-d c b!" for a deleted revision.
func replicated(t *testing.T, id, path string) docstore.Edit {
	t.Helper()
	text, deleted := strings.CutSuffix(path, "!")
	ids := strings.Fields(text)
	rev := parse(t, ids[0])
	ids[0] = rev.ID
	return docstore.Edit{ID: id, Pos: rev.Pos, Path: ids, Deleted: deleted, Body: docjson.Must(fmt.Appendf(nil, `{"was":%q}`, path))}
}

// merge writes replicated revisions in one call. Each must succeed.
func (b *bundle) merge(t *testing.T, id string, paths ...string) {
	t.Helper()
	var edits []docstore.Edit
	for _, path := range paths {
		edits = append(edits, replicated(t, id, path))
	}
	for _, r := range b.write(t, edits, docstore.WriteOptions{Replicated: true}) {
		require.NoError(t, r.Err)
	}
}

func (b *bundle) get(t *testing.T, id string, opts docstore.GetOptions) *docstore.Document {
	t.Helper()
	doc, err := b.db.Get(t.Context(), id, opts)
	require.NoError(t, err)
	return doc
}

// leaves returns the leaves of a document in the form that replicated parses, the winner last.
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
