package worker

import (
	"bytes"
	"context"
)

// resume reads the checkpoints for a run whose job was parked, and reports whether it can go on from them without asking
// the databases anything else. Both have to belong to one session, and the target's has to name both databases. That
// also takes the place of what the databases say of themselves, because a database that is created anew has no checkpoint.
// If resume returns false, the run begins like any other. That one finds the errors, too.
//
// A checkpoint that was written to a database just as that was created anew is the exception. It does not name that
// database, so the next checkpoint of this run fails, or its end if it parks without one, and the next run retracts it.
func (r *run) resume(ctx context.Context) bool {
	if !r.woken || !r.useCheckpoints || r.rep.NeedsFilterCode() || r.readLocals(ctx) != nil {
		return false
	}
	source, target, about := r.source.local, r.target.local, r.target.local.about
	if source.session == "" || source.session != target.session || !bytes.Equal(source.seq, target.seq) ||
		source.seq == nil || created(about.Source) == nil || created(about.Target) == nil {
		return false
	}
	r.source.instance, r.target.instance = about.Source, about.Target
	r.resumed = true
	if r.parking != nil {
		r.parking.settled = false // what woke the job
	}
	return true
}

// liveFirst reports whether the run reads a live feed from the start, instead of catching up with a feed that ends. What
// wakes a job are few changes. A live feed does not tell how far a filter has read.
func (r *run) liveFirst() bool { return r.resumed && !r.filtered }

// brief reports whether a checkpoint is written with less than the usual care: the first of a run that resumed. The
// databases say when they were created, and servers that do commit every write, so the source need not be asked to. The
// checkpoint is not confirmed after it is written, because the next run compares what it names, as resume says.
func (r *run) brief() bool { return r.resumed && !r.wrote }
