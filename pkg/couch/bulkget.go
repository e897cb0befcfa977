package couch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"settee/pkg/jsontext"
)

// maxAnswers is the maximum number of documents in an answer per requested revision. With latest=true an answer has all
// leaves that descend from a revision.
const maxAnswers = 1000

// DocRef names a revision of a document.
type DocRef struct {
	ID  string
	Rev string // empty: the winner
}

// Fetched is the answer to a DocRef: a document or an error.
type Fetched struct {
	// At is the index, in the request, of the DocRef or of another one with the same ID.
	At int
	// ID is the document's id. Rev is its revision, or the requested one if there is no document.
	ID, Rev string
	Doc     Document
	Err     error // a *DocError, if there is no document
}

// BulkResults iterates over the answers of a _bulk_get. It is not safe for concurrent use. The context ends a waiting
// Next.
type BulkResults struct {
	p *response
	j answerReader

	maxDocument int
	refs        []DocRef
	places      places
	answered    []bool          // for each of refs
	silent      map[string]bool // ids that need no further answer; made at the end
	over        int             // number of refs handled at the end
	left        int             // number of answers still accepted

	at  place
	id  string // of the current entry
	err error  // the first error of Next
}

// place is the reader's position in {"results": [{"id": ..., "docs": [{"ok": ...}]}]}.
type place int

const (
	atStart place = iota
	inResults
	inEntry
	inDocs
	atEnd // of the results
)

// BulkGet requests documents with their revision histories (_revisions) and with attachments as stubs. A revision that
// has descendants is answered with its latest leaves (latest=true).
//
// If the server has no _bulk_get, the error is [ErrNoBulkGet]; use [Database.OpenRevs]. The answers come in the
// server's order. Each id is answered at least once: if the server leaves one out, its answer has an error.
func (d *Database) BulkGet(ctx context.Context, refs []DocRef) (*BulkResults, error) {
	return d.bulkGet(ctx, refs, url.Values{"revs": {"true"}, "latest": {"true"}, "att_encoding_info": {"true"}})
}

// BulkGetInline is BulkGet for exactly the revisions in refs, and with attachments in the documents, in base64. A
// server may ignore that; see [Document.CheckInline].
func (d *Database) BulkGetInline(ctx context.Context, refs []DocRef) (*BulkResults, error) {
	return d.bulkGet(ctx, refs, url.Values{"revs": {"true"}, "attachments": {"true"}, "att_encoding_info": {"true"}})
}

func (d *Database) bulkGet(ctx context.Context, refs []DocRef, query url.Values) (*BulkResults, error) {
	results := newBulkResults(refs, d.cfg.MaxDocument)
	if len(refs) == 0 {
		results.err = io.EOF // PouchDB Server never answers an empty list
		return results, nil
	}
	p, err := d.stream(ctx, &request{
		method: http.MethodPost, path: "_bulk_get", content: jsonType, body: bytesBody(bulkGetBody(refs)), query: query,
	})
	if err != nil {
		return nil, d.noBulkGet(ctx, err)
	}
	results.p = p
	results.j = newAnswerReader(p, jsontext.Window)
	results.j.OnLarge = d.large(ctx)
	return results, nil
}

func bulkGetBody(refs []DocRef) []byte {
	size := 0
	for _, ref := range refs {
		size += len(ref.ID) + len(ref.Rev) + len(`{"id":"","rev":""},`)
	}
	body := append(make([]byte, 0, size+16), `{"docs":[`...)
	for i, ref := range refs {
		if i > 0 {
			body = append(body, ',')
		}
		body = appendQuoted(append(body, `{"id":`...), ref.ID)
		if ref.Rev != "" {
			body = appendQuoted(append(body, `,"rev":`...), ref.Rev)
		}
		body = append(body, '}')
	}
	return append(body, "]}"...)
}

func newBulkResults(refs []DocRef, maxDocument int) *BulkResults {
	return &BulkResults{
		maxDocument: maxDocument,
		refs:        refs,
		places:      places{id: func(i int) string { return refs[i].ID }, n: len(refs)},
		answered:    make([]bool, len(refs)),
		left:        maxAnswers * len(refs),
	}
}

// noBulkGet interprets a refused _bulk_get. CouchDB 1 takes _bulk_get for a document id and answers 404, 405 or 415.
// Other servers answer 400 or 501. A missing database also answers 404.
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

// Next returns the next answer, and io.EOF after the last one. The document's Body is valid until the next call. After
// an error all later calls return the same error.
func (b *BulkResults) Next() (Fetched, error) {
	if b.err != nil {
		return Fetched{}, b.err
	}
	b.j.Forget()
	f, err := b.next()
	if err == nil {
		f.redact(b.p)
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
	b.free()
	return Fetched{}, b.err
}

// redact removes secrets from an error in an answer.
func (f *Fetched) redact(p *response) {
	if e, ok := errors.AsType[*DocError](f.Err); ok && p != nil {
		f.Err = e.redacted(p.hidden())
	}
}

func (b *BulkResults) free() {
	if b.j.Reader != nil {
		b.j.Free()
	}
}

// Close abandons the unread answers. It may be called more than once.
func (b *BulkResults) Close() error {
	if b.err == nil {
		b.err = errors.New("the results are closed")
		b.free()
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
			if f, found, err = b.enterEntry(); err == nil && found {
				f, err = b.accept(f)
			}
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
	return b.j.openArray("results", func(string) error { return b.j.skip() })
}

// enterEntry steps into the next result, or to the end of the answer. A result with one document in the usual spelling
// is read at once.
func (b *BulkResults) enterEntry() (f Fetched, found bool, err error) {
	ok, err := b.j.Element()
	if err != nil {
		return f, false, err
	}
	if ok {
		if f, ok := b.entry(); ok {
			return f, true, nil
		}
		b.at, b.id = inEntry, ""
		return f, false, b.j.Open('{')
	}
	b.at = atEnd
	return f, false, b.j.skipRest()
}

// entry reads a whole result if it has the usual spelling.
func (b *BulkResults) entry() (Fetched, bool) {
	f, end := b.entryAhead()
	if end == jsontext.NotWhole && b.j.Widen() {
		f, end = b.entryAhead()
	}
	return f, b.j.Passed(end, end)
}

// entryAhead is entry for the window. It returns where the result ends, or a code of jsontext.End: jsontext.NotJSON if
// the spelling differs.
func (b *BulkResults) entryAhead() (f Fetched, end int) {
	const first, second, last = `{"id":"`, `","docs":[`, `]}`
	ahead := b.j.Ahead()
	raw, end := cutPrefix(ahead, first)
	if end < 0 {
		return f, end
	}
	id := raw[:jsontext.PastPlain(raw, 0)]
	if raw, end = cutPrefix(raw[len(id):], second); end < 0 {
		return f, end
	}
	at, ok := b.places.find(id)
	if !ok {
		return f, jsontext.NotJSON
	}
	f, end, err := parseFetched(b.refs[at], raw)
	switch {
	case end < 0:
		return f, end
	case err != nil || end > b.maxDocument:
		return f, jsontext.NotJSON
	}
	if raw, end = cutPrefix(raw[end:], last); end < 0 {
		return f, end
	}
	return f, len(ahead) - len(raw)
}

// cutPrefix returns what follows a prefix. Without the prefix, end is jsontext.NotJSON, or jsontext.NotWhole if more
// bytes could complete it.
func cutPrefix(b []byte, prefix string) (rest []byte, end int) {
	switch {
	case len(b) >= len(prefix) && string(b[:len(prefix)]) == prefix:
		return b[len(prefix):], 0
	case len(b) < len(prefix) && prefix[:len(b)] == string(b):
		return b, jsontext.NotWhole
	}
	return b, jsontext.NotJSON
}

func (b *BulkResults) member() error {
	name, ok, err := b.j.member()
	switch {
	case err != nil:
		return err
	case !ok:
		b.at = inResults
		return nil
	case name == "id":
		b.id, err = b.j.text(maxRow, b.places.text)
		return err
	case name == "docs":
		b.at = inDocs
		return b.j.Open('[')
	}
	return b.j.skip()
}

// doc reads one of the documents of a result.
func (b *BulkResults) doc() (Fetched, bool, error) {
	ok, err := b.j.Element()
	if err != nil {
		return Fetched{}, false, err
	}
	if !ok {
		b.at = inEntry
		return Fetched{}, false, nil
	}
	f, err := b.fetched()
	if err == nil {
		f, err = b.accept(f)
	}
	return f, err == nil, err
}

// accept checks that an answer was requested.
func (b *BulkResults) accept(f Fetched) (Fetched, error) {
	at, asked := b.places.find([]byte(f.ID))
	if !asked {
		return Fetched{}, fmt.Errorf("%w: document %q was not asked for", ErrMalformed, shortened(f.ID))
	}
	if b.left--; b.left < 0 {
		return Fetched{}, fmt.Errorf("%w: more than %d answers for a revision", ErrLimit, maxAnswers)
	}
	if failure, ok := errors.AsType[*DocError](f.Err); ok && f.Rev == "" {
		f.Rev = b.refs[at].Rev
		failure.Rev = f.Rev
	}
	f.At, b.answered[at] = at, true
	return f, nil
}

// fetched reads an element of a result's docs.
func (b *BulkResults) fetched() (Fetched, error) {
	want := DocRef{ID: b.id}
	if at := b.places.at; at < len(b.refs) && b.refs[at].ID == b.id {
		want = b.refs[at]
	}
	// Most are whole in the window, and in order.
	f, end, err := parseFetched(want, b.j.Ahead())
	if end == jsontext.NotWhole && b.j.Widen() {
		f, end, err = parseFetched(want, b.j.Ahead())
	}
	if err == nil && b.j.Passed(end, b.maxDocument) {
		return f, nil
	}
	raw, err := b.j.Value(b.maxDocument)
	if err != nil {
		return Fetched{}, fmt.Errorf("document %q: %w", shortened(b.id), limited(err, b.maxDocument))
	}
	f, _, err = parseFetched(want, raw)
	return f, err
}

// leftOver returns an answer for each id that the server left out.
func (b *BulkResults) leftOver() (Fetched, error) {
	for ; b.over < len(b.refs); b.over++ {
		if b.answered[b.over] {
			continue
		}
		if b.silent == nil {
			b.silent = map[string]bool{}
			for i, ref := range b.refs {
				b.silent[ref.ID] = b.silent[ref.ID] || b.answered[i]
			}
		}
		ref := b.refs[b.over]
		if b.silent[ref.ID] {
			continue
		}
		b.silent[ref.ID] = true
		return Fetched{At: b.over, ID: ref.ID, Rev: ref.Rev, Err: &DocError{
			ID: ref.ID, Rev: ref.Rev, Code: "not_answered", Reason: "the server left it out",
		}}, nil
	}
	return Fetched{}, io.EOF
}

// parseFetched reads {"ok": document} or {"error": {...}}, as in answers to _bulk_get and open_revs, from the beginning
// of b. It returns where the value ends, or a code of jsontext.End if b is not JSON. Instead of an error, PouchDB
// Server sends {"missing": rev} or {}, and CouchDB's open_revs sends {"missing": rev}. The document shares the bytes of
// b. Without a document, Err is a DocError. want is the requested revision, as far as known.
func parseFetched(want DocRef, b []byte) (Fetched, int, error) {
	f := Fetched{ID: want.ID}
	if !isObject(b) {
		return f, 0, fmt.Errorf("%w: document %q: an answer that is not an object", ErrMalformed, shortened(want.ID))
	}
	if raw, ok := bytes.CutPrefix(b, []byte(`{"ok":`)); ok {
		// the usual spelling
		doc, end, err := documentAt(raw, want)
		if end == jsontext.NotWhole {
			return f, end, err
		}
		if err == nil && end < len(raw) && raw[end] == '}' {
			f.ID, f.Rev, f.Doc = doc.ID, doc.Rev, doc
			return f, len(b) - len(raw) + end + 1, nil
		}
	}
	failure := DocError{Code: "not_found", Reason: "missing"}
	found := false
	scan := jsontext.WalkObject(b)
	m := &scan.Member
	for scan.Name() {
		if string(m.Key) == "ok" && !found {
			found = true
			doc, end, err := documentAt(b[m.Value:], want)
			if err != nil {
				return f, end, err
			}
			f.ID, f.Rev, f.Doc = doc.ID, doc.Rev, doc
			if !scan.Pass(m.Value + end) {
				break
			}
			continue
		}
		if !scan.Check() {
			break
		}
		switch value := b[m.Value:m.End]; string(m.Key) {
		case "missing":
			failure.Rev = words(value)
		case "error":
			if e, ok := docError(value); ok {
				failure = *e
			} else {
				failure.Code = words(value)
			}
		case "reason":
			failure.Reason = words(value)
		}
	}
	end := scan.Over()
	if end < 0 {
		return f, end, fmt.Errorf("%w: document %q: an answer that is not JSON", ErrMalformed, shortened(want.ID))
	}
	if !found {
		e := failure
		if e.ID == "" {
			e.ID = want.ID
		}
		f.ID, f.Rev, f.Err = e.ID, e.Rev, &e
	}
	return f, end, nil
}
