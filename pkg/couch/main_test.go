package couch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/pkg/couch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a database whose retries do not slow down tests, unless edit changes that.
func open(t testing.TB, url string, edit ...func(*couch.Config)) *couch.Database {
	t.Helper()
	cfg := couch.DefaultConfig()
	cfg.URL, cfg.RetryBase = url, time.Millisecond
	for _, e := range edit {
		e(&cfg)
	}
	db, err := couch.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

// noRetries makes a database fail at the first failure.
func noRetries(cfg *couch.Config) { cfg.Retries = 0 }

func document(t testing.TB, body string) couch.Document {
	t.Helper()
	doc, err := couch.ParseDocument([]byte(body))
	require.NoError(t, err)
	return doc
}

// allRows reads a feed to its end.
func allRows(t testing.TB, db *couch.Database, o couch.ChangesOptions) ([]couch.Row, *couch.Changes) {
	t.Helper()
	feed, err := db.Changes(t.Context(), o)
	require.NoError(t, err)
	defer feed.Close()
	var rows []couch.Row
	for {
		row, err := feed.Next()
		if err == io.EOF {
			return rows, feed
		}
		require.NoError(t, err)
		rows = append(rows, row)
	}
}

// rowsUntil reads a feed until it fails, and returns the error.
func rowsUntil(t testing.TB, db *couch.Database, o couch.ChangesOptions) ([]couch.Row, error) {
	t.Helper()
	feed, err := db.Changes(t.Context(), o)
	if err != nil {
		return nil, err
	}
	defer feed.Close()
	var rows []couch.Row
	for {
		row, err := feed.Next()
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
}

// fetchAll reads all answers of a BulkGet.
func fetchAll(t testing.TB, db *couch.Database, refs ...couch.DocRef) []couch.Fetched {
	t.Helper()
	results, err := db.BulkGet(t.Context(), refs)
	require.NoError(t, err)
	defer results.Close()
	var all []couch.Fetched
	for {
		f, err := results.Next()
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		f.Doc.Body = bytes.Clone(f.Doc.Body)
		all = append(all, f)
	}
}

// content is a leaf with the contents of its attachments.
type content struct {
	couch.Fetched
	Attachments []attached
}

type attached struct {
	About couch.Attachment
	Bytes []byte
}

// readLeaves reads a revision of a document, or its descendants, with their attachments.
func readLeaves(t testing.TB, db *couch.Database, id, rev string, attsSince ...string) []content {
	t.Helper()
	leaves, err := db.OpenRevs(t.Context(), id, rev, attsSince)
	require.NoError(t, err)
	defer leaves.Close()
	var all []content
	for {
		leaf, err := leaves.Next()
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		all = append(all, content{Fetched: leaf.Fetched, Attachments: readAttachments(t, leaf)})
	}
}

func readAttachments(t testing.TB, source couch.AttachmentSource) []attached {
	t.Helper()
	var all []attached
	for {
		a, err := source.NextAttachment()
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		b, err := io.ReadAll(a)
		require.NoError(t, err)
		all = append(all, attached{About: a.Attachment, Bytes: b})
	}
}

func ids(rows []couch.Row) []string {
	list := make([]string, len(rows))
	for i, row := range rows {
		list[i] = row.ID
	}
	return list
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// ctxFor returns a context for calls that might hang in a broken test.
func ctxFor(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
