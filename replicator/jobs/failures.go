package jobs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"settee/pkg/kv"
	"settee/replicator"
)

// The latest failures of a job are a ring of rows: the nth listed failure is in row n modulo
// replicator.MaxFailures. The row before them has the number of listed failures, the token of the
// transaction that wrote the latest ones, by which a repeated transaction recognises its own commit,
// and the number of all failures, including those that were not listed.

// failuresAtOnce is the most rows in one transaction. A row has up to 6,000 bytes.
const failuresAtOnce = 200

// Failures are the revisions that the target of a replication refused.
type Failures struct {
	// Total is their number over all runs of the job, listed or not. A revision that is refused
	// again counts again, as in replicator.Stats. That happens when a run ends after the failure
	// and before the next checkpoint.
	Total int64
	// Latest are the latest ones, the newest first, at most replicator.MaxFailures.
	Latest []json.RawMessage // a replicator.Failure each
}

// ListRefused adds to the job's failures: count of them, of which latest are the latest ones, the
// oldest first. It is also an update of the job, and may be called concurrently with one.
func (r *Run) ListRefused(ctx context.Context, latest []replicator.Failure, count int64) error {
	rows := make([][]byte, len(latest))
	for i, failure := range latest {
		text, err := json.Marshal(failure.Redacted(r.secrets))
		if err != nil {
			return fmt.Errorf("writing a failure of the replication job %q: %w", r.job.ID, err)
		}
		rows[i] = text
	}
	unlisted := count - int64(len(latest))
	for some := range slices.Chunk(rows, failuresAtOnce) {
		token := rand.Text()
		err := r.listHeld(ctx, some, unlisted, token)
		if errors.Is(err, ErrEnding) {
			err = r.listEnding(ctx, some, unlisted, token)
		}
		if err != nil {
			return err
		}
		unlisted = 0
	}
	return nil
}

// listHeld is ListRefused for some rows of a run that holds its job.
func (r *Run) listHeld(ctx context.Context, rows [][]byte, unlisted int64, token string) error {
	if r.Ending() {
		return ErrEnding
	}
	return r.halted(ctx, r.held.Update(ctx, nil, func(tx kv.Transaction) error {
		if err := r.check(tx); err != nil {
			return err
		}
		return r.store.records.addFailures(tx, r.job.ID, rows, unlisted, token)
	}))
}
