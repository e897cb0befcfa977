package worker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"settee/pkg/couch"
	"settee/pkg/retry"
	"settee/replicator"
)

// maxDescribed is the approximate limit on the memory for the descriptions of attachments, in bytes, that a batch
// compares at a time. One document may have more.
const maxDescribed = 512 << 10

// errEnough ends the reading of documents whose attachments fill maxDescribed.
var errEnough = errors.New("enough for now")

// described has the attachments of leaves.
type described map[couch.DocRef][]couch.Attachment

// attachmentPair is an attachment that both sides have, with the same content type and length.
type attachmentPair struct {
	ref
	source, target couch.Attachment
}

// compareAttachments compares the attachments of the leaves in rows, except those that are missing on the target. A leaf
// that one side has replaced is left out.
func (c *comparison) compareAttachments(ctx context.Context, rows []couch.Row, missing []ref) error {
	if !c.Attachments || c.backwards {
		return nil
	}
	left := without(rows, missing)
	for len(left) > 0 {
		sources, rest, err := c.describe(ctx, left)
		if err != nil {
			return err
		}
		pairs, err := c.match(ctx, sources)
		if err != nil {
			return err
		}
		if err := c.compareContents(ctx, pairs); err != nil {
			return err
		}
		left = rest
	}
	return nil
}

// describe reads the attachments of leaves of the source, as many as fit in maxDescribed. It returns the leaves that are
// left.
func (c *comparison) describe(ctx context.Context, refs []ref) (described, []ref, error) {
	sources, size := described{}, 0
	part := refs[:min(len(refs), c.r.batchSize)]
	wanted := make(map[couch.DocRef]bool, len(part))
	for _, f := range part {
		wanted[f.doc()] = true
	}
	err := c.documents(ctx, c.r.source, part, func(doc couch.Document) error {
		about := couch.DocRef{ID: doc.ID, Rev: doc.Rev}
		if _, twice := sources[about]; twice || !wanted[about] {
			return nil
		}
		attachments, err := doc.Attachments()
		if err != nil {
			return c.r.source.failed(replicator.RequestReadDocuments, err)
		}
		sources[about] = attachments
		if size += describedSize(attachments); size > maxDescribed {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		return sources, refs[len(part):], err
	}
	rest := make([]ref, 0, len(refs))
	for _, f := range refs {
		if _, done := sources[f.doc()]; !done {
			rest = append(rest, f)
		}
	}
	return sources, rest, nil
}

// describedSize returns the approximate memory of descriptions, in bytes.
func describedSize(attachments []couch.Attachment) int {
	size := 0
	for _, a := range attachments {
		const words = 18 // 64-bit words of a couch.Attachment
		size += 8*words + len(a.Name) + len(a.ContentType) + len(a.Digest)
	}
	return size
}

// match reads the same leaves of the target, and reports the attachments whose descriptions differ. It returns the
// others.
func (c *comparison) match(ctx context.Context, sources described) ([]attachmentPair, error) {
	refs := make([]ref, 0, len(sources))
	for about := range sources {
		refs = append(refs, ref{id: about.ID, rev: about.Rev})
	}
	var pairs []attachmentPair
	err := c.documents(ctx, c.r.target, refs, func(doc couch.Document) error {
		about := couch.DocRef{ID: doc.ID, Rev: doc.Rev}
		ours, open := sources[about]
		if !open {
			return nil
		}
		theirs, err := doc.Attachments()
		if err != nil {
			return c.r.target.failed(replicator.RequestReadDocuments, err)
		}
		delete(sources, about)
		same, err := c.matchOne(ref{id: doc.ID, rev: doc.Rev}, ours, theirs)
		pairs = append(pairs, same...)
		return err
	})
	return pairs, err
}

// matchOne is match for one leaf.
func (c *comparison) matchOne(f ref, ours, theirs []couch.Attachment) ([]attachmentPair, error) {
	others := make(map[string]couch.Attachment, len(theirs))
	for _, a := range theirs {
		others[a.Name] = a
	}
	var pairs []attachmentPair
	for _, a := range ours {
		b, both := others[a.Name]
		delete(others, a.Name)
		var target *AttachmentState
		if both {
			target = stateOf(b)
		}
		if both && a.ContentType == b.ContentType && (a.Length == b.Length || a.Length < 0 || b.Length < 0) {
			pairs = append(pairs, attachmentPair{f, a, b})
		} else if err := c.tellAttachment(f, a.Name, stateOf(a), target); err != nil {
			return nil, err
		}
	}
	c.count(func(s *Verified) { s.Attachments += int64(len(ours) + len(others)) })
	for _, b := range theirs {
		if _, alone := others[b.Name]; alone {
			if err := c.tellAttachment(f, b.Name, nil, stateOf(b)); err != nil {
				return nil, err
			}
		}
	}
	return pairs, nil
}

func stateOf(a couch.Attachment) *AttachmentState {
	return &AttachmentState{ContentType: a.ContentType, Length: a.Length}
}

func (c *comparison) tellAttachment(f ref, name string, source, target *AttachmentState) error {
	return c.tell(Difference{ID: f.id, Rev: f.rev, Attachment: &AttachmentDifference{Name: name, Source: source, Target: target}})
}

// compareContents reads attachments on both sides and reports those whose bytes differ.
func (c *comparison) compareContents(ctx context.Context, pairs []attachmentPair) error {
	g, reading := errgroup.WithContext(ctx)
	for _, pair := range pairs {
		leave, err := c.r.steps.revision.enter(reading)
		if err != nil {
			break // g has the error
		}
		g.Go(func() error {
			defer leave()
			return c.compareContent(reading, pair)
		})
	}
	return cmp.Or(g.Wait(), context.Cause(ctx))
}

func (c *comparison) compareContent(ctx context.Context, pair attachmentPair) error {
	source, target := stateOf(pair.source), stateOf(pair.target)
	var sourceThere, targetThere bool
	g, reading := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		sourceThere, err = c.readContent(reading, c.r.source, pair.ref, pair.source, source)
		return err
	})
	g.Go(func() (err error) {
		targetThere, err = c.readContent(reading, c.r.target, pair.ref, pair.target, target)
		return err
	})
	switch err := g.Wait(); {
	case err != nil:
		return err
	case !sourceThere || !targetThere: // replaced meanwhile
		c.count(func(s *Verified) { s.Attachments-- })
		return nil
	case source.Error == "" && target.Error == "" && source.Digest == target.Digest:
		return nil
	}
	return c.tellAttachment(pair.ref, pair.source.Name, source, target)
}

// readContent reads an attachment's bytes, uncompressed, into the Digest and the Length of a state. If they cannot be
// read although the database can, it sets the Error. there is false if the leaf is no longer a leaf.
func (c *comparison) readContent(ctx context.Context, p *peer, f ref, about couch.Attachment, state *AttachmentState) (there bool, err error) {
	about.Digest = "" // it may cover compressed bytes
	backoff := retry.Backoff{First: c.r.retryBase}
	since := time.Now()
	for tries := 1; ; tries++ {
		err := digestContent(ctx, p.db, f, about, state)
		switch {
		case err == nil:
			return true, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case tries >= min(maxStreams, c.r.retries+1) || errors.Is(err, errFinal) || errors.Is(err, couch.ErrTooSlow):
			return c.unreadable(ctx, p, f, about, state, err)
		}
		if err := c.awaitRetry(ctx, p, err, tries+1, min(maxStreams, c.r.retries+1), since, backoff.Next()); err != nil {
			return false, err
		}
	}
}

func digestContent(ctx context.Context, db *couch.Database, f ref, about couch.Attachment, state *AttachmentState) error {
	content, err := db.Attachment(ctx, f.id, f.rev, about)
	if err != nil {
		return finalError{err} // it was repeated already
	}
	defer content.Close()
	hash := sha256.New()
	n, err := io.Copy(hash, content)
	if err != nil {
		return err
	}
	state.Length, state.Digest = n, "sha256-"+base64.StdEncoding.EncodeToString(hash.Sum(nil))
	return nil
}

// unreadable deals with an attachment that could not be read. If the leaf was replaced, or if the database as a whole
// fails, the attachment is not at fault.
func (c *comparison) unreadable(ctx context.Context, p *peer, f ref, about couch.Attachment, state *AttachmentState, failure error) (there bool, err error) {
	for _, other := range []error{couch.ErrNoDatabase, couch.ErrUnauthorized, couch.ErrForbidden, couch.ErrTooManyRequests} {
		if errors.Is(failure, other) {
			return false, p.failed(replicator.RequestReadDocument, failure)
		}
	}
	err = c.documents(ctx, p, []ref{f}, func(doc couch.Document) error {
		there = there || doc.Rev == f.rev
		return nil
	})
	if err != nil || !there {
		return false, err
	}
	// The database answers now. So a failure of the network is over.
	failure = digestContent(ctx, p.db, f, about, state)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if failure != nil {
		state.Error = p.failed(replicator.RequestReadDocument, failure).Error()
	}
	return true, nil
}
