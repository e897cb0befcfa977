package fdbjobs

import (
	"context"
	"fmt"
	"time"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// Rows leave a queue at its head, and a store passes over what was removed as slowly as
// over rows for a while. So readers of a queue begin where it began lately. A claimer
// remembers that for itself, and now and then notes it for those who have not read the
// queue yet. It is a lower bound, which never becomes wrong: stamps only grow.

// noteEvery is how often a claimer notes where a queue begins.
const noteEvery = time.Second

// head begins to read where the ready queue of an owner begins: from known on, if that is
// not nil, or else from where a claimer has noted it.
func (t *Type) head(tx kv.ReadTransaction, owner string, known []byte) func() ([]byte, error) {
	if known != nil {
		return func() ([]byte, error) { return known, nil }
	}
	noted := tx.Get(t.keys.heads.Pack(owner))
	return func() ([]byte, error) {
		value, err := noted.Await()
		if err != nil || value == nil {
			return nil, err
		}
		e, err := tuple.Unpack(value)
		var first tuple.Versionstamp
		if err == nil && (len(e) != 1 || !as(e[0], &first)) {
			err = tuple.ErrMalformed
		}
		if err != nil {
			return nil, fmt.Errorf("reading where the queue of %q begins: %w", owner, err)
		}
		return t.keys.ready.Sub(owner).Pack(first), nil
	}
}

// ownerHead is where the ready queue of an owner begins.
type ownerHead struct {
	owner string
	first tuple.Versionstamp
}

// noteHeads notes where owners' ready queues begin.
func (t *Type) noteHeads(ctx context.Context, heads []ownerHead) error {
	return t.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		// An owner that is forgotten meanwhile is to have no key.
		rows := make([]kv.Future[[]byte], len(heads))
		for i, h := range heads {
			rows[i] = tx.Get(t.keys.owners.Pack(h.owner))
		}
		for i, h := range heads {
			row, err := rows[i].Await()
			if err != nil {
				return err
			}
			if row != nil {
				tx.Set(t.keys.heads.Pack(h.owner), tuple.Tuple{h.first}.Pack())
			}
		}
		return nil
	})
}

// toNote returns the heads that have moved since they were noted, of the owners that a
// claim has looked at, if it is time to note some: as many as one transaction takes.
func (q *queueReader) toNote(t *Type, found claimRun, now time.Time) ([]ownerHead, error) {
	if !found.saw || now.Sub(q.noting) < noteEvery {
		return nil, nil
	}
	q.noting = now
	var out []ownerHead
	for _, owner := range found.owners {
		head := q.heads[owner]
		if head == nil || q.noted[owner] == string(head) {
			continue
		}
		e, err := t.keys.ready.Sub(owner).Unpack(head)
		h := ownerHead{owner: owner}
		if err == nil && (len(e) == 0 || !as(e[0], &h.first)) {
			err = tuple.ErrMalformed
		}
		if err != nil {
			return nil, fmt.Errorf("reading a job's key: %w", err)
		}
		note(q.noted, owner, string(head))
		if out = append(out, h); len(out) == ownersAtATime {
			break
		}
	}
	return out, nil
}
