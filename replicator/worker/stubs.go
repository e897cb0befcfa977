package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"settee/pkg/couch"
)

// checkStubs returns nil if the target has the bytes that the stubs of a revision stand for, and otherwise an error that is
// [couch.ErrMissingStub].
//
// A source that knows an ancestor that the target has leaves out the attachments that are as old as it, by their revpos. With
// new_edits=false a revision may have other bytes under the same name and revpos, and CouchDB takes the stub, without comparing
// digests, for the attachment of the newest ancestor that it has. So the digests of that one are compared here.
func (r *run) checkStubs(ctx context.Context, f ref, doc couch.Document, large bool) error {
	stubs, err := stubDigests(doc)
	if err != nil || len(stubs) == 0 {
		return nil //nolint:nilerr // the write reports the error
	}
	var has map[string]string
	path := history(doc)
	newest := slices.IndexFunc(path, func(rev string) bool { return slices.Contains(f.ancestors, rev) })
	if newest >= 0 && !large { // a run holds only so many large documents
		has = r.targetDigests(ctx, couch.DocRef{ID: f.id, Rev: path[newest]})
	}
	for name, digest := range stubs {
		if digest == "" || has[name] != digest {
			return fmt.Errorf("%w: the target may have other bytes of the attachment %q", couch.ErrMissingStub, name)
		}
	}
	return nil
}

// targetDigests returns the digests of the attachments of a revision of the target, by name, or nil if it cannot be read. A
// target that fails to answer is not asked for a while.
func (r *run) targetDigests(ctx context.Context, about couch.DocRef) map[string]string {
	if !r.stubPause.over() {
		return nil
	}
	results, err := r.target.db.BulkGet(ctx, []couch.DocRef{about})
	if err != nil {
		r.stubPause.failed()
		return nil
	}
	r.stubPause.succeeded()
	defer results.Close()
	for {
		f, err := results.Next()
		if err != nil {
			return nil
		}
		if f.Err != nil || f.Doc.Rev != about.Rev { // it was replaced
			continue
		}
		digests, err := stubDigests(f.Doc)
		if err != nil {
			return nil
		}
		return digests
	}
}

// stubDigests returns the digests of the attachments that are stubs, by name.
func stubDigests(doc couch.Document) (map[string]string, error) {
	all, err := doc.Attachments()
	digests := make(map[string]string, len(all))
	for _, a := range all {
		if a.Stub {
			digests[a.Name] = strings.TrimSuffix(a.Digest, "md5-") // old attachments of CouchDB have no sum
		}
	}
	return digests, err
}
