package worker

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"settee/pkg/couch"
	"settee/replicator"
)

// refusals records the revisions that the target refused. The zero value is empty.
type refusals struct {
	told func(Refusal)                                 // Config.Refused, or nil
	list func(context.Context, []Refusal, int64) error // Config.ListRefused, or nil

	mu       sync.Mutex
	unlisted []Refusal           // not passed to list yet; only the latest are kept
	untold   int64               // number of refusals not passed to list yet
	series   replicator.Refusing // since the target last accepted a document; Count is 0 if there are none
}

// add records a refusal.
func (r *refusals) add(f Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.series.Count == 0 {
		r.series.Since = f.Time
	}
	r.series.Count++
	r.series.Latest = f
	if r.list == nil {
		return
	}
	r.untold++
	if len(r.unlisted) >= 2*replicator.MaxFailures {
		r.unlisted = append([]Refusal(nil), r.latest()...)
	}
	r.unlisted = append(r.unlisted, f)
}

// latest returns the part of unlisted that list is called with.
func (r *refusals) latest() []Refusal {
	return r.unlisted[max(0, len(r.unlisted)-replicator.MaxFailures):]
}

// taken records that the target accepted a document.
func (r *refusals) taken() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.series = replicator.Refusing{}
}

// refusing returns the refusals since the target last accepted a document, or nil.
func (r *refusals) refusing() *replicator.Refusing {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.series.Count == 0 {
		return nil
	}
	series := r.series
	return &series
}

// tell calls list with the refusals. If that fails, they are listed again the next time. list is called as the methods of a
// Reporter are, one call at a time.
func (r *refusals) tell(ctx context.Context) error {
	r.mu.Lock()
	told, count := r.latest(), r.untold
	r.unlisted, r.untold = nil, 0
	r.mu.Unlock()
	if count == 0 {
		return nil
	}
	err := r.list(ctx, told, count)
	if err != nil {
		r.mu.Lock()
		r.unlisted = append(told[:len(told):len(told)], r.unlisted...)
		r.untold += count
		r.mu.Unlock()
	}
	return err
}

// refuse records that the target refused a document.
func (r *run) refuse(doc couch.Document, err error) {
	f := Refusal{ID: doc.ID, Rev: doc.Rev, Code: codePlain, Reason: err.Error(), Time: time.Now()}
	if a, ok := replyOf(err); ok {
		f.Status, f.Code, f.Reason = a.status, cmp.Or(a.code, http.StatusText(a.status)), a.reason
	}
	r.fail(f)
}

// fail counts and lists a revision that is not copied.
func (r *run) fail(f Refusal) {
	r.refusals.add(f)
	if r.refusals.told != nil {
		r.refusals.told(f)
	}
	r.count(replicator.Stats{DocCounts: replicator.DocCounts{DocWriteFailures: 1}})
}

// took counts n documents that the target accepted.
func (r *run) took(n int) {
	if n > 0 {
		r.refusals.taken()
		r.count(replicator.Stats{DocCounts: replicator.DocCounts{DocsWritten: int64(n)}})
	}
}

// codeMismatch is the error code for an attachment that does not match its digest.
const codeMismatch = "content_md5_mismatch"

// readable returns the changes that can be copied. The others count as refused, see unreadable.
func (r *run) readable(rows []couch.Row) []couch.Row {
	var kept []couch.Row // nil while no row is left out
	for i, row := range rows {
		code, reason := r.unreadable(row)
		if code == "" {
			if kept != nil {
				kept = append(kept, row)
			}
			continue
		}
		f := Refusal{ID: row.ID, Code: code, Reason: reason, Status: statusOf(code), Time: time.Now()}
		if kept == nil {
			kept = append(make([]couch.Row, 0, len(rows)), rows[:i]...)
		}
		if len(row.Revs) > 0 {
			f.Rev = row.Revs[0]
		}
		r.fail(f)
	}
	if kept == nil {
		return rows
	}
	return kept
}

// unreadable returns the code and the reason why the document of a row is not copied, or "": the row is not understood, or
// the id is empty, too long or local. Old releases of CouchDB accepted empty ids, and such documents cannot be read. Local
// documents are no changes: a source that names some would write checkpoints at the target.
func (r *run) unreadable(row couch.Row) (code, reason string) {
	const illegal = "illegal_docid"
	switch {
	case row.Err != nil:
		return codePlain, "source: " + row.Err.Error()
	case row.ID == "":
		return illegal, "the document's id is empty"
	case int64(len(row.ID)) > r.maxDocumentID:
		return illegal, "the document's id is longer than max_document_id_length"
	case strings.HasPrefix(row.ID, "_local/"):
		return illegal, "the document is local"
	}
	return "", ""
}
