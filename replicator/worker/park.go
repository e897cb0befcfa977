package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"settee/replicator"
)

var (
	// errPark ends the live feed of a run that is asked to park.
	errPark = errors.New("the run is asked to park")
	// errNotIdle is the error of a look that came too early.
	errNotIdle = errors.New("the run is not idle")
	// errParked ends the reading of the feed when nothing has changed since everything was copied.
	errParked = errors.New("the run is parked")
)

// parking says whether a run is idle, and parks it. A run without one cannot park.
//
// A run that is asked to park closes its live feed first. So no row arrives while the goroutine that reads the feed looks
// for changes, and a run that goes on opens the feed again after the last row that it has read.
type parking struct {
	server, database string // of the source, see replicator.Endpoint.Route
	note             func(context.Context, replicator.Parked) error
	told             func(idle bool)
	target           replicator.ParkedTarget // when the run began

	// run.mu guards these three.
	open    bool        // the live feed is open or asked for, or was cut off just now
	settled bool        // it is not known that the live feed is about to bring a row
	settles *time.Timer // settles the feed if it brings none; nil unless a live feed is open and not settled

	mu    sync.Mutex
	idle  bool                    // as told
	asked bool                    // to park
	feed  context.CancelCauseFunc // ends the live feed; nil if there is none
}

// newParking returns nil if the job cannot park.
func newParking(job *Job, useCheckpoints bool) *parking {
	server, database, ok := job.Replication.Source.Route()
	if job.Parking == nil || !job.Replication.Continuous || !useCheckpoints || !ok {
		return nil
	}
	told := job.Idle
	if told == nil {
		told = func(bool) {}
	}
	return &parking{server: server, database: database, note: job.Parking, told: told, settled: true}
}

// ask asks the run to park if it is idle. It must not take run.mu: tell calls it.
func (p *parking) ask() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked = p.idle; p.asked && p.feed != nil {
		p.feed(errPark)
	}
}

// live makes ask end a live feed by end. A nil end means that the feed is over.
func (p *parking) live(end context.CancelCauseFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.feed = end; p.asked && end != nil {
		end(errPark)
	}
}

// tell says whether the run is idle, if that is news. The caller holds run.mu, so that the calls are in order.
func (p *parking) tell(idle bool) {
	p.mu.Lock()
	news := p.idle != idle
	p.idle, p.asked = idle, p.asked && idle
	p.mu.Unlock()
	if news {
		p.told(idle)
	}
}

// idles tells that the run is idle, if it is. The caller holds run.mu.
func (r *run) idles() {
	if p := r.parking; p != nil && p.open && p.settled && r.allCopied() {
		p.tell(true)
	}
}

// allCopied reports whether everything that was read is copied, or recorded as refused. The caller holds run.mu.
func (p *position) allCopied() bool { return p.issued == p.next }

// caughtUp records that a feed has ended.
func (r *run) caughtUp() {
	if r.parking != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.parking.settled = true
	}
}

// liveAsked records that a source which has just answered is asked for a live feed. Without changes, CouchDB and PouchDB
// Server answer only with the first heartbeat. The run counts as idle meanwhile: before it parks, it looks for changes.
func (r *run) liveAsked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.liveOpened()
}

// liveOpened records that the live feed is open, or about to be. The caller holds run.mu.
func (r *run) liveOpened() {
	p := r.parking
	if p == nil {
		return
	}
	p.open = true
	if !p.settled && p.settles == nil {
		p.settles = time.AfterFunc(linger, r.settle)
	}
	r.idles()
}

// settle records that the live feed has had the time for a row.
func (r *run) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parking.settles != nil {
		r.parking.settled, r.parking.settles = true, nil
		r.idles()
	}
}

// liveClosed records that the live feed is closed.
func (r *run) liveClosed() {
	r.parking.live(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parking.unsettle()
}

// unsettle ends the wait for a row. The caller holds run.mu.
func (p *parking) unsettle() {
	if p.settles != nil {
		p.settles.Stop()
		p.settles = nil
	}
}

// tookRow records that the run has read a row. The caller holds run.mu.
func (r *run) tookRow() {
	if p := r.parking; p != nil {
		p.settled = true
		p.unsettle()
		p.tell(false)
	}
}

// notIdle records that the run is not idle before the live feed is open again. After a look in vain, the run is not idle
// before the feed has brought a row, or had the time to: a run that is asked to park at once would only look again.
func (r *run) notIdle(looked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.parking; p != nil {
		p.open, p.settled = false, p.settled && !looked
		p.tell(false)
	}
}

// keptUp reports whether a live feed has brought everything there is, after how many rows. Then the source need not be
// asked how much is left.
func (r *run) keptUp() (rows int64, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rowsRead, r.parking != nil && r.parking.open && !r.filtered && r.rowsRead > 0 && r.allCopied()
}

// park looks whether the run may end, and returns errParked if so. It returns nil if the run goes on: because it has read
// a row meanwhile, because of a change, or because of an error, which the run meets again if it lasts.
func (f *reader) park(ctx context.Context) error {
	ctx, span := f.r.root(ctx, "replication park")
	changed, err := f.look(ctx)
	f.r.endSpan(span, err)
	switch {
	case err == nil && !changed:
		f.r.setLeft(0, f.r.rowsRead)
		f.r.parked = true
		return errParked
	case errors.Is(err, errRecreated), errors.Is(err, ErrIDChanged), errors.Is(err, errSecurity):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	f.r.notIdle(true)
	f.reached = changed
	return nil
}

// look writes a checkpoint for everything that was read, announces that the run parks, and then asks the source once more.
// changed reports that there is something to copy.
func (f *reader) look(ctx context.Context) (changed bool, err error) {
	r := f.r
	if r.filtered {
		if changed, err := f.passOver(ctx); changed || err != nil {
			return changed, err
		}
	}
	since, updateSeq, err := f.settleUp(ctx)
	if err != nil {
		return false, err
	}
	if err := r.announce(ctx, replicator.Parked{
		Since: time.Now(), Server: r.parking.server, Database: r.parking.database, UpdateSeq: string(updateSeq),
		Target: r.parking.target,
	}); err != nil {
		return false, err
	}
	// A change before these requests is in their answers. Whoever learns of one after them finds the announcement.
	if err := r.followSecurity(ctx); err != nil {
		return false, err
	}
	return changedSince(ctx, r.source.db, since)
}

// passOver moves the position past changes that the filter leaves out, which a live feed does not do. changed reports that
// the filter passes one.
func (f *reader) passOver(ctx context.Context) (changed bool, err error) {
	options, err := f.r.feedOptions()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, quietFor, errQuiet)
	defer cancel()
	options.Since, options.Limit = f.since, 1
	feed, err := f.r.source.db.Changes(ctx, options)
	if err != nil {
		return false, err
	}
	defer feed.Close()
	switch _, err = feed.Next(); {
	case err == nil:
		return true, nil
	case !errors.Is(err, io.EOF):
		return false, err
	}
	last := bytes.Clone(sequence(feed.LastSeq()))
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	if last == nil || !f.r.allCopied() {
		return false, errNotIdle
	}
	f.since, f.r.read, f.r.through = last, last, last
	return false, nil
}

// settleUp makes the checkpoint cover everything that was read. It returns its sequence, and what the source's update_seq was
// after that. It returns errNotIdle if something is not copied yet, or if the source gives no sequences, and another error
// if one of the databases is not the one that the run began with.
func (f *reader) settleUp(ctx context.Context) (since, updateSeq json.RawMessage, err error) {
	r := f.r
	defer f.checkpoints.enter()() // one may be written now
	r.mu.Lock()
	since = r.through
	done := r.allCopied()
	r.mu.Unlock()
	if !done || len(since) == 0 || string(since) == `"now"` {
		return nil, nil, errNotIdle
	}
	wrote, err := r.checkpoint(ctx, f.whole)
	if err == nil && !wrote {
		err = r.sameID(ctx) // as in keepCheckpoint
	}
	if err != nil {
		return nil, nil, err
	}
	// What the source said at the checkpoint still holds, unless the last look finds a change.
	if r.source.updateSeq == nil {
		err = r.source.look(ctx)
	}
	if err == nil && !r.target.compared {
		err = r.target.look(ctx)
	}
	return since, r.source.updateSeq, err
}

// announce calls Job.Parking, but not while the Reporter is called.
func (r *run) announce(ctx context.Context, at replicator.Parked) error {
	leave, err := r.telling.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return r.parking.note(ctx, at)
}
