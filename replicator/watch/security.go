package watch

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"settee/pkg/config"
	"settee/pkg/couch"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

// A job that a mirror has made copies the `_security` object of its source. No feed tells that this has changed, and no
// changes feed has a row for it. A parked job learns of it within worker.SecurityEvery, or later if the requests would be too many, but
// within max_idle_sec:
//
//   - where the server has a feed, by the comparison of that round. A CouchDB gives a database another update_seq when its
//     object changes, so an object is read only if the update_seq has changed and the changes feed has nothing. A settee tells digests
//     of the objects with the update_seqs. The objects of other servers are read in each round.
//   - where each source is asked, by a question of its own, as long as the questions for changes are in time.
//
// The object is compared with the digest in the job's state. Only a change wakes the jobs of the database.

// copiesSecurity reports whether a job copies the `_security` object of its source, and knows which one its target has.
func copiesSecurity(job *jobs.Job) bool {
	m := job.Args.Replication.Mirrored
	return m != nil && m.Security && job.State.Security != ""
}

// securityDiffers reports whether the `_security` object of a row's database is another one than its job has copied. An
// answer other than success counts as such, so that a run finds what it means. It returns an error if the server does not
// answer. A server that has told a digest of the object is not asked.
func (w *watch) securityDiffers(ctx context.Context, server *couch.Server, row jobs.ParkedRow, digest string) (bool, error) {
	job, err := w.job(ctx, row.JobID)
	if err != nil {
		w.storeFailed(ctx, err)
		return false, ctx.Err() // the next round compares again
	}
	if job == nil || job.Parked().IsZero() || !copiesSecurity(job) {
		return false, nil
	}
	if digest != "" {
		return digest != job.State.Security, nil
	}
	if err := w.mayAsk(ctx); err != nil {
		return false, err
	}
	object, err := server.Security(ctx, row.Database)
	if err != nil {
		return answered(err)
	}
	return worker.SecurityDigest(object) != job.State.Security, nil
}

// mayAsk waits until a question may be asked, and counts it.
func (w *watch) mayAsk(ctx context.Context) error {
	if !w.paces.questions.awaitTurn(ctx, config.MaxQuestions.Get(w.settings())) {
		return context.Cause(ctx)
	}
	w.watcher.counter.questions.Add(1)
	return nil
}

// answered returns true for an error that is the server's answer and will be the same the next time. A run reports it.
func answered(err error) (bool, error) {
	e, isAnswer := errors.AsType[*couch.Error](err)
	if isAnswer && e.Status != 0 && !e.Temporary() {
		return true, nil
	}
	return false, err
}

// securityLooks says when the `_security` objects were last read of sources that are asked for changes. The zero value is
// ready to use, and its methods may be called concurrently. It has an entry only for jobs that were parked for longer than
// the time between two looks, and forgets those that are no longer asked.
type securityLooks struct {
	mu     sync.Mutex
	last   map[string]time.Time // by job
	pruned time.Time
}

// due reports whether it is time to read the object of a job that has been parked for a time, and records that it is read now.
// A run has compared the object just before its job was parked.
func (l *securityLooks) due(jobID string, parked, every time.Duration, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := now.Add(-parked)
	if looked := l.last[jobID]; looked.After(last) {
		last = looked
	}
	// The next question comes at most askLast later.
	if now.Sub(last) < max(every-askLast, every/2) {
		return false
	}
	if l.last == nil {
		l.last = map[string]time.Time{}
	}
	if now.Sub(l.pruned) > every {
		for id, looked := range l.last {
			if now.Sub(looked) > 2*every {
				delete(l.last, id)
			}
		}
		l.pruned = now
	}
	l.last[jobID] = now
	return true
}

// askSecurity asks whether the `_security` object of a parked job's source has changed, if it is time for that.
func (w *watch) askSecurity(ctx context.Context, job *jobs.Job, parked time.Duration) (bool, error) {
	every := config.MaxIdle.Get(w.settings())
	if w.late.lag() < askFirst { // there is time for it
		every = min(every, worker.SecurityEvery)
	}
	if !copiesSecurity(job) || !w.looks.due(job.ID, parked, every, time.Now()) {
		return false, nil
	}
	if err := w.mayAsk(ctx); err != nil {
		return false, err
	}
	return worker.SecurityChanged(ctx, job.Args.Replication, job.State.Security, w.watcher.opts.Worker())
}

// mayDiffer reports whether the `_security` object of a row's database may have changed, given its update_seq, although the
// database has no change.
func mayDiffer(server *couch.Server, row jobs.ParkedRow, updateSeq json.RawMessage) bool {
	if !ofMirror(row) {
		return false
	}
	return !server.IsCouchDB() || updateSeq != nil && string(updateSeq) != row.UpdateSeq
}
