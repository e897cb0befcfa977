package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"settee/pkg/couch"
	"settee/replicator"
)

// Beginning says where a run of a replication would begin.
type Beginning struct {
	ID replicator.ID
	// Seq is the sequence of the checkpoint, nil if there is none.
	Seq json.RawMessage
	// Missing says why there is no checkpoint. It completes "it starts from the beginning, because ...".
	Missing string
}

// FindBeginning returns where a run would begin. It only reads. It returns the errors of [Run]; after one the ID may be known.
func FindBeginning(ctx context.Context, rep *replicator.Replication, cfg Config) (Beginning, error) {
	cfg.Refused, cfg.ListRefused = nil, nil
	r, err := newRun(&Job{Replication: rep}, &cfg, nil)
	if err != nil {
		return Beginning{}, err
	}
	defer r.source.db.Close()
	defer r.target.db.Close()
	id, err := r.computeID(ctx, r.rep)
	if err != nil {
		return Beginning{}, verdict(err)
	}
	found := Beginning{ID: id}
	if !r.useCheckpoints {
		found.Missing = "use_checkpoints is false"
		return found, nil
	}
	if err := r.source.open(ctx); err != nil {
		return found, verdict(err)
	}
	err = r.target.open(ctx)
	if rep.CreateTarget && errors.Is(err, couch.ErrNoDatabase) {
		found.Missing = "the target does not exist yet"
		return found, nil
	}
	if err == nil {
		r.id = id
		err = r.readLocals(ctx)
	}
	if err != nil {
		return found, verdict(err)
	}
	about := r.target.local.about
	source, target := r.source.local, r.target.local
	switch {
	case source.rev == "" && target.rev == "":
		found.Missing = "neither database has a checkpoint of it"
	case source.rev == "":
		found.Missing = "the source has no checkpoint of it"
	case target.rev == "":
		found.Missing = "the target has no checkpoint of it"
	case r.source.replaced(about.Source), r.target.replaced(about.Target):
		found.Missing = "a database was created anew after the checkpoint"
	default:
		found.Seq, _ = commonAncestor(source, target)
		if found.Seq == nil || bytes.Equal(found.Seq, beginning) {
			found.Seq, found.Missing = nil, "the checkpoints of the two databases have nothing in common"
		}
	}
	if found.Seq == nil && len(rep.SinceSeq) > 0 {
		if found.Seq, _, err = r.formerPosition(ctx); err != nil {
			return found, verdict(err)
		}
		if found.Seq != nil {
			found.Missing = ""
		} else {
			found.Missing += "; since_seq applies"
		}
	}
	return found, nil
}
