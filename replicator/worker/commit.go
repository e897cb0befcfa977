package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"settee/pkg/couch"
	"settee/replicator"
)

// keepCheckpoint writes a checkpoint if there is progress to record, and otherwise checks that the filter has not
// changed. whole is as in checkpoint.
func (r *run) keepCheckpoint(ctx, whole context.Context) error {
	wrote, err := r.checkpoint(ctx, whole)
	if err == nil && !wrote {
		// A filter that passes nothing may have been replaced.
		err = r.sameID(ctx)
	}
	if err == nil && wrote {
		err = r.tell(ctx, r.report)
	}
	return err
}

// checkpoint records the run's position if it has moved since the last checkpoint, and reports whether it did. If ctx
// ends during the write, the write continues for up to StopTimeout, but not after the end of whole.
func (r *run) checkpoint(ctx, whole context.Context) (wrote bool, err error) {
	r.mu.Lock()
	seq, stats, moved := r.through, r.allStats(), !bytes.Equal(r.through, r.committed)
	r.mu.Unlock()
	if !r.useCheckpoints || !moved {
		return false, nil
	}
	ctx, span := r.root(ctx, "replication checkpoint")
	defer func() { r.endSpan(span, err) }()
	// This lists every revision refused up to seq.
	if err := r.tell(ctx, r.refusals.tell); err != nil {
		return false, err
	}
	// If the filter has changed, either version may have chosen the latest changes.
	if err := r.sameID(ctx); err != nil {
		return false, err
	}
	r.source.updateSeq = nil
	if err := r.onBoth(ctx, r.commit); err != nil {
		return false, err
	}
	now := time.Now()
	rec := newRecord(entry{
		SessionID: r.session,
		StartTime: httpTime(r.started), EndTime: httpTime(now),
		StartLastSeq: r.start, EndLastSeq: seq, RecordedSeq: seq,
		CheckpointStats: replicator.CheckpointStats(stats),
	}, seq, r.earlier, r.rep.DocIDs != nil)

	// The write must be confirmed even if other requests fail meanwhile: a database that was created anew makes them
	// fail, too.
	ctx, end := lasting(ctx, whole, r.stopTimeout)
	defer end()
	if err := r.record(ctx, rec); err != nil {
		return false, err
	}
	r.mu.Lock()
	r.committed = seq
	r.mu.Unlock()
	r.latest, r.wrote = rec, true
	return true, nil
}

// record writes a checkpoint on both sides and verifies it. A database may be created anew just before the write, and
// the run may be killed before it notices. So the target's checkpoint also names the databases that it is about, as far
// as known; see takeBack.
func (r *run) record(ctx context.Context, rec record) error {
	first := rec
	if about := (instances{Source: created(r.source.instance), Target: created(r.target.instance)}); about.Source != nil || about.Target != nil {
		first.About = &about
	}
	// The target comes first: if the run ends in between, the source is behind, and the next run starts from the
	// source's sequence.
	if err := r.target.record(ctx, r.id.Base, r.session, first); err != nil {
		return err
	}
	if err := r.source.record(ctx, r.id.Base, r.session, rec); err != nil {
		return err
	}
	if r.brief() {
		return nil
	}
	return r.onBoth(ctx, func(ctx context.Context, p *peer) error { return p.confirm(ctx, r.id.Base) })
}

// sameID reads the filter's code again, if the replication has a filter, and returns ErrIDChanged if the code has
// changed.
func (r *run) sameID(ctx context.Context) error {
	if !r.rep.NeedsFilterCode() {
		return nil
	}
	id, err := r.computeID(ctx, r.rep)
	if err == nil && id != r.id {
		return ErrIDChanged
	}
	return err
}

// commit makes a database flush its writes to disk, and checks that it is still the database that the run began with.
func (r *run) commit(ctx context.Context, p *peer) error {
	if p == r.source && r.brief() {
		return p.still(ctx, r.id.Base)
	}
	return p.commit(ctx, r.id.Base)
}

func (p *peer) commit(ctx context.Context, id string) error {
	said, err := p.db.EnsureFullCommit(ctx)
	if err != nil && !lacksFullCommit(err) {
		return p.uncommitted(replicator.RequestFlush, err)
	}
	if p.instance != nil && bytes.Equal(said, p.instance) {
		p.compared = true
		return nil
	}
	return p.still(ctx, id)
}

// still checks that the database is still the one that the run began with, by what it says of itself or else by its
// checkpoint.
func (p *peer) still(ctx context.Context, id string) error {
	same, err := p.isSame(ctx)
	switch {
	case err != nil:
		return err
	case same == unknown:
		return p.stillThere(ctx, id)
	case same == no:
		return p.recreated()
	}
	return nil
}

// answer is the answer to a question that not every server supports.
type answer int

const (
	unknown answer = iota
	yes
	no
)

// isSame compares instance_start_time to tell whether the run began with the same database.
func (p *peer) isSame(ctx context.Context) (answer, error) {
	if p.instance == nil {
		return unknown, nil
	}
	return p.compare(ctx)
}

// compare is isSame, except that it always asks the database.
func (p *peer) compare(ctx context.Context) (answer, error) {
	info, err := p.db.Info(ctx)
	if err != nil {
		return unknown, p.failed(replicator.RequestOpen, err)
	}
	p.updateSeq, p.compared = info.UpdateSeq, true
	switch now := instance(info); {
	case now == nil || p.instance == nil:
		return unknown, nil // nodes of a cluster may run different versions
	case bytes.Equal(now, p.instance):
		return yes, nil
	}
	return no, nil
}

// lacksFullCommit reports whether a server does not support _ensure_full_commit. A server that commits every write need
// not.
func lacksFullCommit(err error) bool {
	e, ok := errors.AsType[*couch.Error](err)
	if !ok || errors.Is(err, couch.ErrNoDatabase) {
		return false
	}
	switch e.Status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return false
}

// stillThere checks that the checkpoint that this run read or wrote still exists. It is for servers without another
// sign that a database was deleted and created anew.
func (p *peer) stillThere(ctx context.Context, id string) error {
	if p.local.rev == "" {
		return nil
	}
	_, err := p.db.GetLocal(ctx, id)
	if errors.Is(err, couch.ErrNotFound) && !errors.Is(err, couch.ErrNoDatabase) {
		return p.recreated()
	}
	return p.failed(replicator.RequestReadCheckpoint, err)
}

// errRecreated is the cause of the error for a database that is no longer the one that the run began with.
var errRecreated = errors.New("the database was created anew")

func (p *peer) recreated() error {
	return newError(p.coded(replicator.FaultDatabaseChanged, "", errRecreated.Error()), errRecreated)
}

// record writes the checkpoint document.
func (p *peer) record(ctx context.Context, id, session string, rec record) error {
	rec.ID = "_local/" + id
	write := func() error {
		rec.Rev = p.local.rev
		rev, err := p.db.PutLocal(ctx, id, encode(rec))
		if err == nil {
			p.local = checkpoint{rev: rev, session: session}
		}
		return err
	}
	err := write()
	if errors.Is(err, couch.ErrConflict) {
		// Either an earlier write of this session was carried out after it had been given up, or another run of the
		// same replication is active.
		known := p.local.session
		if err := p.readLocal(ctx, id); err != nil {
			return err
		}
		// Without instance_start_time, a missing checkpoint means that the database was created anew.
		lost := p.local.rev == ""
		if lost && p.instance == nil {
			return p.recreated()
		}
		if !lost && p.local.session != session && p.local.session != known {
			twice := p.fault(replicator.RequestCheckpoint, err)
			twice.Code = replicator.FaultCheckpointTwice
			return newError(twice, err)
		}
		err = write()
	}
	return p.uncommitted(replicator.RequestCheckpoint, err)
}

// confirm checks that the checkpoint was not written to a database that was created anew just before. Such a checkpoint
// is false, so confirm retracts it, and the next run starts from the beginning.
func (p *peer) confirm(ctx context.Context, id string) error {
	same, err := p.isSame(ctx)
	if err != nil || same != no {
		return err
	}
	if err := p.retract(ctx, id); err != nil {
		return err
	}
	return p.recreated()
}

// retract empties the checkpoint document.
func (p *peer) retract(ctx context.Context, id string) error {
	rev, err := p.db.PutLocal(ctx, id, encode(record{ID: "_local/" + id, Rev: p.local.rev}))
	if err != nil {
		return p.uncommitted(replicator.RequestTakeBack, err)
	}
	p.local = checkpoint{rev: rev}
	return nil
}

// takeBack retracts checkpoints that a killed run wrote to a database created anew: one that differs from the databases
// named in the target's checkpoint.
func (r *run) takeBack(ctx context.Context) error {
	about := r.target.local.about
	return r.onBoth(ctx, func(ctx context.Context, p *peer) error {
		was := about.Source
		if p == r.target {
			was = about.Target
		}
		if p.local.rev == "" || !p.replaced(was) {
			return nil
		}
		return p.retract(ctx, r.id.Base)
	})
}

// writeEmptyCheckpoints writes empty checkpoints to databases that have none and do not say when they were created. If such a
// checkpoint is gone later, the database was created anew.
func (r *run) writeEmptyCheckpoints(ctx context.Context) error {
	return r.onBoth(ctx, func(ctx context.Context, p *peer) error {
		if p.local.rev != "" || p.instance != nil {
			return nil
		}
		rev, err := p.db.PutLocal(ctx, r.id.Base, encode(record{ID: "_local/" + r.id.Base}))
		switch {
		case err == nil:
			p.local = checkpoint{rev: rev}
			return nil
		case errors.Is(err, couch.ErrConflict): // another run was faster, or an answer got lost
			return p.readLocal(ctx, r.id.Base)
		case errors.Is(err, couch.ErrForbidden), errors.Is(err, couch.ErrUnauthorized):
			return nil // the first checkpoint will say so
		}
		return p.uncommitted(replicator.RequestCheckpoint, err)
	})
}

// replaced reports whether the database was created anew, if a checkpoint says that it was created at was.
func (p *peer) replaced(was json.RawMessage) bool {
	now := created(p.instance)
	return was != nil && now != nil && !bytes.Equal(was, now)
}

// uncommitted returns the error for a checkpoint that could not be written. A user that may not write it differs from a session
// that has failed.
func (p *peer) uncommitted(request replicator.RequestCode, err error) error {
	if err == nil {
		return nil
	}
	f := p.fault(request, err)
	refused := errors.Is(err, couch.ErrForbidden) || errors.Is(err, couch.ErrUnauthorized)
	if refused && !errors.Is(err, couch.ErrSession) {
		f.Code, f.Request = replicator.FaultNoCheckpoint, request
	}
	return newError(f, err)
}

// computeID computes the id of the run's replication or of a variant of it. It reads the filter's code from the source if
// the id depends on it.
func (r *run) computeID(ctx context.Context, rep *replicator.Replication) (replicator.ID, error) {
	code := ""
	if rep.NeedsFilterCode() {
		var err error
		if code, err = r.filterCode(ctx); err != nil {
			return replicator.ID{}, err
		}
	}
	id, err := rep.ID(r.serverUUID, code)
	if err != nil {
		return id, newError(r.source.coded(replicator.FaultInvalid, replicator.RequestOpen, err.Error()), err)
	}
	return id, nil
}

// filterCode reads the code of the filter function.
func (r *run) filterCode(ctx context.Context) (string, error) {
	ddoc, filter, err := r.rep.FilterName()
	if err != nil {
		return "", newError(r.source.coded(replicator.FaultInvalid, replicator.RequestReadFilter, err.Error()), err)
	}
	id := designPrefix + ddoc
	doc, err := r.source.db.Get(ctx, id)
	if err != nil {
		return "", r.unfiltered(id, err)
	}
	var fields struct {
		Filters map[string]json.RawMessage `json:"filters"`
	}
	var code *string
	if err = json.Unmarshal(doc, &fields); err == nil {
		if raw, ok := fields.Filters[filter]; ok {
			err = json.Unmarshal(raw, &code)
		}
	}
	if err != nil || code == nil {
		f := r.source.coded(replicator.FaultFilterInvalid, replicator.RequestReadFilter, fmt.Sprintf(
			"Couldn't parse filter code from document `%s` on `%s`: no filter function `%s`", id, r.source.uri, filter))
		f.Document = &replicator.DocRef{ID: id}
		return "", newError(f, err)
	}
	return *code, nil
}

// unfiltered returns the error for a design document that could not be read.
func (r *run) unfiltered(id string, err error) error {
	f := r.source.fault(replicator.RequestReadFilter, err)
	if errors.Is(err, couch.ErrNotFound) && !errors.Is(err, couch.ErrNoDatabase) {
		f.Code = replicator.FaultFilterMissing
	}
	f.Document = &replicator.DocRef{ID: id}
	return newError(f, err)
}
