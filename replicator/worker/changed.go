package worker

import (
	"context"
	"encoding/json"

	"settee/pkg/couch"
	"settee/replicator"
)

// Changed reports whether the source of a replication has a change after since, whatever the replication's filter. It
// makes one request, which it does not repeat, with the credentials of the source, and a login if that needs one. since
// is a sequence of the source, such as a job's CheckpointedSourceSeq; an empty one stands for the beginning. Errors are
// *Error.
func Changed(ctx context.Context, r *replicator.Replication, since json.RawMessage, cfg Config) (bool, error) {
	changed := false
	err := ask(r, cfg, func(source *peer) (err error) {
		changed, err = changedSince(ctx, source.db, since)
		return source.failed(replicator.RequestReadChanges, err)
	})
	return changed, err
}

// ask calls do with the source of a replication. Requests are not repeated.
func ask(r *replicator.Replication, cfg Config, do func(source *peer) error) error {
	return askAt(r, "source", r.Source, cfg, do)
}

// askAt is ask for either side of a replication.
func askAt(r *replicator.Replication, side string, e replicator.Endpoint, cfg Config, do func(*peer) error) error {
	s := newSettings(cfg, r)
	s.retries = 0
	c := s.requests(e, r.SocketOptions, cfg)
	c.Secrets = r.Secrets()
	p := newPeer(side, e)
	if err := p.connect(c); err != nil {
		return err
	}
	defer p.db.Close()
	return do(p)
}

// changedSince reports whether a database has a change after since.
func changedSince(ctx context.Context, db *couch.Database, since json.RawMessage) (bool, error) {
	feed, err := db.Changes(ctx, couch.ChangesOptions{Since: since, Limit: 1})
	if err != nil {
		return false, err
	}
	return feed.Any()
}
