package worker

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"settee/pkg/couch"
	"settee/pkg/retry"
	"settee/replicator"
)

// maxAwaited is the approximate limit on the memory, in bytes, for batches with missing leaves that wait to be asked
// about again. A batch that does not fit waits until others are done, and the feed with it.
const maxAwaited = 32 << 20

// Verification says what [Verify] compares.
type Verification struct {
	// Replication has the two databases, and selects leaves as for a copy: by DocIDs, Selector, Filter, SinceSeq and
	// WinningRevsOnly. Verify ignores its options about checkpoints and about creating the target, and Continuous.
	Replication *replicator.Replication
	// Both also looks for leaves of the target that the source lacks. The filter must then exist on the target, and a
	// SinceSeq is ignored there, because a sequence belongs to one database.
	Both bool
	// Attachments also compares the attachments of the leaves that both databases have. Verify reads all of them.
	Attachments bool
	// Wait is the time after which a missing leaf is asked about again. It is the time that a replication which runs
	// meanwhile may take for a change.
	Wait time.Duration

	// Found is called for each difference, at once and by one goroutine at a time. An error ends Verify.
	Found func(Difference) error
	// Report is called with the state at least every Config.ReportInterval. An error ends Verify. nil: no reports.
	Report func(VerifyProgress) error
	// Opened is called with what both databases say of themselves before they are compared. nil: it is not called.
	Opened func(*replicator.Ends)
	// Stop, when it ends, ends Verify with ErrStopped. nil: never.
	Stop context.Context
}

// Difference is a leaf that a database lacks, or an attachment that is not the same in both.
type Difference struct {
	ID, Rev string
	// Missing is the database that lacks the leaf, "target" or "source". It is empty if Attachment is set.
	Missing string
	// Winner and Deleted describe a missing leaf in the other database.
	Winner, Deleted bool
	// Attachment, if not nil, is an attachment of a leaf that both databases have.
	Attachment *AttachmentDifference
}

// AttachmentDifference says how an attachment differs.
type AttachmentDifference struct {
	Name           string
	Source, Target *AttachmentState // nil: this side does not have it
}

// AttachmentState is an attachment on one side.
type AttachmentState struct {
	ContentType string `json:"content_type"`
	Length      int64  `json:"length"` // bytes of the content; -1 if unknown
	// Digest is "sha256-" and the base64 of the content's hash. It is empty if the bytes were not read to the end,
	// because the content type or the length differs already, or because of Error.
	Digest string `json:"digest,omitempty"`
	// Error says why the bytes cannot be read.
	Error string `json:"error,omitempty"`
}

// Verified counts what Verify has compared.
type Verified struct {
	Checked int64 `json:"revisions_checked"` // leaves that were looked for
	// MissingAtTarget and MissingAtSource are the missing leaves.
	MissingAtTarget int64 `json:"missing_at_target"`
	MissingAtSource int64 `json:"missing_at_source"`
	// Attachments were compared, and DifferentAttachments differ.
	Attachments          int64 `json:"attachments_checked"`
	DifferentAttachments int64 `json:"attachments_different"`
	// Changed counts leaves that were missing at first and were replaced or removed before they were asked about again.
	Changed int64 `json:"changed_meanwhile"`
}

// Equal reports whether there was no difference.
func (v Verified) Equal() bool {
	return v.MissingAtTarget == 0 && v.MissingAtSource == 0 && v.DifferentAttachments == 0
}

// VerifyProgress is the state of Verify.
type VerifyProgress struct {
	Verified
	Backwards bool // the target's feed is being read
	// ChangesPending is the number of changes of the current feed still to be dealt with, or nil if that is not known.
	ChangesPending *int64
}

// verifier is a call of Verify.
type verifier struct {
	Verification
	cfg Config

	mu        sync.Mutex
	state     Verified
	backwards bool

	telling sync.Mutex // held while Found is called
}

// Verify proves that the target has what the source has. The package comment says what that means. The counts are valid
// even if there is an error, for what was compared until then. It returns the errors of [Run].
func Verify(ctx context.Context, what Verification, cfg Config) (Verified, error) {
	v := &verifier{Verification: what, cfg: cfg}
	v.cfg.NoCheckpoints, v.cfg.Refused, v.cfg.ListRefused = true, nil, nil
	if v.cfg.Shared == nil {
		v.cfg.Shared = &Shared{}
	}
	rep := *what.Replication
	rep.Continuous, rep.CreateTarget, rep.UseCheckpoints = false, false, nil
	err := v.compare(ctx, &rep)
	if err == nil && v.Both {
		rep.Source, rep.Target, rep.SinceSeq = rep.Target, rep.Source, nil
		v.mu.Lock()
		v.backwards = true
		v.mu.Unlock()
		err = v.compare(ctx, &rep)
	}
	return v.counts(), err
}

func (v *verifier) counts() Verified {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state
}

func (v *verifier) count(edit func(*Verified)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	edit(&v.state)
}

// tell reports a difference.
func (v *verifier) tell(d Difference) error {
	v.telling.Lock()
	defer v.telling.Unlock()
	v.count(func(s *Verified) {
		switch {
		case d.Attachment != nil:
			s.DifferentAttachments++
		case d.Missing == "source":
			s.MissingAtSource++
		default:
			s.MissingAtTarget++
		}
	})
	return v.Found(d)
}

// Identify and Report make a verifier the Reporter of its runs.

func (v *verifier) Identify(context.Context, replicator.ID) error { return nil }

func (v *verifier) Report(_ context.Context, p Progress) error {
	if v.Verification.Report == nil {
		return nil
	}
	return v.Verification.Report(VerifyProgress{v.counts(), v.backwards, p.ChangesPending})
}

// comparison looks for the leaves of one database in the other. It is a run that copies nothing.
type comparison struct {
	*verifier
	r       *run
	awaited *semaphore.Weighted // bytes of batches that wait, of maxAwaited
}

// compare looks for the leaves of rep's source in its target.
func (v *verifier) compare(ctx context.Context, rep *replicator.Replication) error {
	r, err := newRun(&Job{Replication: rep, Stop: v.Stop}, &v.cfg, v)
	if err != nil {
		return err
	}
	defer r.source.db.Close()
	defer r.target.db.Close()
	if v.backwards {
		r.source.side, r.target.side = r.target.side, r.source.side
	}
	c := &comparison{v, r, semaphore.NewWeighted(maxAwaited)}
	r.handle, r.reject = c.batch, allOf
	err = r.reporting(ctx, func(ctx context.Context) error { return r.untilStopped(ctx, c.run) })
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrIDChanged):
		return newError(r.source.coded(replicator.FaultFilterChanged, replicator.RequestReadFilter, "the filter function of "+r.source.uri+" changed while it was used"), err)
	}
	return err
}

func (c *comparison) run(ctx context.Context) error {
	if err := c.r.openBoth(ctx); err != nil {
		return err
	}
	if c.Opened != nil && !c.backwards {
		c.Opened(c.r.said())
	}
	var err error
	if c.r.id, err = c.r.computeID(ctx, c.r.rep); err != nil { // a different id shows that the filter has changed
		return err
	}
	if err := c.r.readCheckpoints(ctx); err != nil { // sets the start
		return err
	}
	var question pendingQuestion
	question.ask(ctx, c.r) // the number of changes shows how far the comparison is
	complete, err := c.r.copy(ctx)
	if err == nil && !complete {
		err = ErrStopped
	}
	if err != nil {
		return err
	}
	return c.r.sameID(ctx)
}

// batch compares the leaves of a batch. It returns when the differences are known, after Wait if leaves are missing;
// the next batch may begin before that.
func (c *comparison) batch(ctx, _ context.Context, b *batch, asked func(), _ func(error)) error {
	rows, err := c.unnamed(b.rows)
	if err != nil {
		return err
	}
	missing, err := c.r.missing(ctx, rows)
	if err != nil {
		return err
	}
	c.count(func(s *Verified) {
		for _, row := range b.rows {
			s.Checked += int64(len(row.Revs))
		}
	})
	if err := c.compareAttachments(ctx, rows, missing); err != nil || len(missing) == 0 {
		return err
	}
	const refSize = 64 // bytes
	size := min(int64(b.size+refSize*len(missing)), maxAwaited)
	if err := c.awaited.Acquire(ctx, size); err != nil {
		return context.Cause(ctx)
	}
	defer c.awaited.Release(size)
	asked()
	if err := retry.Wait(ctx, c.Wait); err != nil {
		return err
	}
	leave, err := c.r.steps.single.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return c.askAgain(ctx, missing)
}

// unnamed reports the documents without an id, which only old releases of CouchDB have, as missing. No other server can
// have them. So it does the documents of rows that are not understood, without a revision. It returns the other rows.
func (c *comparison) unnamed(rows []couch.Row) ([]couch.Row, error) {
	if !slices.ContainsFunc(rows, func(row couch.Row) bool { return row.ID == "" || row.Err != nil }) {
		return rows, nil
	}
	named := make([]couch.Row, 0, len(rows))
	for _, row := range rows {
		if row.Err != nil {
			if err := c.tell(Difference{ID: row.ID, Missing: c.r.target.side}); err != nil {
				return nil, err
			}
			continue
		}
		if row.ID != "" {
			named = append(named, row)
			continue
		}
		for i, rev := range row.Revs {
			d := Difference{Rev: rev, Missing: c.r.target.side, Winner: i == 0, Deleted: i == 0 && row.Deleted}
			if err := c.tell(d); err != nil {
				return nil, err
			}
		}
	}
	return named, nil
}

// askAgain reports the missing leaves that the target still lacks and that the source still has. The target comes first:
// a leaf of the source both before and after was one when the target was asked.
func (c *comparison) askAgain(ctx context.Context, refs []ref) error {
	rows := grouped(refs)
	missing, err := c.r.missing(ctx, rows)
	if err != nil {
		return err
	}
	if err := c.compareAttachments(ctx, rows, missing); err != nil || len(missing) == 0 {
		return err
	}
	ids := make([]string, 0, len(rows))
	for i, f := range missing {
		if i == 0 || f.id != missing[i-1].id {
			ids = append(ids, f.id)
		}
	}
	found, err := c.r.source.db.Winners(ctx, ids)
	if err != nil {
		return c.r.source.failed(replicator.RequestReadDocuments, err)
	}
	winners := make(map[string]couch.Winner, len(ids))
	for i, id := range ids {
		winners[id] = found[i]
	}
	var others []ref
	var gone int64
	for _, f := range missing {
		switch winner := winners[f.id]; {
		case winner.Rev == f.rev:
			err := c.tell(Difference{ID: f.id, Rev: f.rev, Missing: c.r.target.side, Winner: true, Deleted: winner.Deleted})
			if err != nil {
				return err
			}
		case winner.Rev == "" || c.r.rep.WinningRevsOnly:
			gone++
		default:
			others = append(others, f)
		}
	}
	c.count(func(s *Verified) { s.Changed += gone })
	return c.tellConflicts(ctx, others)
}

// tellConflicts reports the revisions that are leaves of the source. None of them is a winner.
func (c *comparison) tellConflicts(ctx context.Context, refs []ref) error {
	for part := range slices.Chunk(refs, c.r.batchSize) {
		type answer struct{ leaf, deleted bool }
		answers := make(map[couch.DocRef]answer, len(part))
		for _, f := range part {
			answers[f.doc()] = answer{}
		}
		err := c.documents(ctx, c.r.source, part, func(doc couch.Document) error {
			about := couch.DocRef{ID: doc.ID, Rev: doc.Rev}
			if _, asked := answers[about]; asked {
				answers[about] = answer{leaf: true, deleted: doc.Deleted}
			}
			return nil
		})
		if err != nil {
			return err
		}
		var gone int64
		for _, f := range part {
			is := answers[f.doc()]
			if !is.leaf {
				gone++
				continue
			}
			if err := c.tell(Difference{ID: f.id, Rev: f.rev, Missing: c.r.target.side, Deleted: is.deleted}); err != nil {
				return err
			}
		}
		c.count(func(s *Verified) { s.Changed += gone })
	}
	return nil
}

// documents reads revisions without the bytes of attachments, and calls visit for each leaf that descends from one: a
// leaf comes as itself, and possibly more than once. The document's Body is valid until visit returns. An error of visit
// ends the reading and is returned unchanged.
func (c *comparison) documents(ctx context.Context, p *peer, refs []ref, visit func(couch.Document) error) error {
	backoff := retry.Backoff{First: c.r.retryBase}
	since := time.Now()
	for tries := 1; ; tries++ {
		err := c.read(ctx, p, refs, visit)
		var ours visitError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &ours):
			return ours.error
		case tries > c.r.retries || !passing(err):
			return p.failed(replicator.RequestReadDocuments, err)
		}
		if err := c.awaitRetry(ctx, p, err, tries+1, c.r.retries+1, since, backoff.Next()); err != nil {
			return err
		}
	}
}

// awaitRetry waits until an operation on p that failed with err is to be repeated: for a pause, or for as long as the
// endpoint asks. The other arguments are the same as in repeating.
func (c *comparison) awaitRetry(
	ctx context.Context, p *peer, err error, attempt, attempts int, since time.Time, pause time.Duration,
) error {
	pause = max(pause, retryAfter(err))
	over := c.r.repeating(p, err, attempt, attempts, since, pause)
	defer over()
	return retry.Wait(ctx, pause)
}

// visitError is an error of a visitor of documents.
type visitError struct{ error }

// read makes one try of documents.
func (c *comparison) read(ctx context.Context, p *peer, refs []ref, visit func(couch.Document) error) error {
	ctx, room := c.r.withRoom(ctx)
	defer room.leave()
	take := func(doc couch.Document, err error) error {
		defer room.leave()
		if err != nil { // the revision is not there
			return nil
		}
		if err := visit(doc); err != nil {
			return visitError{err}
		}
		return nil
	}
	if c.r.useBulkGet {
		if err := readInBulk(ctx, p, refs, take); !errors.Is(err, couch.ErrNoBulkGet) {
			return err
		}
	}
	for _, f := range refs {
		if err := readSingly(ctx, p, f, take); err != nil {
			return err
		}
	}
	return nil
}

func readInBulk(ctx context.Context, p *peer, refs []ref, take func(couch.Document, error) error) error {
	results, err := p.db.BulkGet(ctx, docRefs(refs))
	if err != nil {
		return finalError{err} // it was repeated already
	}
	defer results.Close()
	for {
		f, err := results.Next()
		if err != nil {
			return untilEOF(err)
		}
		if err := take(f.Doc, f.Err); err != nil {
			return err
		}
	}
}

func readSingly(ctx context.Context, p *peer, f ref, take func(couch.Document, error) error) error {
	leaves, err := p.db.OpenRevs(ctx, f.id, f.rev, nil)
	if errors.Is(err, couch.ErrNotFound) && !errors.Is(err, couch.ErrNoDatabase) {
		return nil // some servers answer so for a missing document
	}
	if err != nil {
		return finalError{err}
	}
	defer leaves.Close()
	for {
		leaf, err := leaves.Next()
		if err != nil {
			return untilEOF(err)
		}
		if err := take(leaf.Doc, leaf.Err); err != nil {
			return err
		}
	}
}

// untilEOF returns the error that ended an iteration, or nil if that was its end.
func untilEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// allOf returns all revisions of a row.
func allOf(row couch.Row, _ error) []ref {
	refs := make([]ref, len(row.Revs))
	for i, rev := range row.Revs {
		refs[i] = ref{id: row.ID, rev: rev}
	}
	return refs
}

// without returns the revisions of rows that are not among some of them, which come in the same order of documents.
func without(rows []couch.Row, some []ref) []ref {
	left := make(map[couch.DocRef]struct{}, len(some))
	for _, f := range some {
		left[f.doc()] = struct{}{}
	}
	var others []ref
	for _, row := range rows {
		for _, rev := range row.Revs {
			if _, is := left[couch.DocRef{ID: row.ID, Rev: rev}]; !is {
				others = append(others, ref{id: row.ID, rev: rev})
			}
		}
	}
	return others
}

// grouped returns a row for each series of revisions of a document.
func grouped(refs []ref) []couch.Row {
	var rows []couch.Row
	for _, f := range refs {
		if len(rows) == 0 || rows[len(rows)-1].ID != f.id {
			rows = append(rows, couch.Row{ID: f.id})
		}
		last := &rows[len(rows)-1]
		last.Revs = append(last.Revs, f.rev)
	}
	return rows
}
