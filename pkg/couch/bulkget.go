package couch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// maxAnswers bounds how many documents a server may answer per revision that it was asked for. With
// latest=true it answers with all leaves that descend from it.
const maxAnswers = 1000

// DocRef names a revision of a document.
type DocRef struct {
	ID  string
	Rev string // empty: the winner
}

// Fetched is an answer to a DocRef: a document, or the reason why there is none.
type Fetched struct {
	// ID is the document's, and Rev its revision, or the one that was asked for if there is none.
	ID, Rev string
	Doc     Document
	Err     error // a *DocError, if there is no document
}

// BulkResults are the answers of a _bulk_get, one at a time. They are not safe for concurrent use; what
// ends a Next that waits is its context.
type BulkResults struct {
	p *response
	j *jsonReader

	maxDocument int
	unanswered  map[string]DocRef // by id, what nothing was said of yet
	asked       map[string]bool
	left        int // how many answers are still believed

	at  place
	id  string // of the entry that is being read
	err error  // of Next, from its first on
}

// place is where in {"results": [{"id": ..., "docs": [{"ok": ...}]}]} the reader stands.
type place int

const (
	atStart place = iota
	inResults
	inEntry
	inDocs
	atEnd // of the results
)

// BulkGet asks for documents, each with its revisions' history (_revisions) and its attachments as
// stubs. If a revision has descendants, its latest leaves come instead (latest=true).
//
// If the server has no _bulk_get the error is [ErrNoBulkGet], and the documents are to be read with
// [Database.OpenRevs]. The order of the answers is the server's. Each id that was asked for is answered
// at least once: of one that the server says nothing of, an answer says just that.
func (d *Database) BulkGet(ctx context.Context, refs []DocRef) (*BulkResults, error) {
	results := newBulkResults(refs, d.cfg.MaxDocument)
	if len(refs) == 0 {
		results.err = io.EOF // PouchDB Server never answers an empty list
		return results, nil
	}
	body := []byte(`{"docs":[`)
	for i, ref := range refs {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(append(body, `{"id":`...), quote(ref.ID)...)
		if ref.Rev != "" {
			body = append(append(body, `,"rev":`...), quote(ref.Rev)...)
		}
		body = append(body, '}')
	}
	body = append(body, "]}"...)
	p, err := d.stream(ctx, &request{
		method: http.MethodPost, path: "_bulk_get", content: jsonType, body: bytesBody(body),
		query: url.Values{"revs": {"true"}, "latest": {"true"}},
	})
	if err != nil {
		return nil, d.noBulkGet(ctx, err)
	}
	results.p = p
	results.j = newJSONReader(p, bulkWindow)
	results.j.large = d.large(ctx)
	return results, nil
}

func newBulkResults(refs []DocRef, maxDocument int) *BulkResults {
	b := &BulkResults{
		maxDocument: maxDocument,
		unanswered:  make(map[string]DocRef, len(refs)),
		asked:       make(map[string]bool, len(refs)),
		left:        maxAnswers * len(refs),
	}
	for _, ref := range refs {
		b.unanswered[ref.ID] = ref
		b.asked[ref.ID] = true
	}
	return b
}

// noBulkGet finds out what a refused _bulk_get means. CouchDB 1 takes it for a document's id and
// answers 404, 405 or 415, others 400 or 501. A database that does not exist answers 404 as well.
func (d *Database) noBulkGet(ctx context.Context, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusNotImplemented:
	case http.StatusNotFound:
		if _, infoErr := d.Info(ctx); infoErr != nil {
			return infoErr
		}
	default:
		return err
	}
	return fmt.Errorf("%w: %w", ErrNoBulkGet, err)
}

// Next returns the next answer, and io.EOF after the last one. After an error all later calls return
// the same.
func (b *BulkResults) Next() (Fetched, error) {
	if b.err != nil {
		return Fetched{}, b.err
	}
	f, err := b.next()
	if err == nil {
		return f, nil
	}
	if b.err = err; err != io.EOF {
		b.err = fmt.Errorf("reading the documents: %w", err)
	}
	if b.p != nil {
		if err == io.EOF {
			b.p.finish()
		} else {
			b.err = b.p.fail(b.err)
			b.p.Close()
		}
	}
	return Fetched{}, b.err
}

// Close gives up what was not read. It may be called more than once.
func (b *BulkResults) Close() error {
	if b.err == nil {
		b.err = errors.New("the results are closed")
	}
	if b.p == nil {
		return nil
	}
	return b.p.Close()
}

func (b *BulkResults) next() (Fetched, error) {
	for {
		var f Fetched
		var found bool
		var err error
		switch b.at {
		case atStart:
			err = b.enter()
		case inResults:
			err = b.enterEntry()
		case inEntry:
			err = b.member()
		case inDocs:
			f, found, err = b.doc()
		case atEnd:
			return b.leftOver()
		}
		if err != nil || found {
			return f, err
		}
	}
}

// enter reads up to the results.
func (b *BulkResults) enter() error {
	b.at = inResults
	return b.j.openResults(func(string) error { return b.j.skip() })
}

// enterEntry steps into the next result, or to the end of the answer.
func (b *BulkResults) enterEntry() error {
	ok, err := b.j.element()
	if err != nil {
		return err
	}
	if ok {
		b.at, b.id = inEntry, ""
		return b.j.open('{')
	}
	b.at = atEnd
	for {
		_, ok, err := b.j.member()
		if err != nil || !ok {
			return err
		}
		if err := b.j.skip(); err != nil {
			return err
		}
	}
}

// member reads a member of a result.
func (b *BulkResults) member() error {
	name, ok, err := b.j.member()
	switch {
	case err != nil:
		return err
	case !ok:
		b.at = inResults
		return nil
	case name == "id":
		b.id, err = b.j.text(maxKey)
		return err
	case name == "docs":
		b.at = inDocs
		return b.j.open('[')
	}
	return b.j.skip()
}

// doc reads one of the documents of a result.
func (b *BulkResults) doc() (Fetched, bool, error) {
	ok, err := b.j.element()
	if err != nil {
		return Fetched{}, false, err
	}
	if !ok {
		b.at = inEntry
		return Fetched{}, false, nil
	}
	raw, err := b.j.value(b.maxDocument)
	if err != nil {
		return Fetched{}, false, fmt.Errorf("document %q: %w", b.id, err)
	}
	f, failure, err := parseFetched(b.id, raw)
	if err != nil {
		return Fetched{}, false, err
	}
	if !b.asked[f.ID] {
		return Fetched{}, false, fmt.Errorf("%w: document %q was not asked for", ErrMalformed, f.ID)
	}
	if b.left--; b.left < 0 {
		return Fetched{}, false, fmt.Errorf("%w: more than %d answers for a revision", ErrLimit, maxAnswers)
	}
	if failure != nil && f.Rev == "" {
		f.Rev = b.unanswered[f.ID].Rev
		failure.Rev = f.Rev
	}
	delete(b.unanswered, f.ID)
	return f, true, nil
}

// leftOver answers, at the end, for the ids that the server left out.
func (b *BulkResults) leftOver() (Fetched, error) {
	for id, ref := range b.unanswered {
		delete(b.unanswered, id)
		return Fetched{ID: id, Rev: ref.Rev, Err: &DocError{
			ID: id, Rev: ref.Rev, Code: "not_answered", Reason: "the server left it out",
		}}, nil
	}
	return Fetched{}, io.EOF
}

// parseFetched reads {"ok": document} or {"error": {...}}, as _bulk_get and open_revs answer. PouchDB
// Server says {"missing": rev} or {} instead of an error, open_revs of CouchDB the former. The document
// is a copy of raw's bytes. If there is none, the DocError is the answer's Err.
func parseFetched(id string, raw []byte) (Fetched, *DocError, error) {
	f := Fetched{ID: id}
	if !isObject(raw) {
		return f, nil, fmt.Errorf("%w: document %q: an answer that is not an object", ErrMalformed, id)
	}
	var err error
	failure := &DocError{Code: "not_found", Reason: "missing"}
	members(raw, func(m member) bool {
		value := raw[m.value:m.end]
		switch string(m.key) {
		case "ok":
			f.Doc, err = parseDocument(append([]byte(nil), value...))
			failure = nil
			return false
		case "missing":
			failure.Rev = words(value)
		case "error":
			if e, ok := docError(value); ok {
				failure = e
			} else {
				failure.Code = words(value)
			}
		case "reason":
			failure.Reason = words(value)
		}
		return true
	})
	if err != nil {
		return f, nil, err
	}
	if failure == nil {
		f.ID, f.Rev = f.Doc.ID, f.Doc.Rev
		return f, nil, nil
	}
	if failure.ID == "" {
		failure.ID = id
	}
	f.ID, f.Rev, f.Err = failure.ID, failure.Rev, failure
	return f, failure, nil
}
