package worker

import (
	"bytes"
	"context"
	"encoding/json"
)

// formerPosition returns the position of a checkpoint that CouchDB before 3.5.2 has left for a replication with
// since_seq, and its history. The position is nil if there is none.
//
// The ids of these versions leave out since_seq, so the checkpoint may be of another replication: with another since_seq,
// or without one. It counts only if the session that has written it began at this since_seq, as each run did in these
// versions.
func (r *run) formerPosition(ctx context.Context) (json.RawMessage, []session, error) {
	former := *r.rep
	former.SinceSeq = nil
	id, err := r.computeID(ctx, &former)
	if err != nil {
		return nil, nil, err
	}
	var source, target checkpoint
	err = r.onBoth(ctx, func(ctx context.Context, p *peer) (err error) {
		of := &source
		if p == r.target {
			of = &target
		}
		*of, err = p.getCheckpoint(ctx, id.Base)
		return err
	})
	if err != nil || r.source.replaced(target.about.Source) || r.target.replaced(target.about.Target) {
		return nil, nil, err
	}
	seq, history := commonAncestor(source, target)
	if seq == nil || len(history) == 0 || !bytes.Equal(history[0].start, r.rep.SinceSeq) {
		return nil, nil, nil
	}
	return seq, history, nil
}
