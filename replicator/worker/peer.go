package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"settee/pkg/couch"
	"settee/replicator"
)

// peer is one of the two databases.
type peer struct {
	db   *couch.Database
	side string // "source" or "target"
	uri  string // as CouchDB prints it, without credentials
	user string

	endpoint replicator.Endpoint

	// instance is the database's instance_start_time, or nil if the server's value is meaningless.
	instance json.RawMessage
	// info is what the database said when it was opened.
	info couch.Info
	// compared says that this run has seen instance, or that it is still the same.
	compared bool
	// updateSeq is the database's update_seq after everything up to the latest checkpoint was read, or nil if unknown. It is
	// guarded like run.latest.
	updateSeq json.RawMessage
	// local is the checkpoint document as last seen by this run.
	local checkpoint
}

func (r *run) openPeer(side string, endpoint replicator.Endpoint, cfg Config) (*peer, error) {
	p := newPeer(side, endpoint)
	c := r.requests(endpoint, r.rep.SocketOptions, cfg)
	c.Secrets, c.Large, c.Retrying = r.secrets, enterRoom, r.retrying(p)
	if c.Transport != nil {
		c.Transport = r.moved.through(c.Transport)
	}
	if err := p.connect(c); err != nil {
		return nil, err
	}
	return p, nil
}

func newPeer(side string, endpoint replicator.Endpoint) *peer {
	return &peer{side: side, uri: endpoint.String(), user: endpoint.Username, endpoint: endpoint}
}

// connect prepares requests to the database. It makes none.
func (p *peer) connect(c couch.Config) (err error) {
	if p.db, err = couch.Open(c); err != nil {
		return newError(p.coded(replicator.FaultInvalid, replicator.RequestOpen, p.side+": "+err.Error()), err)
	}
	return nil
}

// open checks that the database exists.
func (p *peer) open(ctx context.Context) error {
	info, err := p.db.Info(ctx)
	if err != nil {
		return p.failed(replicator.RequestOpen, err)
	}
	p.info = info
	p.instance, p.compared = instance(info), true
	return nil
}

// look reads update_seq, and checks that the database is still the one that the run began with.
func (p *peer) look(ctx context.Context) error {
	same, err := p.compare(ctx)
	if err == nil && same == no {
		return p.recreated()
	}
	return err
}

// create opens the database, and creates it if it is missing, with the given parameters and the parameters of the source.
// isNew reports that the database was created, as far as the answers tell. The parameters of the source it leaves out if the server does not take them: a cluster need not have as many nodes as the other
// one, and a settee has no partitioned databases.
func (p *peer) create(ctx context.Context, given, ofSource url.Values) (isNew bool, err error) {
	if err := p.open(ctx); !errors.Is(err, couch.ErrNoDatabase) {
		return false, err
	}
	query := url.Values{}
	maps.Copy(query, ofSource)
	maps.Copy(query, given)
	createErr := p.db.Create(ctx, query)
	for _, refused := range []struct {
		status    int
		parameter string
	}{{http.StatusBadRequest, "n"}, {http.StatusNotImplemented, "partitioned"}} {
		e, ok := errors.AsType[*couch.Error](createErr)
		if ok && e.Status == refused.status && ofSource.Has(refused.parameter) && !given.Has(refused.parameter) {
			query.Del(refused.parameter)
			createErr = p.db.Create(ctx, query)
		}
	}
	if createErr == nil || errors.Is(createErr, couch.ErrExists) {
		return createErr == nil, p.open(ctx)
	}
	// The request may have succeeded although its answer was lost.
	if err := p.open(ctx); !errors.Is(err, couch.ErrNoDatabase) {
		return true, err
	}
	return false, p.failed(replicator.RequestCreate, createErr)
}

// instance returns instance_start_time, or nil if it is meaningless: CouchDB 2 returns "0" for every database.
func instance(info couch.Info) json.RawMessage {
	switch value := string(info.InstanceStartTime); value {
	case "", "null", "0", `"0"`, `""`:
		return nil
	}
	return info.InstanceStartTime
}

// created returns instance if it identifies the database for its lifetime, else nil. CouchDB 3.3 and later and settee
// return the creation time in seconds since the Unix epoch, as a string. The milliseconds of PouchDB Server and the
// microseconds of CouchDB 1 are the start time of the server.
func created(instance json.RawMessage) json.RawMessage {
	const digits = 11
	seconds := text(instance)
	if seconds == "" || len(seconds) > digits || strings.Trim(seconds, "0123456789") != "" {
		return nil
	}
	return instance
}

// parameters converts a JSON object into a query. Strings are used as they are, other values as JSON.
func parameters(object json.RawMessage) (url.Values, error) {
	query := url.Values{}
	if len(object) == 0 {
		return query, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, err
	}
	for name, value := range fields {
		if value[0] == '"' {
			query.Set(name, text(value))
		} else {
			query.Set(name, string(value))
		}
	}
	return query, nil
}

// openBoth opens the databases. If both fail, it returns the source's error. It does not create a target for a missing
// source.
func (r *run) openBoth(ctx context.Context) error {
	if !r.rep.CreateTarget {
		return r.onBoth(ctx, func(ctx context.Context, p *peer) error { return p.open(ctx) })
	}
	if err := r.source.open(ctx); err != nil {
		return err
	}
	return r.openTarget(ctx)
}

// openTarget opens the target, and creates it if it is missing and create_target is set.
func (r *run) openTarget(ctx context.Context) error {
	if !r.rep.CreateTarget {
		return r.target.open(ctx)
	}
	given, err := parameters(r.rep.CreateTargetParams)
	if err != nil {
		return newError(r.target.coded(replicator.FaultInvalid, replicator.RequestCreate, "create_target_params: "+err.Error()), err)
	}
	if r.rep.Mirrored != nil {
		return r.openMirrored(ctx, given, r.source.db.Parameters(r.source.info)) // the source is open
	}
	_, err = r.target.create(ctx, given, nil)
	return err
}

// readCheckpoints reads the checkpoint documents and sets the start.
func (r *run) readCheckpoints(ctx context.Context) error {
	start := beginning
	if r.useCheckpoints {
		if !r.resumed {
			if err := r.readLocals(ctx); err != nil {
				return err
			}
			if err := r.takeBack(ctx); err != nil {
				return err
			}
			if err := r.writeEmptyCheckpoints(ctx); err != nil {
				return err
			}
		}
		seq, history := commonAncestor(r.source.local, r.target.local)
		if seq != nil {
			start, r.earlier = seq, history
		}
	}
	// since_seq applies only without a checkpoint: an interrupted run must not begin at since_seq again.
	if len(r.rep.SinceSeq) > 0 && bytes.Equal(start, beginning) {
		start = r.rep.SinceSeq
		if r.useCheckpoints {
			seq, history, err := r.formerPosition(ctx)
			if err != nil {
				return err
			}
			if seq != nil {
				start, r.earlier = seq, history
			}
		}
	}
	r.start = start
	r.latest = recordOf(r.source.local)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.earlier) > 0 {
		r.base = r.base.Max(r.earlier[0].stats)
	}
	r.read, r.through, r.committed = start, start, start
	r.began = true
	r.tellSoon()
	return nil
}

// readLocals reads the checkpoint documents of both databases.
func (r *run) readLocals(ctx context.Context) error {
	return r.onBoth(ctx, func(ctx context.Context, p *peer) error { return p.readLocal(ctx, r.id.Base) })
}

func (p *peer) readLocal(ctx context.Context, id string) error {
	local, err := p.getCheckpoint(ctx, id)
	if err == nil {
		p.local = local
	}
	return err
}

// getCheckpoint reads the checkpoint document with an id. A missing document is a zero checkpoint.
func (p *peer) getCheckpoint(ctx context.Context, id string) (checkpoint, error) {
	doc, err := p.db.GetLocal(ctx, id)
	switch {
	case errors.Is(err, couch.ErrNotFound) && !errors.Is(err, couch.ErrNoDatabase):
		return checkpoint{}, nil
	case err != nil:
		return checkpoint{}, p.failed(replicator.RequestReadCheckpoint, err)
	}
	return parseCheckpoint(doc), nil
}
