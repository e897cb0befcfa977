package databases

import (
	"context"
	"net/http"
	"strconv"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
	"settee/pkg/jsontext"
)

const (
	// maxCounted is the most documents that are counted for an offset, or for the size of a namespace. A larger
	// number is null.
	maxCounted = 1_000
	// keysAtOnce is the number of keys that are looked up in one call of the store.
	keysAtOnce = 500
)

// namespace is a range of ids: the documents that a listing is of. The zero value is all of them.
type namespace struct{ first, last string } // last is not in it

// designDocs are the ids that begin with _design/. 0 is the character after the slash.
var designDocs = namespace{designPrefix, "_design0"}

func (n namespace) contains(id string) bool {
	return n == namespace{} || n.first <= id && id < n.last
}

// AllDocs answers GET and POST /{db}/_all_docs.
func (e *Endpoints) AllDocs(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	return e.list(w, r, db, namespace{})
}

// DesignDocs answers GET and POST /{db}/_design_docs.
func (e *Endpoints) DesignDocs(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	return e.list(w, r, db, designDocs)
}

func (e *Endpoints) list(w http.ResponseWriter, r *http.Request, db *docstore.Database, of namespace) error {
	q := newListQuery(r)
	if r.Method == http.MethodPost {
		body, err := e.readListBody(w, r)
		if err != nil {
			return err
		}
		q.addBody(body)
	}
	l, err := q.listing(db, of)
	if err != nil {
		return err
	}
	if err := takeMemory(r, l.cost()); err != nil {
		return err
	}
	return web.SendBody(w, r, "application/json", func(out *web.Stream) error {
		a := &web.Appender{To: out}
		if err := l.write(r.Context(), a); err != nil {
			return err
		}
		return a.Raw("\n").Err
	})
}

// AllDocsQueries answers POST /{db}/_all_docs/queries: several listings in one answer.
func (e *Endpoints) AllDocsQueries(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	return e.listQueries(w, r, db, namespace{})
}

// DesignDocsQueries answers POST /{db}/_design_docs/queries.
func (e *Endpoints) DesignDocsQueries(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	return e.listQueries(w, r, db, designDocs)
}

func (e *Endpoints) listQueries(w http.ResponseWriter, r *http.Request, db *docstore.Database, of namespace) error {
	queries, err := e.readList(w, r, "queries", "POST body must include `queries` parameter.", "`queries` member must be an array.")
	if err != nil {
		return err
	}
	query := func(i int) (*listing, error) {
		q := newListQuery(r)
		if object := queries.at(i); object[0] == '{' {
			q.addBody(object)
		} else {
			q.Refuse("`queries` must be a list of objects")
		}
		return q.listing(db, of)
	}
	var cost int64
	for i := range queries.len() { // errors are found before the answer begins
		l, err := query(i)
		if err != nil {
			return err
		}
		cost = max(cost, l.cost())
	}
	if err := takeMemory(r, cost); err != nil {
		return err
	}
	return web.SendBody(w, r, "application/json", func(out *web.Stream) error {
		a := &web.Appender{To: out}
		a.Raw(`{"results":[`)
		for i := range queries.len() {
			l, err := query(i)
			if err != nil {
				return err
			}
			a.Raw(web.Separator(i)).Raw("\r\n")
			if err := l.write(r.Context(), a); err != nil {
				return err
			}
		}
		return a.Raw("\r\n]}\n").Err
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
	// keys are the documents to look up, in this order, as JSON values. nil: the listing is of a range.
	keys *jsonList
	// within is the range of ids. none: the range is empty.
	within docstore.AllDocsOptions
	none   bool
	// skip and limit are numbers of rows. A negative limit is no limit.
	skip, limit int
}

// cost returns the number of bytes of memory that a listing needs while it is sent.
func (l *listing) cost() int64 {
	if l.documents {
		return pageCost
	}
	return rowsCost
}

// write appends a listing, as an object with the lines of CouchDB.
func (l *listing) write(ctx context.Context, a *web.Appender) error {
	if err := l.writeHead(ctx, a); err != nil {
		return err
	}
	rows := l.ranged
	switch {
	case l.keys != nil:
		rows = l.keyed
	case l.of == localDocs:
		rows = l.rangedLocal
	}
	i := 0
	err := rows(ctx, func(key []byte, row docstore.DocRow) error {
		if i > 0 {
			a.Raw(",\r\n")
		}
		i++
		return l.writeRow(ctx, a, key, row).Err
	})
	if err != nil {
		return web.StoreFailure(err)
	}
	return a.Raw("\r\n]}").Err
}

// writeHead appends what precedes the rows.
func (l *listing) writeHead(ctx context.Context, a *web.Appender) error {
	ctx, cancel := context.WithTimeout(ctx, web.StoreTimeout)
	defer cancel()
	total, err := l.total(ctx)
	if err != nil {
		return web.StoreFailure(err)
	}
	offset, err := l.offset(ctx, total)
	if err != nil {
		return web.StoreFailure(err)
	}
	a.Raw(`{"total_rows":`).Raw(numberOrNull(total)).Raw(`,"offset":`).Raw(numberOrNull(offset))
	if l.updateSeq && (l.keys != nil || l.of == localDocs) {
		a.Raw(`,"update_seq":null`) // as in CouchDB
	} else if l.updateSeq {
		sequence, err := l.db.UpdateSequence(ctx)
		if err != nil {
			return web.StoreFailure(err)
		}
		a.Raw(`,"update_seq":`).Text(sequence.String())
	}
	return a.Raw(`,"rows":[` + "\r\n").Err
}

// unknown is a number that is null in the answer.
const unknown = -1

func numberOrNull(n int64) string {
	if n == unknown {
		return "null"
	}
	return strconv.FormatInt(n, 10)
}

// total returns the number of documents in the namespace, whichever of them are listed.
func (l *listing) total(ctx context.Context) (int64, error) {
	switch l.of {
	case namespace{}:
		info, err := l.db.Info(ctx)
		return info.DocCount, err
	case localDocs:
		return unknown, nil // as in CouchDB
	}
	return l.count(ctx, docstore.AllDocsOptions{Start: l.of.first, End: l.of.last})
}

// offset returns the number of documents before the first row. Unlike CouchDB this store has to count them.
func (l *listing) offset(ctx context.Context, total int64) (int64, error) {
	if l.keys != nil || l.of == localDocs {
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

// count returns the number of documents in a range, or unknown if there are more than maxCounted.
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

// ranged yields the rows of a range.
func (l *listing) ranged(ctx context.Context, yield func([]byte, docstore.DocRow) error) error {
	if l.none || l.limit == 0 {
		return nil
	}
	opts := l.within
	opts.Documents, opts.Conflicts, opts.Skip, opts.Limit = l.documents, l.conflicts, l.skip, max(l.limit, 0)
	opts.LargeBody = largeBody
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

// keyed yields the rows of keys. A key that is no string names no document.
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
		id, _ := jsontext.String(key)
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

// lookUp yields the rows of some keys. keys has their JSON texts, and ids has the document ids, in the same order.
func (l *listing) lookUp(ctx context.Context, keys [][]byte, ids []string, yield func([]byte, docstore.DocRow) error) error {
	if len(ids) == 0 {
		return nil
	}
	if l.of == localDocs {
		return l.lookUpLocal(ctx, keys, ids, yield)
	}
	i := 0
	for row, err := range l.db.AllDocs(ctx, docstore.AllDocsOptions{
		Keys: ids, Documents: l.documents, Conflicts: l.conflicts, LargeBody: largeBody,
	}) {
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

// writeRow appends a row. key is the key of the row as JSON, nil in a listing without keys.
func (l *listing) writeRow(ctx context.Context, a *web.Appender, key []byte, row docstore.DocRow) *web.Appender {
	if row.Rev == (docstore.Rev{}) {
		return a.Raw(`{"key":`).Bytes(key).Raw(`,"error":"not_found"}`)
	}
	a.Raw(`{"id":`).Text(row.ID).Raw(`,"key":`).Text(row.ID).Raw(`,"value":{"rev":`).Text(row.Rev.String())
	if row.Deleted {
		a.Raw(`,"deleted":true`)
	}
	a.Raw("}")
	switch {
	case !l.documents:
	case row.Document == nil:
		a.Raw(`,"doc":null`)
	default:
		show := l.show
		show.bodies = bodies{ctx, l.db}
		if l.contents {
			show.content = contentsOf(ctx, l.db, row.Document, nil).inline
		}
		row.Document.DeletedConflicts = nil
		show.document(a.Raw(`,"doc":`), row.Document)
	}
	return a.Raw("}")
}
