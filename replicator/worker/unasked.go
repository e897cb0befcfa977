package worker

import (
	"context"
	"sync"

	"settee/pkg/couch"
	"settee/replicator"
)

const (
	// maxUnasked and maxUnaskedLive are the largest numbers of revisions that are copied without asking the target between
	// two questions: by most runs, and by a run that follows a live feed. What others write to both sides may change at any time there.
	maxUnasked, maxUnaskedLive = 10_000, 64
	// unaskedFor is the number of revisions that are copied without asking for each that the target turned out to lack.
	unaskedFor = 4
	// knownShare is the share of known revisions, one in knownShare, from which on asking pays. On CouchDB, copying a
	// small document for nothing costs several times as much as asking about it.
	knownShare = 10
)

// unasked decides which batches are copied without asking the target which revisions it lacks: while it lacks nearly
// all that it is asked about. Once it had more, it must lack as many revisions in a row before that. It is safe for
// concurrent use.
type unasked struct {
	most int // maxUnasked or maxUnaskedLive

	mu     sync.Mutex
	lacked int // revisions that the target lacked, in a row; negative after it had some
	left   int // revisions that may be copied before the next question
}

// allows reports whether n revisions may be copied without asking.
func (u *unasked) allows(n int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n > u.left {
		return false
	}
	u.left -= n
	return true
}

// learn records that the target lacked some of the revisions that it was asked about.
func (u *unasked) learn(asked, lacked int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if (asked-lacked)*knownShare > asked {
		u.lacked, u.left = -u.most, 0
		return
	}
	u.lacked = min(u.lacked+lacked, u.most)
	u.left = min(max(0, unaskedFor*u.lacked), u.most)
}

// resume goes on from what an earlier run has learned.
func (u *unasked) resume(l replicator.Lacking) {
	u.lacked = min(max(l.Lacked, -u.most), u.most)
	u.left = min(max(l.Unasked, 0), u.most)
}

func (u *unasked) learned() replicator.Lacking {
	u.mu.Lock()
	defer u.mu.Unlock()
	return replicator.Lacking{Lacked: u.lacked, Unasked: u.left}
}

// lacking is missing, except that it does not always ask. If it has not, notAsked is true, and the refs are all revisions
// in rows, without ancestors and not yet counted. It is harmless to copy a revision that the target has.
func (r *run) lacking(ctx context.Context, rows []couch.Row, u *unasked) (refs []ref, notAsked bool, err error) {
	all := revisions(rows)
	if r.bulkGets() && distinct(rows) && u.allows(all) {
		refs = make([]ref, 0, all)
		for _, row := range rows {
			for _, rev := range row.Revs {
				refs = append(refs, ref{id: row.ID, rev: rev})
			}
		}
		return refs, true, nil
	}
	if refs, err = r.missing(ctx, rows); err == nil {
		u.learn(all, len(refs))
	}
	return refs, false, err
}

// distinct reports whether no two rows are of the same document. The shards of a cluster may send a row twice.
func distinct(rows []couch.Row) bool {
	ids := make(map[string]struct{}, len(rows))
	for _, row := range rows {
		ids[row.ID] = struct{}{}
	}
	return len(ids) == len(rows)
}

// askLate asks the target about the revisions of a batch for which it was not asked that are not copied yet, and returns those that it
// lacks. They have attachments, or cost a request each, so the question pays.
func (r *run) askLate(
	ctx context.Context, single []ref, small []smallRef, u *unasked,
) ([]ref, []smallRef, error) {
	rows := make([]couch.Row, 0, len(single)+len(small))
	for _, f := range single {
		rows = append(rows, couch.Row{ID: f.id, Revs: []string{f.rev}})
	}
	sizes := make(map[couch.DocRef]int, len(small))
	for _, f := range small {
		rows = append(rows, couch.Row{ID: f.id, Revs: []string{f.rev}})
		sizes[couch.DocRef{ID: f.id, Rev: f.rev}] = f.size
	}
	if len(rows) == 0 {
		return nil, nil, nil
	}
	refs, err := r.missing(ctx, rows)
	if err != nil {
		return nil, nil, err
	}
	u.learn(len(rows), len(refs))
	single, small = nil, nil
	for _, f := range refs {
		if size, ok := sizes[couch.DocRef{ID: f.id, Rev: f.rev}]; ok {
			small = append(small, smallRef{f, size})
		} else {
			single = append(single, f)
		}
	}
	return single, small, nil
}
