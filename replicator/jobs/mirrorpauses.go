package jobs

import (
	"context"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/tuple"
	"settee/replicator"
)

// pauseAtOnce is the maximum number of databases of a mirror that one transaction reads, and pauses or resumes.
const pauseAtOnce = 50

// pauseMirror pauses the jobs of a mirror's databases if the mirror is paused, and otherwise resumes those that are. It reads none of
// them if the tallies say that they are in line.
func (s *Upkeep) pauseMirror(ctx context.Context, mirror string) error {
	inLine, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (bool, error) {
		live, err := s.mirrors.liveMirror(tx.Snapshot(), mirror)
		if err != nil || live == nil {
			return true, err
		}
		summary, err := awaitSums(s.jobs.Tallies(tx.Snapshot(), indexMirrored, tuple.Tuple{mirror}))
		for state, n := range summary.States {
			if n > 0 && differs(state, live.Args.Paused != nil) {
				return false, err
			}
		}
		return true, err
	})
	if err != nil || inLine {
		return err
	}
	_, err = parts(ctx, s.db, pauseAtOnce, "", func(tx kv.Transaction, after string, most int) (string, bool, error) {
		return s.pauseSome(tx, mirror, after, most)
	})
	return err
}

// differs reports whether a database in a state has a job that is to be paused or resumed.
func differs(state replicator.MirroredState, paused bool) bool {
	if paused {
		return state != replicator.MirroredPaused && state != replicator.MirroredGone && !state.Ended()
	}
	return state == replicator.MirroredPaused
}

// pauseSome pauses or resumes up to limit jobs of a mirror after a database. It reads in the same transaction whether the mirror is
// paused. It returns the last database, and whether there may be more.
func (s *Upkeep) pauseSome(tx kv.Transaction, mirror, after string, limit int) (last string, more bool, err error) {
	live, err := s.mirrors.liveMirror(tx, mirror)
	if err != nil || live == nil || live.Args.Replication == nil { // that one may be paused: this node cannot open it
		return "", false, err
	}
	found, err := s.mirrors.mirrored(tx, mirror, after, limit).Await()
	if err != nil || len(found) == 0 {
		return "", false, err
	}
	paused := live.Args.Paused != nil
	for _, e := range found {
		if !differs(e.state, paused) {
			continue
		}
		child, err := s.find(tx, e.id)
		switch {
		case err != nil:
			return "", false, err
		case child == nil || child.Args.Replication == nil || child.Status == fdbjobs.Finished || (child.Args.Paused != nil) == paused:
			continue // also one whose run has not stopped yet, and one that this node cannot open
		}
		if err := s.writer.setPaused(tx, child, paused); err != nil {
			return "", false, err
		}
	}
	return found[len(found)-1].database, len(found) == limit, nil
}
