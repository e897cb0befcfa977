package webtest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/docjson"
	"settee/pkg/docstore"
)

// NewDatabase makes a database.
func (n *Node) NewDatabase(name string) *docstore.Database {
	n.Helper()
	db, err := n.Documents.Create(n.Context(), name)
	require.NoError(n, err)
	return db
}

// Write writes documents, of which each edit is one, and returns their revisions.
func Write(t testing.TB, db *docstore.Database, edits ...docstore.Edit) []docstore.Rev {
	t.Helper()
	return writeAs(t, db, docstore.WriteOptions{}, edits...)
}

// Replicate writes revisions that were made elsewhere.
func Replicate(t testing.TB, db *docstore.Database, edits ...docstore.Edit) []docstore.Rev {
	t.Helper()
	return writeAs(t, db, docstore.WriteOptions{Replicated: true}, edits...)
}

func writeAs(t testing.TB, db *docstore.Database, opts docstore.WriteOptions, edits ...docstore.Edit) []docstore.Rev {
	t.Helper()
	results, err := db.Write(t.Context(), edits, opts)
	require.NoError(t, err)
	revs := make([]docstore.Rev, len(results))
	for i, result := range results {
		require.NoError(t, result.Err)
		revs[i] = result.Rev
	}
	return revs
}

// Doc is the first revision of a document.
func Doc(id, body string) docstore.Edit { return docstore.Edit{ID: id, Body: docjson.Must(body)} }

// Leaf is a revision, with its path, that was made elsewhere.
func Leaf(id string, deleted bool, body string, pos int64, path ...string) docstore.Edit {
	return docstore.Edit{ID: id, Pos: pos, Path: path, Deleted: deleted, Body: docjson.Must(body)}
}

// Gzipped returns a text in gzip.
func Gzipped(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.String()
}

// Replication returns the body of a document of a replicator database, with credentials.
func Replication(members string) string {
	text := `{"source":"http://u:` + Secret + `@a.example/db","target":{"url":"http://b.example/db","headers":{"X-Key":"` + Secret + `"},
		"auth":{"basic":{"username":"u","password":"` + Secret + `"}}},"continuous":true`
	if members != "" {
		text += "," + members
	}
	return text + "}"
}

// Validating returns a design document with a validate function.
func Validating(function string) string {
	text, _ := json.Marshal(function) // texts always encode
	return `{"validate_doc_update":` + string(text) + `}`
}

// Filtering returns a design document with a filter, whose name is f.
func Filtering(function string) string {
	text, _ := json.Marshal(function) // texts always encode
	return `{"filters":{"f":` + string(text) + `}}`
}
