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

// keepCheckpoint writes a checkpoint if there is something to record, and looks whether the filter is still
// the same. For whole see checkpoint.
func (r *run) keepCheckpoint(ctx, whole context.Context) error {
	wrote, err := r.checkpoint(ctx, whole)
	if err == nil && !wrote {
		// A filter that lets nothing pass may have been changed for one that does.
		err = r.sameID(ctx)
	}
	if err == nil && wrote {
		err = r.tell(ctx, r.reportTo)
	}
	return err
}

// checkpoint records how far the run is, if that is further than the last checkpoint, and reports
// whether it did. When ctx ends while it writes, it goes on for a while, but no longer than whole.
func (r *run) checkpoint(ctx, whole context.Context) (bool, error) {
	r.mu.Lock()
	seq, stats, moved := r.through, r.stats, !bytes.Equal(r.through, r.committed)
	r.mu.Unlock()
	if !r.useCheckpoints || !moved {
		return false, nil
	}
	// All that was refused up to there is among what is listed now.
	if err := r.tellRefused(ctx); err != nil {
		return false, err
	}
	// What was read since the filter changed may be the choice of either.
	if err := r.sameID(ctx); err != nil {
		return false, err
	}
	if err := r.onBoth(ctx, func(ctx context.Context, p *peer) error { return p.commit(ctx, r.id.Base) }); err != nil {
		return false, err
	}
	now := time.Now()
	rec := newRecord(entry{
		SessionID: r.session,
		StartTime: httpTime(r.started), EndTime: httpTime(now),
		StartLastSeq: r.start, EndLastSeq: seq, RecordedSeq: seq,
		CheckpointStats: replicator.CheckpointStats(stats),
	}, seq, r.earlier, r.rep.DocIDs != nil)

	// What is written is to be confirmed, whatever else fails meanwhile: when a database is made anew, other
	// requests meet that, too.
	ctx, end := lasting(ctx, whole, r.stopTimeout)
	defer end()
	if err := r.record(ctx, rec); err != nil {
		return false, err
	}
	r.mu.Lock()
	r.committed = seq
	r.mu.Unlock()
	r.latest = rec
	return true, nil
}

// record writes a checkpoint on both sides and makes sure that it counts. One of the databases may be made anew just
// before it is written, and the run may be killed before it finds that out. So what the target has says which databases
// it is about, as far as they say that: see takeBack.
func (r *run) record(ctx context.Context, rec record) error {
	first := rec
	if about := (instances{Source: created(r.source.instance), Target: created(r.target.instance)}); about.Source != nil || about.Target != nil {
		first.About = &about
	}
	// The target first: a run that ends in between leaves the source behind, and the source's word is
	// what the next run starts from.
	if err := r.target.record(ctx, r.id.Base, r.session, first); err != nil {
		return err
	}
	if err := r.source.record(ctx, r.id.Base, r.session, rec); err != nil {
		return err
	}
	return r.onBoth(ctx, func(ctx context.Context, p *peer) error { return p.confirm(ctx, r.id.Base) })
}

// sameID reads the filter's code again, if the replication has one, and returns ErrIDChanged if it is
// another by now.
func (r *run) sameID(ctx context.Context) error {
	if !r.rep.NeedsFilterCode() {
		return nil
	}
	id, err := r.computeID(ctx)
	if err == nil && id != r.id {
		return ErrIDChanged
	}
	return err
}

// commit has the database put on disk what was written, and makes sure that it is the one that was there
// when the run began.
func (p *peer) commit(ctx context.Context, id string) error {
	said, err := p.db.EnsureFullCommit(ctx)
	if err != nil && !lacksFullCommit(err) {
		return p.uncommitted(err, "Failure on %s commit: %s", p.side, err)
	}
	if p.instance != nil && bytes.Equal(said, p.instance) {
		return nil
	}
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

// answer is what a server says to a question that not every server knows.
type answer int

const (
	unknown answer = iota
	yes
	no
)

// isSame asks whether the database is the one that was there when the run began, by its
// instance_start_time.
func (p *peer) isSame(ctx context.Context) (answer, error) {
	if p.instance == nil {
		return unknown, nil
	}
	info, err := p.db.Info(ctx)
	if err != nil {
		return unknown, p.failed(codePlain, err)
	}
	switch now := instance(info); {
	case now == nil:
		return unknown, nil // a cluster's nodes may be of different versions
	case bytes.Equal(now, p.instance):
		return yes, nil
	}
	return no, nil
}

// lacksFullCommit reports whether a server does not know _ensure_full_commit, as one that commits every
// write need not.
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

// stillThere looks for the checkpoint that this run read or wrote before, on a server that has no other
// sign of a database that was deleted and made anew.
func (p *peer) stillThere(ctx context.Context, id string) error {
	if p.local.rev == "" {
		return nil
	}
	_, err := p.db.GetLocal(ctx, id)
	if errors.Is(err, couch.ErrNotFound) && !errors.Is(err, couch.ErrNoDatabase) {
		return p.recreated()
	}
	return p.failed(codePlain, err)
}

func (p *peer) recreated() error {
	return newError(codeCheckpoint, nil, "the %s database %s was created anew, or its server started again, during the replication",
		p.side, p.uri)
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
		// Either a write of this session was carried out although it was given up, or there is another
		// run of the same replication.
		known := p.local.session
		if err := p.readLocal(ctx, id); err != nil {
			return err
		}
		// A checkpoint that is gone is a sign of a database that was made anew, if there is no better one.
		lost := p.local.rev == ""
		if lost && p.instance == nil {
			return p.recreated()
		}
		if !lost && p.local.session != session && p.local.session != known {
			return newError(codeCheckpoint, err, "Error updating the %s checkpoint document: conflict: another replication with the same id wrote it",
				p.side)
		}
		err = write()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, couch.ErrForbidden), errors.Is(err, couch.ErrUnauthorized):
		return p.uncommitted(err, "Error updating the %s checkpoint document: %s%s (a %s that may only be read needs \"use_checkpoints\": false)",
			p.side, codeOf(err), serverSaid(err), p.side)
	}
	return p.uncommitted(err, "Error updating the %s checkpoint document: %s", p.side, err)
}

// confirm makes sure that the checkpoint was not written into a database that was made anew just before.
// There it would claim what is not there, so it is taken back. The next run finds nothing in common then.
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

// retract takes the checkpoint document back.
func (p *peer) retract(ctx context.Context, id string) error {
	rev, err := p.db.PutLocal(ctx, id, encode(record{ID: "_local/" + id, Rev: p.local.rev}))
	if err != nil {
		return p.uncommitted(err, "Error taking back the %s checkpoint document: %s", p.side, err)
	}
	p.local = checkpoint{rev: rev}
	return nil
}

// takeBack takes back what a run that was killed has written into a database that had been made anew: one that is not
// what the target's checkpoint is about.
func (r *run) takeBack(ctx context.Context) error {
	about := r.target.local.about
	return r.onBoth(ctx, func(ctx context.Context, p *peer) error {
		was, now := about.Source, created(p.instance)
		if p == r.target {
			was = about.Target
		}
		if was == nil || now == nil || bytes.Equal(was, now) || p.local.rev == "" {
			return nil
		}
		return p.retract(ctx, r.id.Base)
	})
}

// uncommitted is the error of a checkpoint that could not be written. A database that is gone, or wants
// to be left alone, is more than that, and so is a server that does not let the user in.
func (p *peer) uncommitted(err error, format string, args ...any) error {
	for _, more := range []error{couch.ErrNoDatabase, couch.ErrTooManyRequests, couch.ErrSession} {
		if errors.Is(err, more) {
			return p.failed(codePlain, err)
		}
	}
	return newError(codeCheckpoint, err, format, args...)
}

// codeOf is what a server gave as its error.
func codeOf(err error) string {
	if e, ok := errors.AsType[*couch.Error](err); ok && e.Code != "" {
		return e.Code
	}
	return fmt.Sprint(err)
}

// computeID computes the replication id, with the code of the filter function at the source if the id
// covers it.
func (r *run) computeID(ctx context.Context) (replicator.ID, error) {
	code := ""
	if r.rep.NeedsFilterCode() {
		var err error
		if code, err = r.filterCode(ctx); err != nil {
			return replicator.ID{}, err
		}
	}
	id, err := r.rep.ID(r.serverUUID, code)
	if err != nil {
		return id, newError(codePlain, err, "%s", err)
	}
	return id, nil
}

// filterCode reads the text of the filter function.
func (r *run) filterCode(ctx context.Context) (string, error) {
	ddoc, filter, err := r.rep.FilterName()
	if err != nil {
		return "", newError(codeFilter, err, "%s", err)
	}
	doc, err := r.source.db.GetDesignDoc(ctx, ddoc)
	if err != nil {
		return "", newError(codeFilter, err,
			"Couldn't open document `_design/%s` from source database `%s`: %s", ddoc, r.source.uri, r.unopened(err))
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
		return "", newError(codeFilter, err,
			"Couldn't parse filter code from document `_design/%s` on `%s`: no filter function `%s`", ddoc, r.source.uri, filter)
	}
	return *code, nil
}

// unopened says why the source did not give a document: in CouchDB's word if that is because there is
// none.
func (r *run) unopened(err error) string {
	if errors.Is(err, couch.ErrNotFound) && !errors.Is(err, couch.ErrNoDatabase) {
		return "not_found"
	}
	return r.source.failed(codePlain, err).Error()
}
