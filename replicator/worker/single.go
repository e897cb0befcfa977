package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"settee/pkg/couch"
	"settee/pkg/retry"
	"settee/replicator"
)

// maxStreams is the number of times that a revision is read and written from its beginning, if that fails, before it is set
// aside.
const maxStreams = 3

var errMissing = errors.New("the source announced a revision that it does not have")

// errSource marks an error of the source during a write to the target.
var errSource = errors.New("reading from the source")

type sourceError struct{ error }

func (e sourceError) Unwrap() error        { return e.error }
func (e sourceError) Is(target error) bool { return target == errSource }

// errUnchecked marks an error of a write with an attachment that only the target compared with its digest. It may mean that
// they do not match.
var errUnchecked = errors.New("digests left to the target")

type uncheckedError struct{ error }

func (e uncheckedError) Unwrap() error        { return e.error }
func (e uncheckedError) Is(target error) bool { return target == errUnchecked }

// copyRevision copies one revision, or the leaves that descend from it. If w is nil, each is written in a request of its own.
func (r *run) copyRevision(ctx context.Context, f ref, w *writer) error {
	backoff := retry.Backoff{First: r.retryBase}
	tries, most, missed := 0, r.streams(w), false
	check := false               // compare attachments with their digests, even if the target does
	settled := map[string]bool{} // leaves already copied, which another try skips
	var since time.Time
	over := func() {}
	defer func() { over() }()
	for {
		err := r.copyLeaves(ctx, f, w, settled, check)
		over()
		var delay time.Duration
		switch {
		case err == nil:
			r.failing.copied(f)
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case len(f.ancestors) > 0 && (errors.Is(err, couch.ErrMissingStub) || mayBeTooLong(err)):
			// The target lacks the ancestors' attachments, or the URL that names the ancestors may be too long. Read
			// all attachments.
			f.ancestors = nil
			continue
		case !f.apart && errors.Is(err, errSource) && errors.Is(err, couch.ErrMalformed):
			// Names of attachments may break the headers of a multipart body.
			f.ancestors, f.apart = nil, true
			continue
		case errors.Is(err, errMissing) && missed:
			return r.missed(ctx, f, err)
		case errors.Is(err, errMissing):
			missed = true
			delay = r.missingDocRetry
			if w == nil {
				delay *= missingPatience
			}
		default:
			if errors.Is(err, errUnchecked) {
				check = true // so that an error names the attachment
				most++
			}
			if tries++; tries >= most || !passing(err) {
				return err
			}
			delay = backoff.Next()
		}
		if since.IsZero() {
			since = time.Now()
		}
		delay = max(delay, retryAfter(err))
		if missed && errors.Is(err, errMissing) {
			over = r.repeats.add(r.missingWait(f, since, delay))
		} else {
			over = r.repeating(r.blame(err), err, tries+1, most, since, delay)
		}
		if err := retry.Wait(ctx, delay); err != nil {
			return err
		}
	}
}

// streams returns how many times copyRevision tries a revision. The second time, when a further failure lists the revision, it is
// tried as often as any request, so that some bad seconds do not cost a document.
func (r *run) streams(w *writer) int {
	if w == nil {
		return r.retries + 1
	}
	return min(maxStreams, r.retries+1)
}

// mayBeTooLong reports whether the source, or a proxy, may have refused a read for the length of its URL. Servers and proxies
// answer that with any 4xx, and with 404 as if the document were missing.
func mayBeTooLong(err error) bool {
	e, ok := errors.AsType[*couch.Error](err)
	refused := ok && errors.Is(err, errSource) && e.Status >= 400 && e.Status < 500 && !e.Temporary()
	return refused && !errors.Is(err, couch.ErrNoDatabase) || errors.Is(err, errMissing)
}

// blame returns the database that failed with err.
func (r *run) blame(err error) *peer {
	if errors.Is(err, errSource) || errors.Is(err, errMissing) {
		return r.source
	}
	return r.target
}

// missingWait describes the wait before a missing revision is requested again.
func (r *run) missingWait(f ref, since time.Time, delay time.Duration) replicator.Wait {
	missing := r.missingRevision(f)
	missing.Method, missing.Attempt, missing.Attempts = http.MethodGet, 2, 2
	if u, err := url.Parse(r.source.db.URL()); err == nil {
		missing.Path = u.JoinPath(url.PathEscape(f.id)).EscapedPath()
	}
	return replicator.Wait{
		Endpoint: r.source.side, Method: missing.Method, Path: missing.Path, Fault: missing,
		Error:   fmt.Sprintf("%s: revision %s: %s", codeMissingDoc, f.rev, errMissing),
		Attempt: missing.Attempt, Attempts: missing.Attempts, Since: since, Until: time.Now().Add(delay),
	}
}

// missingRevision returns the fault of a source that lacks a revision.
func (r *run) missingRevision(f ref) *replicator.Fault {
	missing := r.source.coded(replicator.FaultMissingRevision, replicator.RequestReadDocument, errMissing.Error())
	missing.Document = &replicator.DocRef{ID: f.id, Rev: f.rev}
	return missing
}

// missed handles a revision that the source announced but does not have. If its changes feed now announces the document
// without the revision, the revision was replaced, and its successor comes later in the feed. If the feed no longer
// announces the document, it was purged, or a node of the source's cluster is behind, which looks the same: the
// revision is skipped and listed. Otherwise the run fails.
func (r *run) missed(ctx context.Context, f ref, missing error) error {
	document, revision, err := r.isAnnounced(ctx, f)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil || revision:
		return newError(r.missingRevision(f), missing)
	case !document:
		r.fail(Refusal{
			ID: f.id, Rev: f.rev, Status: http.StatusNotFound, Code: "not_found", Time: time.Now(),
			Reason: missing.Error() + ", and no longer announces the document",
		})
	}
	return nil
}

// isAnnounced reports whether the source's changes feed, read from the run's position, has the document and the
// revision.
func (r *run) isAnnounced(ctx context.Context, f ref) (document, revision bool, err error) {
	r.mu.Lock()
	since := r.through
	r.mu.Unlock()
	feed, err := r.source.db.Changes(ctx, couch.ChangesOptions{
		Since: since, AllLeaves: true, DocIDs: []string{f.id}, Heartbeat: r.heartbeat(), Patience: r.patience(),
	})
	if err != nil {
		return false, false, err
	}
	defer feed.Close()
	for {
		row, err := feed.Next()
		switch {
		case err == io.EOF:
			return document, false, nil
		case err != nil:
			return false, false, err
		case row.ID != f.id:
		case slices.Contains(row.Revs, f.rev):
			return true, true, nil
		default:
			document = true
		}
	}
}

// passing reports whether copying a revision may succeed if it is repeated. That holds for temporary errors, most
// errors of the source during a write, a lost session, a write with an attachment that was not compared with its digest
// here, and a write whose answer is malformed, because writing twice is harmless.
func passing(err error) bool {
	for _, final := range []error{errFinal, couch.ErrLimit, couch.ErrTooSlow, couch.ErrBackedOff} {
		if errors.Is(err, final) {
			return false
		}
	}
	if retryAfter(err) > couch.MaxPause {
		return false
	}
	if errors.Is(err, errSource) || errors.Is(err, couch.ErrSession) || errors.Is(err, errUnchecked) {
		return true
	}
	e, ok := errors.AsType[*couch.Error](err)
	return ok && (e.Status < 300 || e.Temporary())
}

func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*couch.Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// copyLeaves makes one try of copyRevision. It skips the leaves that are true in settled and adds the leaves that it
// reads, as true when it has copied them. So each leaf counts as read once, before it can count as written. check is as in put.
func (r *run) copyLeaves(ctx context.Context, f ref, w *writer, settled map[string]bool, check bool) error {
	ctx, room := r.withRoom(ctx)
	defer room.leave()
	leaves, err := r.openRevs(ctx, f)
	if err != nil {
		if err = r.unread(err); !errors.Is(err, errMissing) {
			err = finalError{err}
		}
		return err
	}
	defer leaves.Close()
	found := false
	for {
		room.leave()
		leaf, err := leaves.Next()
		switch {
		case err == io.EOF && found:
			return nil
		case err == io.EOF:
			return errMissing
		case err != nil:
			return r.unread(err)
		case leaf.Err != nil:
			continue
		}
		found = true
		if done, counted := settled[leaf.Doc.Rev]; done {
			continue
		} else if !counted && f.before == nil {
			settled[leaf.Doc.Rev] = false
			r.count(replicator.Stats{DocCounts: replicator.DocCounts{DocsRead: 1}})
		}
		if w != nil && !leaf.Doc.HasAttachments() && !f.design() {
			if err := w.add(ctx, leaf.Doc); err != nil {
				return finalError{err}
			}
			settled[leaf.Doc.Rev] = true
			continue
		}
		if len(f.ancestors) > 0 {
			if err := r.checkStubs(ctx, f, leaf.Doc, room.taken); err != nil {
				return err
			}
		}
		err = r.put(ctx, leaf.Doc, leaf, f, check)
		if errors.As(err, new(doubtError)) {
			err = r.setAside(ctx, err, ref{id: leaf.Doc.ID, rev: leaf.Doc.Rev})
		}
		if err != nil {
			return err
		}
		settled[leaf.Doc.Rev] = true
	}
}

func (r *run) openRevs(ctx context.Context, f ref) (*couch.Leaves, error) {
	if f.apart {
		return r.source.db.OpenRevsApart(ctx, f.id, f.rev)
	}
	return r.source.db.OpenRevs(ctx, f.id, f.rev, f.ancestors)
}

// unread returns the error for a failed read from the source.
func (r *run) unread(err error) error {
	if errors.Is(err, couch.ErrNotFound) && !errors.Is(err, couch.ErrNoDatabase) {
		return errMissing // some servers answer so for a missing document
	}
	return r.source.failed(replicator.RequestReadDocument, sourceError{err})
}

// put writes a document that was read for f in a request of its own, with the attachments that follow it. A refusal by the
// target is recorded and is not an error; if a second write is to confirm it, put returns a doubtError. If f has ancestors, their
// attachments were left out, and put returns couch.ErrMissingStub if the target does not have them. Unless check is set,
// put does not compare an attachment with its digest if the target does, and returns errUnchecked if they may not match.
func (r *run) put(ctx context.Context, doc couch.Document, leaf *couch.Leaf, f ref, check bool) error {
	source := &watchedSource{leaf: leaf}
	write := r.target.db.PutMultipart
	if f.before != nil {
		write = r.target.db.PutInline
	} else if !check {
		source.name, source.left = r.target.db.ChecksDigest(doc)
	}
	as := r.target.login()
	err := write(ctx, doc, source)
	switch {
	case err == nil:
		r.failing.wrote()
		r.took(1)
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case source.err != nil:
		return r.unread(source.err)
	case len(f.ancestors) > 0 && errors.Is(err, couch.ErrMissingStub):
		return err
	case source.left && mayBeMismatch(err):
		return r.target.failed(replicator.RequestWriteDocument, uncheckedError{err})
	}
	return r.judged(ctx, doc, err, f.before, as)
}

// mayBeMismatch reports whether err, from writing a document, may mean that the target found that an attachment does not match
// its digest, as [couch.Database.ChecksDigest] describes. The answer may get lost.
func mayBeMismatch(err error) bool {
	if one, ok := errors.AsType[*couch.DocError](err); ok {
		return one.Code == codeMismatch
	}
	e, ok := errors.AsType[*couch.Error](err)
	return ok && (e.Code == codeMismatch || e.Status == http.StatusInternalServerError || e.Status == 0 && e.Temporary())
}

// watchedSource remembers an error of the leaf, so that it is not mistaken for an error of the target.
type watchedSource struct {
	leaf *couch.Leaf
	err  error
	left bool   // the target compares an attachment with its digest
	name string // the attachment's
}

func (s *watchedSource) NextAttachment() (*couch.AttachmentReader, error) {
	a, err := s.leaf.NextAttachment()
	if err != nil {
		if err != io.EOF {
			s.err = err
		}
		return nil, err
	}
	if s.left && a.Name == s.name {
		a.LeaveDigest()
	}
	about := a.Attachment
	about.Digest = "" // a or the target verifies it
	return couch.NewAttachmentReader(about, &watchedReader{a, s}), nil
}

type watchedReader struct {
	r io.Reader
	s *watchedSource
}

func (w *watchedReader) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err != nil && err != io.EOF {
		w.s.err = err
	}
	return n, err
}

// ancestors returns the revisions in a document's _revisions.
func ancestors(doc couch.Document) map[string]bool {
	all := map[string]bool{}
	for _, rev := range history(doc) {
		all[rev] = true
	}
	return all
}

// history returns the revisions in a document's _revisions, the newest first.
func history(doc couch.Document) []string {
	var fields struct {
		Revisions struct {
			Start int      `json:"start"`
			IDs   []string `json:"ids"`
		} `json:"_revisions"`
	}
	if json.Unmarshal(doc.Body, &fields) != nil {
		return nil
	}
	all := make([]string, len(fields.Revisions.IDs))
	for i, id := range fields.Revisions.IDs {
		all[i] = strconv.Itoa(fields.Revisions.Start-i) + "-" + id
	}
	return all
}
