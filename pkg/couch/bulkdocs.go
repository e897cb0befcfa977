package couch

import (
	"context"
	"fmt"
	"io"

	"settee/pkg/jsontext"
)

// BulkDocs writes revisions as they are (new_edits=false) and returns those that the server refused, with its reasons,
// in the order of its answer. The documents' bodies must not change before BulkDocs returns. Attachments are not sent;
// use PutMultipart for documents that have any.
//
// [ErrTooLarge] means that the request was too large and should be split. CouchDB also returns it for a single
// document.
func (d *Database) BulkDocs(ctx context.Context, docs []Document) ([]DocError, error) {
	if len(docs) == 0 {
		return nil, nil
	}
	var refused []DocError
	err := d.post(ctx, "_bulk_docs", bulkDocsBody(docs), func(p *response) (err error) {
		refused, err = readRefused(p)
		hidden := p.hidden()
		for i := range refused {
			refused[i] = *refused[i].redacted(hidden)
		}
		return err
	})
	nameRevisions(refused, docs)
	return refused, err
}

// TakesBulkDocs returns the error of a bulk write of no documents. It is nil if the server answers.
func (d *Database) TakesBulkDocs(ctx context.Context) error {
	return d.post(ctx, "_bulk_docs", bulkDocsBody(nil), func(p *response) error {
		_, err := readRefused(p)
		return err
	})
}

// readRefused reads [{"id": ..., "rev": ..., "error": ..., "reason": ...}, ...]. CouchDB lists refused documents only.
// Other servers list all, the accepted ones with "ok" or only an id and a revision.
func readRefused(r io.Reader) ([]DocError, error) {
	j := newAnswerReader(&bounded{r: r, left: maxWriteBody}, jsontext.Window)
	defer j.Free()
	err := j.Open('[')
	var refused []DocError
	for err == nil {
		var more bool
		var raw []byte
		if more, err = j.Element(); err == nil && !more {
			return refused, nil
		}
		if err == nil {
			raw, err = j.Value(maxRow)
		}
		if err == nil && !isObject(raw) {
			err = fmt.Errorf("%w: a row that is not an object", ErrMalformed)
		}
		if err == nil {
			if e, ok := docError(raw); ok {
				refused = append(refused, *e)
			}
		}
	}
	return nil, fmt.Errorf("reading the answer to a bulk write: %w", err)
}

// bulkDocsBody returns the body of a _bulk_docs request, which shares the bytes of the documents.
func bulkDocsBody(docs []Document) *pieces {
	comma := []byte(",")
	all := make([][]byte, 0, 2*len(docs)+1)
	all = append(all, []byte(`{"new_edits":false,"docs":[`))
	for i, doc := range docs {
		if i > 0 {
			all = append(all, comma)
		}
		all = append(all, doc.Body)
	}
	return &pieces{all: append(all, []byte(`]}`)), borrowed: true}
}

// nameRevisions fills in revisions that a server left out, if the id identifies them.
func nameRevisions(refused []DocError, docs []Document) {
	for i := range refused {
		if refused[i].Rev != "" {
			continue
		}
		named := 0
		rev := ""
		for _, doc := range docs {
			if doc.ID == refused[i].ID {
				named++
				rev = doc.Rev
			}
		}
		if named == 1 {
			refused[i].Rev = rev
		}
	}
}
