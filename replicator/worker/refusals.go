package worker

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"settee/pkg/couch"
	"settee/replicator"
)

// refusals are what the target did not take. The zero value is empty.
type refusals struct {
	told func(Refusal)                                 // Config.Refused, or nil
	list func(context.Context, []Refusal, int64) error // Config.ListRefused, or nil

	mu       sync.Mutex
	unlisted []Refusal           // that list was not told of yet; only the latest are listed
	untold   int64               // how many that list was not told of yet
	series   replicator.Refusing // since the target last took something; Count is 0 if nothing
}

// add notes a refusal.
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

// latest are those of unlisted that are still to be listed.
func (r *refusals) latest() []Refusal {
	return r.unlisted[max(0, len(r.unlisted)-replicator.MaxFailures):]
}

// taken notes that the target took something.
func (r *refusals) taken() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.series = replicator.Refusing{}
}

// refusing are the refusals since the target last took something, or nil.
func (r *refusals) refusing() *replicator.Refusing {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.series.Count == 0 {
		return nil
	}
	series := r.series
	return &series
}

// tell has what was refused listed. What cannot be is told again the next time. The goroutine that talks
// to the Reporter calls it.
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

// refuse notes that the target does not take a document.
func (r *run) refuse(doc couch.Document, err error) {
	f := Refusal{ID: doc.ID, Rev: doc.Rev, Code: codePlain, Reason: err.Error(), Time: time.Now()}
	var whole *couch.Error
	var one *couch.DocError
	switch {
	case errors.As(err, &one):
		f.Status, f.Code, f.Reason = statusOf(one.Code), one.Code, one.Reason
	case errors.As(err, &whole):
		f.Status, f.Code, f.Reason = whole.Status, whole.Code, whole.Reason
		if f.Code == "" {
			f.Code = http.StatusText(whole.Status)
		}
	}
	r.fail(f)
}

// fail counts and lists a revision that is not on the target and need not be.
func (r *run) fail(f Refusal) {
	r.refusals.add(f)
	if r.refusals.told != nil {
		r.refusals.told(f)
	}
	r.count(replicator.Stats{DocWriteFailures: 1})
}

// took counts documents that the target took.
func (r *run) took(n int) {
	if n > 0 {
		r.refusals.taken()
		r.count(replicator.Stats{DocsWritten: int64(n)})
	}
}

// refusalStatus has the codes of documents that a target does not want, rather than could not write, each
// with the status that it has where the answer is about one document alone.
var refusalStatus = map[string]int{
	"forbidden": http.StatusForbidden, "unauthorized": http.StatusUnauthorized, "conflict": http.StatusConflict,
	"bad_request": http.StatusBadRequest, "doc_validation": http.StatusBadRequest,
	"illegal_docid": http.StatusBadRequest, "invalid_doc": http.StatusBadRequest,
	"document_too_large":   http.StatusRequestEntityTooLarge,
	"attachment_too_large": http.StatusRequestEntityTooLarge, "too_large": http.StatusRequestEntityTooLarge,
	"missing_stub": http.StatusPreconditionFailed, "not_acceptable": http.StatusNotAcceptable,
	"unsupported_media_type": http.StatusUnsupportedMediaType, "bad_content_type": http.StatusUnsupportedMediaType,
	"partition_overflow": http.StatusForbidden, "content_md5_mismatch": http.StatusBadRequest,
}

func statusOf(code string) int { return refusalStatus[code] }

// isRefusal reports whether a code is that of a document which the target does not want, rather than one
// of a server that could not write it.
func isRefusal(code string) bool { return refusalStatus[code] != 0 }

// readable returns the changes that can be copied. The ids of the others are more than the node may
// replicate, or empty, as some are that old releases of CouchDB let in: nobody can read these.
func (r *run) readable(rows []couch.Row) []couch.Row {
	var kept []couch.Row // nil while all are
	for i, row := range rows {
		f := Refusal{ID: row.ID, Code: "illegal_docid", Reason: "the document's id is empty"}
		if r.maxDocumentID > 0 && int64(len(row.ID)) > r.maxDocumentID {
			f.Reason = "the document's id is longer than max_document_id_length"
		} else if row.ID != "" {
			if kept != nil {
				kept = append(kept, row)
			}
			continue
		}
		if kept == nil {
			kept = append(make([]couch.Row, 0, len(rows)), rows[:i]...)
		}
		f.Status, f.Rev, f.Time = statusOf(f.Code), row.Revs[0], time.Now()
		r.fail(f)
	}
	if kept == nil {
		return rows
	}
	return kept
}
