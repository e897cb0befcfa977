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
	// maxBulkFailures is how many requests of _bulk_get in a row may come to nothing before the run goes on
	// without it.
	maxBulkFailures = 3
	// designPrefix begins the ids of design documents.
	designPrefix = "_design/"
)

// ref names a revision that the target does not have.
type ref struct {
	id, rev string
	// ancestors are revisions that the target has, which may be ancestors.
	ancestors []string
}

func (f ref) design() bool { return strings.HasPrefix(f.id, designPrefix) }

// missing asks the target which of the revisions in rows it does not have, in as many requests as it needs.
func (r *run) missing(ctx context.Context, rows []couch.Row) ([]ref, error) {
	var refs []ref
	for len(rows) > 0 {
		n, size := r.asking.fit(len(rows), func(i int) int { return askedSize(rows[i]) })
		some, err := r.missingAllowed(ctx, rows[:n])
		if n > 1 && isTooLarge(err, size) {
			r.asking.refused(size)
			continue
		}
		if err != nil {
			return nil, r.target.failed(codeRevsDiff, err)
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

// isIllegalID reports whether a server does not allow one of the ids that a request has.
func isIllegalID(err error) bool {
	refused, ok := errors.AsType[*couch.Error](err)
	return ok && refused.Status == http.StatusBadRequest && refused.Code == "illegal_docid"
}

// missingAllowed is missingOf for rows of which the target may not allow all ids. A partitioned database, for one,
// allows none without a partition, and refuses to answer for the others then. So each half is asked for alone, and a
// row that is refused alone counts as refused by the target.
func (r *run) missingAllowed(ctx context.Context, rows []couch.Row) ([]ref, error) {
	refs, err := r.missingOf(ctx, rows)
	if !isIllegalID(err) {
		return refs, err
	}
	if len(rows) == 1 {
		n := int64(len(rows[0].Revs))
		r.count(replicator.Stats{RevisionsChecked: n, MissingRevisionsFound: n})
		for _, rev := range rows[0].Revs {
			r.refuse(couch.Document{ID: rows[0].ID, Rev: rev}, err)
		}
		return nil, nil
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

// askedSize is about how many bytes of a _revs_diff a row takes.
func askedSize(row couch.Row) int {
	size := len(row.ID) + len(`"":[],`)
	for _, rev := range row.Revs {
		size += len(rev) + len(`"",`)
	}
	return size
}

// missingOf makes one request of missing.
func (r *run) missingOf(ctx context.Context, rows []couch.Row) ([]ref, error) {
	asked := make([]couch.DocRevs, len(rows))
	checked := 0
	for i, row := range rows {
		asked[i] = couch.DocRevs{ID: row.ID, Revs: row.Revs}
		checked += len(row.Revs)
	}
	missing, err := r.target.db.MissingRevs(ctx, asked)
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
			refs = append(refs, ref{rows[i].ID, rev, m.PossibleAncestors})
		}
	}
	r.count(replicator.Stats{RevisionsChecked: int64(checked), MissingRevisionsFound: int64(len(refs))})
	return refs, nil
}

// copyInBulk reads documents with _bulk_get and gives those without attachments to w. It returns the
// revisions that are to be read singly: design documents, whose refusal _bulk_docs does not show, those
// with attachments, and those that the answer does not have.
func (r *run) copyInBulk(ctx context.Context, refs []ref, w *writer) ([]ref, error) {
	left := refs
	var single []ref
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
	for len(left) > 0 {
		unanswered, attached, err := r.bulkGet(ctx, left, w)
		single = append(single, attached...)
		switch {
		case err == nil:
			r.bulkFailures.Store(0)
			return append(single, unanswered...), nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, errFinal), errors.Is(err, couch.ErrUnauthorized), errors.Is(err, couch.ErrSession),
			errors.Is(err, couch.ErrNoDatabase), errors.Is(err, couch.ErrTooManyRequests):
			return nil, r.source.failed(codePlain, err)
		case errors.Is(err, couch.ErrNoBulkGet):
			r.noBulkGet.Store(true)
			return append(single, left...), nil
		case len(unanswered) == len(left):
			// Whatever it is, one by one it shows which document it is with, if it is not gone then. If
			// it is with none, and lasts, it is not worth the time of another batch.
			if r.bulkFailures.Add(1) >= maxBulkFailures {
				r.noBulkGet.Store(true)
			}
			return append(single, left...), nil
		}
		left = unanswered // the answer broke off
	}
	return single, nil
}

// errFinal marks an error that another try to read the same would not mend: what failed has its own
// repetitions behind it.
var errFinal = errors.New("tried often enough")

type finalError struct{ error }

func (e finalError) Unwrap() error        { return e.error }
func (e finalError) Is(target error) bool { return target == errFinal }

// bulkGet makes one _bulk_get. It returns the revisions that were not answered with a document, and those
// that have attachments. With an error that is all that was not read yet.
func (r *run) bulkGet(ctx context.Context, refs []ref, w *writer) (unanswered, attached []ref, err error) {
	asked := make([]couch.DocRef, len(refs))
	for i, f := range refs {
		asked[i] = couch.DocRef{ID: f.id, Rev: f.rev}
	}
	ctx, room := r.withRoom(ctx)
	defer room.leave()
	results, err := r.source.db.BulkGet(ctx, asked)
	if err != nil {
		return refs, nil, err
	}
	defer results.Close()
	answers := answers{refs: refs, answered: make([]bool, len(refs))}
	stats := replicator.Stats{BulkGetAttempts: int64(len(refs))}
	for {
		var f couch.Fetched
		room.leave()
		if f, err = results.Next(); err != nil {
			break
		}
		if f.Err != nil || !answers.take(f) || f.Doc.HasAttachments() {
			continue
		}
		stats.BulkGetDocs++
		stats.DocsRead++
		if err = w.add(ctx, f.Doc); err != nil {
			err = finalError{err}
			break
		}
	}
	r.count(stats)
	for i, f := range refs {
		if !answers.answered[i] {
			unanswered = append(unanswered, f)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return unanswered, answers.attached, err
}

// answers are what a _bulk_get said of the revisions that it was asked for: those of one document stand
// together.
type answers struct {
	refs     []ref
	answered []bool               // for each of refs
	attached []ref                // those that have attachments
	places   map[couch.DocRef]int // of refs; made when there is a document with more than one
}

// take notes for which revisions a document is the answer: its own, or those that it descends from. It
// reports whether there is any.
func (a *answers) take(f couch.Fetched) bool {
	found := a.covered(f)
	for _, i := range found {
		if f.Doc.HasAttachments() && !a.answered[i] {
			a.attached = append(a.attached, a.refs[i])
		}
		a.answered[i] = true
	}
	return len(found) > 0
}

// covered returns the places of the revisions that a document is the answer for. A document may have very many leaves,
// and as many answers.
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

// write writes documents without attachments with _bulk_docs, in smaller portions where the target takes
// no larger ones.
func (r *run) write(ctx context.Context, docs []couch.Document) error {
	if len(docs) == 0 {
		return nil
	}
	size := 0
	for _, doc := range docs {
		size += len(doc.Body) + 1
	}
	refused, err := r.target.db.BulkDocs(ctx, docs)
	tooLarge := isTooLarge(err, size)
	switch {
	case len(docs) == 1 && isWhole(err):
		r.refuse(docs[0], err)
		return nil
	case len(docs) > 1 && tooLarge && !isAboutOne(err):
		r.writing.refused(size)
		return r.writeParts(ctx, docs)
	case len(docs) > 1 && (tooLarge || isWhole(err)):
		return r.writeHalves(ctx, docs)
	case err != nil:
		return r.target.failed(codeBulkDocs, err)
	}
	r.writing.taken(size)
	which, ok := match(refused, docs)
	if !ok {
		return r.writeHalves(ctx, docs)
	}
	defer r.took(len(docs) - len(which)) // at the end: a target that takes some is not one that refuses
	for i := range docs {
		refusal, is := which[i]
		if !is {
			continue
		}
		if isRefusal(refusal.Code) {
			r.refuse(docs[i], refusal)
			continue
		}
		// It may be the server's failure and no refusal. The answer to a request of its own tells.
		if err := r.put(ctx, docs[i], nil, false); err != nil {
			return err
		}
	}
	return nil
}

// writeParts writes documents that are too large together, in portions of the size that the target takes by
// what is known when each one begins.
func (r *run) writeParts(ctx context.Context, docs []couch.Document) error {
	for len(docs) > 0 {
		n, _ := r.writing.fit(len(docs), func(i int) int { return len(docs[i].Body) + 1 })
		if err := r.write(ctx, docs[:n]); err != nil {
			return err
		}
		docs = docs[n:]
	}
	return nil
}

func (r *run) writeHalves(ctx context.Context, docs []couch.Document) error {
	if err := r.write(ctx, docs[:len(docs)/2]); err != nil {
		return err
	}
	return r.write(ctx, docs[len(docs)/2:])
}

// isWhole reports whether a server refused a request for what is in it: for its size, or because of one
// document, for which CouchDB refuses all that come with it. (A 400 without CouchDB's words is a proxy's,
// and not about documents.)
func isWhole(err error) bool {
	e, ok := errors.AsType[*couch.Error](err)
	return ok && (e.Status == http.StatusRequestEntityTooLarge || e.Status == http.StatusBadRequest && isRefusal(e.Code))
}

// isAboutOne reports whether a server refused a request for one of its documents, and says so.
func isAboutOne(err error) bool {
	e, ok := errors.AsType[*couch.Error](err)
	return ok && isRefusal(e.Code) && e.Code != "too_large"
}

// match finds the documents that refusals are about, by their indexes. It fails if a server does not say
// which one it is.
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

// copySingly reads revisions one by one, several at a time, and writes those with attachments at once. The
// others do not wait for these longer than linger.
func (r *run) copySingly(ctx context.Context, refs []ref, w *writer) error {
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
	// Two connections are left for what does not take long.
	g.SetLimit(max(1, (r.connections-2)/r.workers))
	for _, f := range refs {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error { return r.copyRevision(ctx, f, w) })
	}
	return g.Wait()
}

// flushUntil writes what was gathered, again and again.
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
