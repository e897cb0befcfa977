package worker

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"settee/pkg/couch"
	"settee/replicator"
)

const (
	// maxOwnFailures is the number of failures in a row that may be those of single documents.
	maxOwnFailures = 100
	// maxSamples is the number of documents that are tried to find out whether the source gives any. They are among the first
	// sampleRows rows of its feed.
	maxSamples, sampleRows = 3, 20
	// maxAgain is the number of times that a revision is copied again, until two answers to its write in a row are the same.
	maxAgain = 2
	// missingPatience is how many times as long a missing revision is waited for when it is read for the second time.
	missingPatience = 15
)

// setAside has the revisions of a batch that could not be copied, or whose write got an answer that may pass. After the rest of
// the batch they are read afresh, and each is written alone. A revision that fails again is listed if the failure is its own. It
// is safe for concurrent use.
type setAside struct {
	written int64 // failures.written when the batch began

	mu        sync.Mutex
	revisions []setAsideRef
}

// setAsideRef is a revision that could not be copied.
type setAsideRef struct {
	ref
	err error // of the second time; nil if it was copied
}

type setAsideKey struct{}

// newSetAside returns what a batch that begins has set aside: nothing.
func (r *run) newSetAside() *setAside {
	_, written := r.failing.last()
	return &setAside{written: written}
}

// withSetAside returns a context in which revisions are set aside. Without one, or with nil, a failure ends the run.
func withSetAside(ctx context.Context, s *setAside) context.Context {
	return context.WithValue(ctx, setAsideKey{}, s)
}

// failures counts failures since a revision was last copied in a request of its own. The zero value is ready.
type failures struct {
	mu      sync.Mutex
	inRow   int
	written int64 // documents that the target accepted in requests of their own
	sample  ref   // the last revision copied in a request of its own
}

// add counts a failure, and returns the number of failures in a row.
func (f *failures) add() (inRow int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inRow++
	return f.inRow
}

// copied notes that a revision was copied that was read in a request of its own.
func (f *failures) copied(r ref) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inRow, f.sample = 0, ref{id: r.id, rev: r.rev}
}

// wrote notes that the target accepted a document in a request of its own.
func (f *failures) wrote() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written++
}

func (f *failures) last() (sample ref, written int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sample, f.written
}

// setAside sets revisions aside that failed with err, so that the rest of their batch goes on. It returns err, which ends the
// run, if the failure concerns their database. A nil err is none.
func (r *run) setAside(ctx context.Context, err error, refs ...ref) error {
	batch, _ := ctx.Value(setAsideKey{}).(*setAside)
	if err == nil || batch == nil {
		return err
	}
	before, inDoubt := doubted(err)
	if !inDoubt && (!isLongURL(err) && r.failing.add() > maxOwnFailures || !r.isOwn(ctx, err, refs)) {
		return err
	}
	batch.mu.Lock()
	defer batch.mu.Unlock()
	for _, f := range refs {
		batch.revisions = append(batch.revisions, setAsideRef{ref: ref{id: f.id, rev: f.rev, before: before}})
	}
	return nil
}

// doubted returns the reply to a write that a second one is to confirm.
func doubted(err error) (*reply, bool) {
	if !errors.As(err, new(doubtError)) {
		return nil, false
	}
	answer, _ := replyOf(err)
	return &answer, true
}

// isLongURL reports whether the length of a document's id explains an error, so that it says nothing of other documents.
func isLongURL(err error) bool {
	e, ok := errors.AsType[*couch.Error](err)
	return ok && e.LongURL()
}

// isOwn reports whether err, from copying revisions, may concern them alone: their database answers, the source gives another
// document, and the target answers an empty write, if they were written together. If the length of an id explains err, it is
// enough that the database answers.
func (r *run) isOwn(ctx context.Context, err error, refs []ref) bool {
	if ctx.Err() != nil || concernsDatabase(err) {
		return false
	}
	side := r.blame(err)
	if _, infoErr := side.db.Info(ctx); infoErr != nil {
		return false
	}
	switch {
	case isLongURL(err):
		return true
	case side == r.source:
		return r.givesOther(ctx, refs[0])
	case len(refs) > 1:
		return side.db.TakesBulkDocs(ctx) == nil
	}
	return true
}

// concernsDatabase reports whether err says that a database is missing, busy, full, or closed to the user.
func concernsDatabase(err error) bool {
	for _, all := range []error{couch.ErrNoDatabase, couch.ErrUnauthorized, couch.ErrSession, couch.ErrTooManyRequests} {
		if errors.Is(err, all) {
			return true
		}
	}
	e, ok := errors.AsType[*couch.Error](err)
	return ok && (e.RetryAfter > 0 || e.Status == http.StatusServiceUnavailable || e.Status == http.StatusInsufficientStorage)
}

// givesOther reports whether the source gives a document other than f in a request of its own.
func (r *run) givesOther(ctx context.Context, f ref) bool {
	if last, _ := r.failing.last(); last.id != "" && last.id != f.id && r.gives(ctx, last) {
		return true
	}
	return slices.ContainsFunc(r.samples(ctx, f), func(other ref) bool { return r.gives(ctx, other) })
}

// samples returns revisions of the first documents of the source that can be read in requests of their own, except f.
func (r *run) samples(ctx context.Context, f ref) (some []ref) {
	feed, err := r.source.db.Changes(ctx, couch.ChangesOptions{Limit: sampleRows, Patience: r.patience()})
	if err != nil {
		return nil
	}
	defer feed.Close()
	for len(some) < maxSamples {
		row, err := feed.Next()
		if err != nil {
			break
		}
		if row.Err == nil && row.ID != "" && row.ID != f.id && !couch.LongID(row.ID) {
			some = append(some, ref{id: row.ID, rev: row.Revs[0]})
		}
	}
	return some
}

// gives reports whether the source gives a revision. Its attachments are not read.
func (r *run) gives(ctx context.Context, f ref) bool {
	ctx, room := r.withRoom(ctx)
	defer room.leave()
	leaves, err := r.source.db.OpenRevs(ctx, f.id, f.rev, nil)
	if err != nil {
		return false
	}
	defer leaves.Close()
	leaf, err := leaves.Next()
	return err == nil && leaf.Err == nil
}

// copySetAside copies the revisions of a batch that were set aside, and lists those that fail again.
func (r *run) copySetAside(ctx context.Context, batch *setAside) (err error) {
	again := batch.revisions
	if len(again) == 0 {
		return nil
	}
	ctx, span := r.step(withSetAside(ctx, nil), "copy single revisions", len(again))
	defer func() { r.endSpan(span, err) }()
	leave, err := r.steps.single.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	var failed []setAsideRef
	for range maxAgain {
		if err := r.copyAgain(ctx, again); err != nil {
			return err
		}
		var differ []setAsideRef // from the answer before
		for _, f := range again {
			if f.before, _ = doubted(f.err); f.before != nil {
				differ = append(differ, f)
			} else if f.err != nil {
				failed = append(failed, f)
			}
		}
		again = differ
	}
	for _, f := range append(failed, again...) { // after all, because a document that the target accepts says something of the others
		if f.before != nil {
			f.err = r.target.failed(replicator.RequestWriteDocument, f.err)
		}
		unproven := r.blame(f.err) == r.target && !isLongURL(f.err) && !r.acceptedSince(batch.written)
		if unproven || !r.isOwn(ctx, f.err, []ref{f.ref}) {
			return f.err
		}
		r.fail(failureOf(f.ref, f.err))
	}
	return nil
}

// copyAgain copies revisions, each in requests of its own, and sets their errors. It returns an error that concerns a database.
func (r *run) copyAgain(ctx context.Context, again []setAsideRef) error {
	g, copying := errgroup.WithContext(ctx)
	for i := range again {
		leave, err := r.steps.revision.enter(copying)
		if err != nil {
			break // g has the error
		}
		g.Go(func() error {
			defer leave()
			f := &again[i]
			f.err = r.copyRevision(copying, f.ref, nil)
			if _, inDoubt := doubted(f.err); inDoubt || f.err == nil || copying.Err() == nil && !concernsDatabase(f.err) {
				return nil
			}
			return f.err
		})
	}
	return g.Wait()
}

// acceptedSince reports whether the target has accepted a document in a request of its own since a number of them.
func (r *run) acceptedSince(written int64) bool {
	_, now := r.failing.last()
	return now > written
}

// failureOf describes a revision that was not copied.
func failureOf(f ref, err error) Refusal {
	listed := Refusal{ID: f.id, Rev: f.rev, Code: codePlain, Reason: err.Error(), Time: time.Now()}
	if e, ok := errors.AsType[*Error](err); ok {
		listed.Code, listed.Reason = e.Code, e.Reason
	}
	if e, ok := errors.AsType[*couch.Error](err); ok && e.Status >= http.StatusMultipleChoices {
		listed.Status, listed.Code = e.Status, cmp.Or(e.Code, listed.Code)
	}
	return listed
}
