package frontend

import (
	"context"
	"net/http"
	"strconv"

	"settee/pkg/docstore"
)

const (
	// maxCounted is how many documents are counted for an offset, or of a namespace: what is
	// more is null.
	maxCounted = 1_000
	// keysAtOnce is how many keys are looked up in one call of the store.
	keysAtOnce = 500
)

// namespace is the documents that a listing is of.
type namespace struct{ first, last string } // ids; empty: all

// designDocs are the ids that begin with _design/: 0 is what comes behind the slash.
var designDocs = namespace{"_design/", "_design0"}

func (n namespace) contains(id string) bool {
	return n == namespace{} || n.first <= id && id < n.last
}

// allDocs answers GET and POST /{db}/_all_docs, and designDocs those of /{db}/_design_docs.
func (h *Handler) allDocs(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	return h.list(w, r, db, namespace{})
}

func (h *Handler) designDocs(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	return h.list(w, r, db, designDocs)
}

// localDocs answers /{db}/_local_docs.
func (h *Handler) localDocs(http.ResponseWriter, *http.Request, *docstore.Database) error {
	return &failure{http.StatusNotImplemented, "not_implemented",
		"local documents are not listed: each can be read at /{db}/_local/{id}"}
}

func (h *Handler) list(w http.ResponseWriter, r *http.Request, db *docstore.Database, of namespace) error {
	q := newListQuery(r)
	if r.Method == http.MethodPost {
		body, err := h.readListBody(w, r)
		if err != nil {
			return err
		}
		q.addBody(body)
	}
	l, err := q.listing(db, of)
	if err != nil {
		return err
	}
	return sendBody(w, r, "application/json", func(out *stream) error {
		a := &appender{to: out}
		if err := a.listing(r.Context(), l); err != nil {
			return err
		}
		return a.raw("\n").err
	})
}

// allDocsQueries answers POST /{db}/_all_docs/queries: several listings in one answer.
func (h *Handler) allDocsQueries(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	return h.listQueries(w, r, db, namespace{})
}

func (h *Handler) designDocsQueries(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	return h.listQueries(w, r, db, designDocs)
}

func (h *Handler) listQueries(w http.ResponseWriter, r *http.Request, db *docstore.Database, of namespace) error {
	body, err := h.readListBody(w, r)
	if err != nil {
		return err
	}
	var text []byte
	_ = eachMember(body, func(name string, value []byte) error { // valid
		if name == "queries" {
			text = value
		}
		return nil
	})
	if text == nil {
		return badRequest("POST body must include `queries` parameter.")
	}
	queries, ok := newJSONList(text)
	if !ok {
		return badRequest("`queries` member must be an array.")
	}
	query := func(i int) (*listing, error) {
		q := newListQuery(r)
		if object := queries.at(i); object[0] == '{' {
			q.addBody(object)
		} else {
			q.refuse("`queries` must be a list of objects")
		}
		return q.listing(db, of)
	}
	for i := range queries.len() { // before the answer begins; none is kept
		if _, err := query(i); err != nil {
			return err
		}
	}
	return sendBody(w, r, "application/json", func(out *stream) error {
		a := &appender{to: out}
		a.raw(`{"results":[`)
		for i := range queries.len() {
			l, err := query(i)
			if err != nil {
				return err
			}
			a.raw(separator(i)).raw("\r\n")
			if err := a.listing(r.Context(), l); err != nil {
				return err
			}
		}
		return a.raw("\r\n]}\n").err
	})
}

// listing is one listing of documents.
type listing struct {
	db        *docstore.Database
	of        namespace
	show      shown
	documents bool // include_docs
	contents  bool // attachments
	conflicts bool
	updateSeq bool
	// keys, if not nil, are JSON values: the documents to look up, in this order.
	keys *jsonList
	// within is the range of ids, if there are no keys; none: it is empty.
	within docstore.AllDocsOptions
	none   bool
	// skip and limit are in rows; a negative limit is none.
	skip, limit int
}

// listing appends a listing, as an object of CouchDB's lines.
func (a *appender) listing(ctx context.Context, l *listing) error {
	if err := a.listingHead(ctx, l); err != nil {
		return err
	}
	rows := l.ranged
	if l.keys != nil {
		rows = l.keyed
	}
	i := 0
	err := rows(ctx, func(key []byte, row docstore.DocRow) error {
		if i > 0 {
			a.raw(",\r\n")
		}
		i++
		return a.row(ctx, l, key, row).err
	})
	if err != nil {
		return docFailure(err)
	}
	return a.raw("\r\n]}").err
}

// listingHead appends what comes before the rows.
func (a *appender) listingHead(ctx context.Context, l *listing) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	total, err := l.total(ctx)
	if err != nil {
		return docFailure(err)
	}
	offset, err := l.offset(ctx, total)
	if err != nil {
		return docFailure(err)
	}
	a.raw(`{"total_rows":`).raw(numberOrNull(total)).raw(`,"offset":`).raw(numberOrNull(offset))
	if l.updateSeq && l.keys != nil {
		a.raw(`,"update_seq":null`) // as in CouchDB
	} else if l.updateSeq {
		sequence, err := l.db.UpdateSequence(ctx)
		if err != nil {
			return docFailure(err)
		}
		a.raw(`,"update_seq":`).string(sequence.String())
	}
	return a.raw(`,"rows":[` + "\r\n").err
}

// unknown is a number that is null in an answer.
const unknown = -1

func numberOrNull(n int64) string {
	if n == unknown {
		return "null"
	}
	return strconv.FormatInt(n, 10)
}

// total is how many documents there are, whichever are listed.
func (l *listing) total(ctx context.Context) (int64, error) {
	if l.of == (namespace{}) {
		info, err := l.db.Info(ctx)
		return info.DocCount, err
	}
	return l.count(ctx, docstore.AllDocsOptions{Start: l.of.first, End: l.of.last})
}

// offset is how many documents come before the first row. Unlike CouchDB's, this store has
// to count them.
func (l *listing) offset(ctx context.Context, total int64) (int64, error) {
	if l.keys != nil {
		return unknown, nil
	}
	first := l.of.first
	if l.within.Descending {
		first = l.of.last
	}
	var before int64
	if l.within.Start != first {
		var err error
		before, err = l.count(ctx, docstore.AllDocsOptions{
			Start: first, End: l.within.Start, ExclusiveEnd: true, Descending: l.within.Descending,
		})
		if err != nil || before == unknown {
			return unknown, err
		}
	}
	if before += int64(l.skip); total != unknown {
		before = min(before, total)
	}
	return before, nil
}

func (l *listing) count(ctx context.Context, within docstore.AllDocsOptions) (int64, error) {
	within.Limit = maxCounted + 1
	var n int64
	for _, err := range l.db.AllDocs(ctx, within) {
		if err != nil {
			return 0, err
		}
		if n++; n > maxCounted {
			return unknown, nil
		}
	}
	return n, nil
}

// ranged reads the rows of a range.
func (l *listing) ranged(ctx context.Context, yield func([]byte, docstore.DocRow) error) error {
	if l.none || l.limit == 0 {
		return nil
	}
	opts := l.within
	opts.Documents, opts.Conflicts, opts.Skip, opts.Limit = l.documents, l.conflicts, l.skip, max(l.limit, 0)
	for row, err := range l.db.AllDocs(ctx, opts) {
		if err == nil {
			err = yield(nil, row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keyed reads the rows of keys. One that is no string is that of no document.
func (l *listing) keyed(ctx context.Context, yield func([]byte, docstore.DocRow) error) error {
	end := l.keys.len()
	if l.limit >= 0 && l.skip < end {
		end = min(end, l.skip+min(l.limit, end))
	}
	var keys [][]byte
	var ids []string
	for i := l.skip; i < end; i++ {
		at := i
		if l.within.Descending {
			at = l.keys.len() - 1 - i
		}
		key := l.keys.at(at)
		id, _ := jsonString(key)
		if l.of.contains(id) {
			keys, ids = append(keys, key), append(ids, id)
		}
		if len(ids) < keysAtOnce && i+1 < end {
			continue
		}
		if err := l.lookUp(ctx, keys, ids, yield); err != nil {
			return err
		}
		keys, ids = keys[:0], ids[:0]
	}
	return nil
}

// lookUp reads the rows of some keys, which are as JSON and as ids.
func (l *listing) lookUp(ctx context.Context, keys [][]byte, ids []string, yield func([]byte, docstore.DocRow) error) error {
	if len(ids) == 0 {
		return nil
	}
	i := 0
	for row, err := range l.db.AllDocs(ctx, docstore.AllDocsOptions{Keys: ids, Documents: l.documents, Conflicts: l.conflicts}) {
		if err == nil {
			err = yield(keys[i], row)
		}
		if err != nil {
			return err
		}
		i++
	}
	return nil
}

// row appends a row; key is that which was looked up, if one was.
func (a *appender) row(ctx context.Context, l *listing, key []byte, row docstore.DocRow) *appender {
	if row.Rev == (docstore.Rev{}) {
		return a.raw(`{"key":`).bytes(key).raw(`,"error":"not_found"}`)
	}
	a.raw(`{"id":`).string(row.ID).raw(`,"key":`).string(row.ID).raw(`,"value":{"rev":`).string(row.Rev.String())
	if row.Deleted {
		a.raw(`,"deleted":true`)
	}
	a.raw("}")
	switch {
	case !l.documents:
	case row.Document == nil:
		a.raw(`,"doc":null`)
	default:
		show := l.show
		if l.contents {
			show.content = contentsOf(ctx, l.db, row.Document, nil).inline
		}
		row.Document.DeletedConflicts = nil
		a.raw(`,"doc":`).document(row.Document, show)
	}
	return a.raw("}")
}
