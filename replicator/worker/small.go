package worker

import (
	"context"
	"errors"

	"settee/pkg/couch"
	"settee/replicator"
)

const (
	// maxSmall is the size in bytes up to which a document with its attachments is small.
	maxSmall = 64 << 10
	// maxSmallRead is the size in bytes of the small documents that are requested at once. The source makes the answer
	// in memory.
	maxSmallRead = 1 << 20
)

// smallRef is a ref whose revision has small attachments.
type smallRef struct {
	ref
	size int // in bytes, with the attachments
}

// smallSize returns the size in bytes of a document with its attachments. ok is false if that is large, or if an
// attachment is compressed: in JSON the source would decompress it, and the target would compress it again, perhaps
// with another digest.
func smallSize(doc couch.Document) (size int, ok bool) {
	all, err := doc.Attachments()
	if err != nil {
		return 0, false
	}
	size = len(doc.Body)
	for _, a := range all {
		if !a.Stub || a.Encoding != "" || a.Length < 0 || a.Length > maxSmall {
			return 0, false
		}
		size += int(a.Length)
	}
	return size, size <= maxSmall
}

// copySmall reads documents with their attachments in JSON, with _bulk_get, and gives them to w. That costs both
// databases much less than a request for each document. It returns the revisions that must be read one by one.
func (r *run) copySmall(ctx context.Context, refs []smallRef, w *writer) (left []ref, err error) {
	if len(refs) == 0 {
		return nil, nil
	}
	ctx, span := r.step(ctx, "read small attachments", len(refs))
	defer func() { r.endSpan(span, err) }()
	for len(refs) > 0 {
		n, size := 0, 0
		for n < len(refs) && (n == 0 || size+refs[n].size <= maxSmallRead) {
			size += refs[n].size
			n++
		}
		asked := make([]ref, n)
		for i := range asked {
			asked[i] = refs[i].ref
		}
		refs = refs[n:]
		if !r.noInline.Load() {
			if asked, err = r.bulkGetInline(ctx, asked, w); err != nil {
				return nil, err
			}
		}
		left = append(left, asked...)
	}
	return left, nil
}

// bulkGetInline makes one request for copySmall. It returns only errors of the context and of the writer. All other
// errors show when the revisions are read one by one.
func (r *run) bulkGetInline(ctx context.Context, refs []ref, w *writer) (left []ref, err error) {
	ctx, room := r.withRoom(ctx)
	defer room.leave()
	results, err := r.source.db.BulkGetInline(ctx, docRefs(refs))
	if err != nil {
		if e, ok := errors.AsType[*couch.Error](err); ok && e.Status >= 400 && !e.Temporary() {
			r.noInline.Store(true)
		}
		return refs, context.Cause(ctx)
	}
	defer results.Close()
	answers := answers{refs: refs, answered: make([]bool, len(refs))}
	for {
		room.leave()
		f, err := results.Next()
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return answers.unanswered(), nil
		}
		at, ok := answers.exactly(f)
		if !ok {
			continue
		}
		if err := f.Doc.CheckInline(); err != nil {
			if !errors.Is(err, couch.ErrDigest) {
				r.noInline.Store(true) // it ignores the parameter
			}
			continue
		}
		r.count(replicator.Stats{DocCounts: replicator.DocCounts{DocsRead: 1}})
		if err := w.add(ctx, f.Doc); err != nil {
			return nil, err
		}
		answers.answered[at] = true
	}
}
