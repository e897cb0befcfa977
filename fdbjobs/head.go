package fdbjobs

import (
	"context"
	"fmt"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Rows are removed at the head, and for a while a store passes over removed rows as slowly as over others. So readers
// begin at the last known head. A claimer remembers it, and regularly writes it for processes that have not read these
// rows yet. It is a lower bound that stays valid, because stamps only grow.

// noteEvery is the time between two writes of a head.
const noteEvery = time.Second

// head starts reading the head of an owner's ready rows, from known if that is not nil, or else from the written head.
func (q *Queue) head(tx kv.ReadTransaction, owner string, known []byte) func() ([]byte, error) {
	if known != nil {
		return func() ([]byte, error) { return known, nil }
	}
	noted := tx.Get(q.keys.heads.Pack(owner))
	return func() ([]byte, error) {
		value, err := noted.Await()
		if err != nil || value == nil {
			return nil, err
		}
		first, err := parseHead(value)
		if err != nil {
			return nil, fmt.Errorf("reading where the ready jobs of %q begin: %w", owner, err)
		}
		return q.keys.ready.Sub(owner).Pack(first), nil
	}
}

func parseHead(value []byte) (first tuple.Versionstamp, err error) {
	e, err := tuple.Unpack(value)
	if err == nil && (len(e) != 1 || !rows.As(e[0], &first)) {
		err = tuple.ErrMalformed
	}
	return first, err
}

// ownerHead is the head of an owner's ready rows.
type ownerHead struct {
	owner string
	first tuple.Versionstamp
}

// noteHeads writes heads.
func (q *Queue) noteHeads(ctx context.Context, heads []ownerHead) error {
	return q.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		// An owner that was forgotten meanwhile must have no key.
		rows := make([]kv.Future[[]byte], len(heads))
		for i, h := range heads {
			rows[i] = tx.Get(q.share.standings.Pack(h.owner))
		}
		for i, h := range heads {
			row, err := rows[i].Await()
			if err != nil {
				return err
			}
			if row != nil {
				tx.Set(q.keys.heads.Pack(h.owner), tuple.Tuple{h.first}.Pack())
			}
		}
		return nil
	})
}

// toNote returns the heads of the owners of a claim that this claimer tidies and that have moved since they were written,
// if it is time to write some: as many as fit into one transaction. A claimer that was woken and took no job leaves it to
// the one that did.
func (m *memory) toNote(q *Queue, found claimRun, now time.Time) ([]ownerHead, error) {
	if !found.saw || m.woken || now.Sub(m.noting) < noteEvery {
		return nil, nil
	}
	m.noting = now
	var out []ownerHead
	for _, o := range found.looked {
		head := m.heads[o.owner]
		if !o.lane.tidies || head == nil || m.noted[o.owner] == string(head) {
			continue
		}
		e, err := q.keys.ready.Sub(o.owner).Unpack(head)
		h := ownerHead{owner: o.owner}
		if err == nil && (len(e) == 0 || !rows.As(e[0], &h.first)) {
			err = tuple.ErrMalformed
		}
		if err != nil {
			return nil, fmt.Errorf("reading a job's key: %w", err)
		}
		note(m.noted, o.owner, string(head))
		if out = append(out, h); len(out) == ownersAtATime {
			break
		}
	}
	return out, nil
}
