package couch

import (
	"context"
	"fmt"
	"io"
)

// BulkDocs writes revisions as they are (new_edits=false) and returns those that the server refused,
// with its reasons, in the order of its answer; none if it took all. The documents' bodies are sent as
// they are and must not change before BulkDocs returns. Their attachments are not sent: of a document
// that has any, PutMultipart writes them.
//
// [ErrTooLarge] says that the whole was too much for the server: write it in smaller portions. CouchDB
// says so, too, of a single document.
func (d *Database) BulkDocs(ctx context.Context, docs []Document) ([]DocError, error) {
	if len(docs) == 0 {
		return nil, nil
	}
	body := make(pieces, 0, 2*len(docs)+1)
	body = append(body, []byte(`{"new_edits":false,"docs":[`))
	comma := []byte(",")
	for i, doc := range docs {
		if i > 0 {
			body = append(body, comma)
		}
		body = append(body, doc.Body)
	}
	body = append(body, []byte("]}"))

	var refused []DocError
	err := d.post(ctx, "_bulk_docs", body, func(p *response) (err error) {
		refused, err = readRefused(p)
		return err
	})
	nameRevisions(refused, docs)
	return refused, err
}

// readRefused reads [{"id": ..., "rev": ..., "error": ..., "reason": ...}, ...]. CouchDB lists what it
// refused only; others list all, with "ok" or just an id and a revision for what they took.
func readRefused(r io.Reader) ([]DocError, error) {
	j := newJSONReader(&bounded{r: r, left: maxWriteBody}, feedWindow)
	err := j.open('[')
	var refused []DocError
	for err == nil {
		var more bool
		var raw []byte
		if more, err = j.element(); err == nil && !more {
			return refused, nil
		}
		if err == nil {
			raw, err = j.value(maxInfo)
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

// nameRevisions fills in the revisions that a server did not repeat, where the id tells them.
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
