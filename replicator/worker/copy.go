package worker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"settee/pkg/couch"
	"settee/replicator"
)

const (
	// designPrefix is the prefix of the ids of design documents.
	designPrefix = "_design/"
)

// ref names a revision that the target is missing.
type ref struct {
	id, rev string
	// ancestors are revisions on the target that may be ancestors of rev.
	ancestors []string
	// before is the reply of the target when it was written the last time; nil if it was not.
	before *reply
	apart  bool // its attachments are requested one by one
}

func (f ref) doc() couch.DocRef { return couch.DocRef{ID: f.id, Rev: f.rev} }

func (f ref) design() bool { return strings.HasPrefix(f.id, designPrefix) }

// missing returns the revisions in rows that the target does not have. It makes as many requests as needed.
func (r *run) missing(ctx context.Context, rows []couch.Row) (refs []ref, err error) {
	ctx, span := r.step(ctx, "compare revisions", revisions(rows))
	defer func() { r.endSpan(span, err) }()
	for len(rows) > 0 {
		n, size := r.asking.fit(len(rows), func(i int) int { return askedSize(rows[i]) })
		some, err := r.missingAllowed(ctx, rows[:n])
		if n > 1 && isTooLarge(err, size) {
			r.asking.refused(size)
			continue
		}
		if err != nil {
			some, err = r.missingEach(ctx, rows[:n], err)
		}
		if err != nil {
			return nil, r.target.failed(replicator.RequestCompare, err)
		}
		r.asking.taken(size)
		rows = rows[n:]
		if refs == nil {
			refs = some
		} else {
			refs = append(refs, some...)
		}
	}
	return refs, nil
}

// missingEach is missing for rows about which the target could not be asked together: it asks about each alone. A row about which
// it cannot be asked at all goes to reject. failure is returned if the target takes no other question.
func (r *run) missingEach(ctx context.Context, rows []couch.Row, failure error) (refs []ref, err error) {
	if !r.takesQuestions(ctx, failure) {
		return nil, failure
	}
	for _, row := range rows {
		some, err := r.missingAllowed(ctx, []couch.Row{row})
		if err != nil && !r.takesQuestions(ctx, err) {
			return nil, err
		}
		if err != nil {
			some = r.reject(row, err)
		}
		refs = append(refs, some...)
	}
	return refs, nil
}

// anyDocument is asked about to learn whether a target answers questions. Its id may be used in partitioned databases, too.
var anyDocument = couch.DocRevs{ID: "a:a", Revs: []string{"1-00000000000000000000000000000000"}}

// takesQuestions reports whether the target can be asked about other documents than those of a question that failed with err.
func (r *run) takesQuestions(ctx context.Context, err error) bool {
	if ctx.Err() != nil || concernsDatabase(err) {
		return false
	}
	_, err = r.target.db.RevsDiff(ctx, []couch.DocRevs{anyDocument})
	return err == nil
}

// isIllegalID reports whether a server rejected a request because of a document id in it.
func isIllegalID(err error) bool {
	refused, ok := errors.AsType[*couch.Error](err)
	return ok && refused.Status == http.StatusBadRequest && refused.Code == "illegal_docid"
}

// missingAllowed is missingOf for rows with ids that the target may reject. A partitioned database, for example,
// rejects a request if one of its ids has no partition. missingAllowed then asks for each half alone. A row that is
// rejected alone twice goes to reject.
func (r *run) missingAllowed(ctx context.Context, rows []couch.Row) ([]ref, error) {
	refs, err := r.missingOf(ctx, rows)
	if !isIllegalID(err) {
		return refs, err
	}
	if len(rows) == 1 {
		if refs, err = r.missingOf(ctx, rows); isIllegalID(err) {
			return r.reject(rows[0], err), nil
		}
		return refs, err
	}
	for _, half := range [][]couch.Row{rows[:len(rows)/2], rows[len(rows)/2:]} {
		some, err := r.missingAllowed(ctx, half)
		if err != nil {
			return nil, err
		}
		refs = append(refs, some...)
	}
	return refs, nil
}

// refuseRow counts a row that the target rejects, or about which it cannot be asked, as refused, and so as nothing to copy.
func (r *run) refuseRow(row couch.Row, err error) []ref {
	n := int64(len(row.Revs))
	r.count(replicator.Stats{RevisionsChecked: n, MissingRevisionsFound: n})
	for _, rev := range row.Revs {
		if isIllegalID(err) {
			r.refuse(couch.Document{ID: row.ID, Rev: rev}, err)
		} else {
			r.fail(failureOf(ref{id: row.ID, rev: rev}, r.target.failed(replicator.RequestCompare, err)))
		}
	}
	return nil
}

// askedSize returns the approximate size of a row in a _revs_diff request, in bytes.
func askedSize(row couch.Row) int {
	size := len(row.ID) + len(`"":[],`)
	for _, rev := range row.Revs {
		size += len(rev) + len(`"",`)
	}
	return size
}

// missingOf makes one request for missing.
func (r *run) missingOf(ctx context.Context, rows []couch.Row) ([]ref, error) {
	asked := make([]couch.DocRevs, len(rows))
	checked := 0
	for i, row := range rows {
		asked[i] = couch.DocRevs{ID: row.ID, Revs: row.Revs}
		checked += len(row.Revs)
	}
	missing, err := r.target.db.RevsDiff(ctx, asked)
	if err != nil {
		return nil, err
	}
	found := 0
	for i := range missing {
		found += len(missing[i].Revs)
	}
	refs := make([]ref, 0, found)
	for i, m := range missing {
		for _, rev := range m.Revs {
			refs = append(refs, ref{id: rows[i].ID, rev: rev, ancestors: m.PossibleAncestors})
		}
	}
	r.count(replicator.Stats{RevisionsChecked: int64(checked), MissingRevisionsFound: int64(len(refs))})
	return refs, nil
}

// bulkGets reports whether documents are read with _bulk_get.
func (r *run) bulkGets() bool { return r.useBulkGet && !r.noBulkGet.Load() && r.bulkPause.over() }

// copyInBulk reads documents with _bulk_get and gives those without attachments to w. It returns the revisions to read
// one by one: design documents, because _bulk_docs does not show their refusal, documents with attachments, and
// revisions that the answer lacks. small are the documents that have small attachments only, for copySmall. notAsked says that the
// target was not asked about refs: those that are copied are counted as missing there.
func (r *run) copyInBulk(ctx context.Context, refs []ref, notAsked bool, w *writer) (single []ref, small []smallRef, err error) {
	ctx, span := r.step(ctx, "read documents", len(refs))
	defer func() { r.endSpan(span, err) }()
	left := refs
	if slices.ContainsFunc(refs, ref.design) {
		left = nil
		for _, f := range refs {
			if f.design() {
				single = append(single, f)
			} else {
				left = append(left, f)
			}
		}
	}
	parts := partsOf(left, r.requestsPerBatch())
	found := make([]inBulk, len(parts))
	g, ctx := errgroup.WithContext(ctx)
	for i, refs := range parts {
		g.Go(func() (err error) {
			found[i], err = r.copyPart(ctx, refs, notAsked, w)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	failed := false
	for _, f := range found {
		single, small, failed = append(single, f.single...), append(small, f.small...), failed || f.failed
	}
	if failed { // requests side by side fail together
		r.bulkPause.failed()
	}
	return single, small, nil
}

// minPerRequest is the number of revisions below which a request does not pay that is made beside another.
const minPerRequest = 100

// partsOf divides refs into at most n requests of about the same size. All revisions of a document are in the same one.
func partsOf(refs []ref, n int) [][]ref {
	var parts [][]ref
	for n = min(n, len(refs)/minPerRequest); n > 1; n = min(n-1, len(refs)/minPerRequest) {
		end := len(refs) / n
		for end < len(refs) && refs[end].id == refs[end-1].id {
			end++
		}
		parts, refs = append(parts, refs[:end]), refs[end:]
	}
	if len(refs) > 0 {
		parts = append(parts, refs)
	}
	return parts
}

// inBulk is what copyPart leaves.
type inBulk struct {
	single []ref      // to be read one by one
	small  []smallRef // to be read with their attachments
	failed bool       // the last request failed, and nothing was answered
}

// copyPart is copyInBulk for what is read with one request, or with more if an answer is cut off.
func (r *run) copyPart(ctx context.Context, left []ref, notAsked bool, w *writer) (found inBulk, err error) {
	for len(left) > 0 {
		unanswered, answers, err := r.bulkGet(ctx, left, notAsked, w)
		found.single, found.small = append(found.single, answers.attached...), append(found.small, answers.small...)
		switch {
		case err == nil:
			r.bulkPause.succeeded()
			found.single = append(found.single, unanswered...)
			return found, nil
		case ctx.Err() != nil:
			return found, context.Cause(ctx)
		case errors.Is(err, errFinal), errors.Is(err, couch.ErrUnauthorized), errors.Is(err, couch.ErrSession),
			errors.Is(err, couch.ErrNoDatabase), errors.Is(err, couch.ErrTooManyRequests):
			return found, r.source.failed(replicator.RequestReadDocuments, err)
		case errors.Is(err, couch.ErrNoBulkGet):
			r.noBulkGet.Store(true)
			found.single = append(found.single, left...)
			return found, nil
		case len(unanswered) == len(left):
			// Nothing was answered. Reading one by one shows which document causes the failure, if any does. If the
			// failure lasts, _bulk_get is tried again after a pause.
			found.single, found.failed = append(found.single, left...), true
			return found, nil
		}
		left = unanswered // the answer was cut off
	}
	return found, nil
}

// errFinal marks an error that is not worth another read, because the failed operation has already been retried.
var errFinal = errors.New("tried often enough")

type finalError struct{ error }

func (e finalError) Unwrap() error        { return e.error }
func (e finalError) Is(target error) bool { return target == errFinal }

// bulkGet makes one _bulk_get request. It returns the revisions that were not answered with a document, and in found
// those that have attachments. With an error, these are all revisions that were not read.
func (r *run) bulkGet(ctx context.Context, refs []ref, notAsked bool, w *writer) (unanswered []ref, found answers, err error) {
	ctx, room := r.withRoom(ctx)
	defer room.leave()
	results, err := r.source.db.BulkGet(ctx, docRefs(refs))
	if err != nil {
		return refs, found, err
	}
	defer results.Close()
	answers := answers{refs: refs, answered: make([]bool, len(refs))}
	r.count(replicator.Stats{BulkGetAttempts: int64(len(refs))})
	for {
		var f couch.Fetched
		room.leave()
		if f, err = results.Next(); err != nil {
			break
		}
		if f.Err != nil {
			continue
		}
		more, found := answers.take(f)
		if !found || f.Doc.HasAttachments() {
			continue
		}
		// It counts as read before it can count as written.
		read := replicator.Stats{BulkGetDocs: 1, DocCounts: replicator.DocCounts{DocsRead: 1}}
		if notAsked {
			read.RevisionsChecked, read.MissingRevisionsFound = more, more
		}
		r.count(read)
		if err = w.add(ctx, f.Doc); err != nil {
			err = finalError{err}
			break
		}
	}
	if err == io.EOF {
		err = nil
	}
	return answers.unanswered(), answers, err
}

func refsOf(docs []couch.Document) []ref {
	refs := make([]ref, len(docs))
	for i, doc := range docs {
		refs[i] = ref{id: doc.ID, rev: doc.Rev}
	}
	return refs
}

func docRefs(refs []ref) []couch.DocRef {
	asked := make([]couch.DocRef, len(refs))
	for i, f := range refs {
		asked[i] = f.doc()
	}
	return asked
}

// answers collects what a _bulk_get answers for refs. The refs of one document are adjacent.
type answers struct {
	refs     []ref
	answered []bool               // for each of refs
	attached []ref                // those that have attachments, except small
	small    []smallRef           // those that have small attachments only
	places   map[couch.DocRef]int // indexes of refs; made when a document has several
}

// take marks the revisions that a document answers, its own or its ancestors, and reports whether there are any. more is
// the number of those that were not marked before.
func (a *answers) take(f couch.Fetched) (more int64, found bool) {
	covered := a.covered(f)
	for _, i := range covered {
		if !a.answered[i] {
			more++
		}
		if f.Doc.HasAttachments() && !a.answered[i] {
			// A revision that answers itself is a leaf, and the only answer.
			if size, ok := smallSize(f.Doc); ok && f.Rev == a.refs[i].rev {
				a.small = append(a.small, smallRef{a.refs[i], size})
			} else {
				a.attached = append(a.attached, a.refs[i])
			}
		}
		a.answered[i] = true
	}
	return more, len(covered) > 0
}

// unanswered returns the revisions that are not marked.
func (a *answers) unanswered() []ref {
	var left []ref
	for i, f := range a.refs {
		if !a.answered[i] {
			left = append(left, f)
		}
	}
	return left
}

// exactly returns the index of the revision that a document is, unless that is marked.
func (a *answers) exactly(f couch.Fetched) (at int, ok bool) {
	if f.Err != nil {
		return 0, false
	}
	for _, i := range a.covered(f) {
		if a.refs[i].rev == f.Rev && !a.answered[i] {
			return i, true
		}
	}
	return 0, false
}

// covered returns the indexes of the revisions that a document answers. It is fast for a document with very many
// leaves, and as many answers.
func (a *answers) covered(f couch.Fetched) []int {
	alone := (f.At == 0 || a.refs[f.At-1].id != f.ID) && (f.At+1 == len(a.refs) || a.refs[f.At+1].id != f.ID)
	if rev := a.refs[f.At].rev; alone {
		if rev == f.Rev || ancestors(f.Doc)[rev] {
			return []int{f.At}
		}
		return nil
	}
	if a.places == nil {
		a.places = make(map[couch.DocRef]int, len(a.refs))
		for i, r := range a.refs {
			a.places[couch.DocRef{ID: r.id, Rev: r.rev}] = i
		}
	}
	var found []int
	look := func(rev string) {
		if i, is := a.places[couch.DocRef{ID: f.ID, Rev: rev}]; is {
			found = append(found, i)
		}
	}
	look(f.Rev)
	for rev := range ancestors(f.Doc) {
		if rev != f.Rev {
			look(rev)
		}
	}
	slices.Sort(found)
	return found
}

// write writes documents without attachments with _bulk_docs, in smaller portions if the target requires that. Documents
// whose write is in doubt go to w.
func (r *run) write(ctx context.Context, docs []couch.Document, w *writer) (err error) {
	if len(docs) == 0 {
		return nil
	}
	ctx, span := r.step(ctx, "write documents", len(docs))
	defer func() { r.endSpan(span, err) }()
	size := 0
	for _, doc := range docs {
		size += len(doc.Body) + 1
	}
	as := r.target.login()
	refused, err := r.target.db.BulkDocs(ctx, docs)
	tooLarge := isTooLarge(err, size)
	switch {
	case len(docs) == 1 && isWhole(err):
		return r.setAside(ctx, r.judged(ctx, docs[0], err, nil, as), refsOf(docs)...)
	case len(docs) > 1 && tooLarge && !isAboutOne(err):
		r.writing.refused(size)
		return r.writeParts(ctx, docs, w)
	case len(docs) > 1 && (tooLarge || isWhole(err)):
		return r.writeHalves(ctx, docs, w)
	case err != nil:
		return r.setAside(ctx, r.target.failed(replicator.RequestWriteDocuments, err), refsOf(docs)...)
	}
	r.writing.taken(size)
	which, ok := match(refused, docs)
	if !ok {
		return r.writeHalves(ctx, docs, w)
	}
	defer r.took(len(docs) - len(which)) // last, because accepting a document ends a series of refusals
	for i := range docs {
		if which[i] == nil {
			continue
		}
		if err := r.setAside(ctx, r.judged(ctx, docs[i], which[i], nil, as), refsOf(docs[i:i+1])...); err != nil {
			return err
		}
	}
	return nil
}

// writeParts writes documents that are too large together. It reads the size limit again before each portion.
func (r *run) writeParts(ctx context.Context, docs []couch.Document, w *writer) error {
	for len(docs) > 0 {
		n, _ := r.writing.fit(len(docs), func(i int) int { return len(docs[i].Body) + 1 })
		if err := r.write(ctx, docs[:n], w); err != nil {
			return err
		}
		docs = docs[n:]
	}
	return nil
}

func (r *run) writeHalves(ctx context.Context, docs []couch.Document, w *writer) error {
	if err := r.write(ctx, docs[:len(docs)/2], w); err != nil {
		return err
	}
	return r.write(ctx, docs[len(docs)/2:], w)
}

// isWhole reports whether a server refused a request as a whole for its content: for its size, or because CouchDB
// refuses all documents of a request for one of them. A 400 without CouchDB's codes comes from a proxy and is not about
// documents.
func isWhole(err error) bool {
	e, ok := errors.AsType[*couch.Error](err)
	return ok && (e.Status == http.StatusRequestEntityTooLarge || e.Status == http.StatusBadRequest && statusOf(e.Code) != 0)
}

// isAboutOne reports whether a server refused a request because of one of its documents.
func isAboutOne(err error) bool {
	e, ok := errors.AsType[*couch.Error](err)
	return ok && statusOf(e.Code) != 0 && e.Code != "too_large"
}

// match maps indexes of docs to their refusals. It fails if the server does not identify a document.
func match(refused []couch.DocError, docs []couch.Document) (map[int]*couch.DocError, bool) {
	which := make(map[int]*couch.DocError, len(refused))
	for n := range refused {
		refusal := &refused[n]
		found := len(docs) == 1
		index := 0
		for i := 0; i < len(docs) && !found; i++ {
			if docs[i].ID == refusal.ID && docs[i].Rev == refusal.Rev {
				index, found = i, true
			}
		}
		if !found {
			return nil, false
		}
		which[index] = refusal
	}
	return which, true
}

// copySingly reads revisions one by one, several in parallel, and writes those with attachments at once. The others
// wait no longer than linger to be written.
func (r *run) copySingly(ctx context.Context, refs []ref, w *writer) (err error) {
	ctx, span := r.step(ctx, "copy single revisions", len(refs))
	defer func() { r.endSpan(span, err) }()
	g, ctx := errgroup.WithContext(ctx)
	copied := make(chan struct{})
	g.Go(func() error {
		defer close(copied)
		return r.copyEach(ctx, refs, w)
	})
	g.Go(func() error { return w.flushUntil(ctx, copied) })
	return g.Wait()
}

func (r *run) copyEach(ctx context.Context, refs []ref, w *writer) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, f := range refs {
		leave, err := r.steps.revision.enter(ctx)
		if err != nil {
			break // g has the error
		}
		g.Go(func() error {
			defer leave()
			if err := r.copyRevision(ctx, f, w); err != nil {
				return r.setAside(ctx, err, f)
			}
			return nil
		})
	}
	return g.Wait()
}

// flushUntil flushes w every linger until copied is closed.
func (w *writer) flushUntil(ctx context.Context, copied <-chan struct{}) error {
	tick := time.NewTicker(linger)
	defer tick.Stop()
	for {
		select {
		case <-copied:
			return nil
		case <-tick.C:
		}
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
}
