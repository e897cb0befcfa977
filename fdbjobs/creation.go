package fdbjobs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// Add adds jobs, or changes the jobs with their ids. A pending job gets the new args, owner and scheduled time. A running
// job gets the new args, stops at its next update and is queued again. A finished job is queued again. A transaction
// can add a job once: a second time returns kv.ErrUnreadable. Several jobs are read together, and become ready in the
// given order.
//
// The errors are ErrTooLarge and ErrInvalid, with the field's name and, of several jobs, the id. They are returned before
// anything is written, unless a job that is to be added as ended has not ended, or what follows from a job is over a limit
// ([Derivation]).
func (q *Queue) Add(tx kv.Transaction, specs ...Spec) error {
	seen := make(map[string]bool, len(specs))
	for _, spec := range specs {
		err := spec.check()
		if err != nil && len(specs) > 1 {
			err = fmt.Errorf("the job %q: %w", spec.ID, err)
		}
		if err == nil && seen[spec.ID] {
			err = fmt.Errorf("%w: the id %q is given twice", ErrInvalid, spec.ID)
		}
		if err != nil {
			return err
		}
		seen[spec.ID] = true
	}
	batch, ids := q.batch(tx), make([]string, len(specs))
	for i, spec := range specs {
		ids[i] = spec.ID
		batch.want(spec.Owner, spec.Scheduled.Unix())
	}
	olds, err := q.readRows(tx, ids)
	if err != nil {
		return err
	}
	for i, old := range olds {
		if err := q.add(batch, specs[i], old); err != nil {
			return err
		}
	}
	return nil
}

// add adds a job whose row is old, or nil if there is none.
func (q *Queue) add(batch *batch, spec Spec, old *row) error {
	if old != nil && spec.Token != "" && old.token == spec.Token {
		return nil // done by an earlier run of the transaction
	}
	if spec.Ended && old != nil && old.status != Finished {
		return fmt.Errorf("%w: the job %q has not ended, it is %s", ErrInvalid, spec.ID, old.status)
	}
	next := q.added(spec, old)
	next.checked = true
	if err := batch.addFacts(next, spec, old); err != nil {
		return err
	}
	if err := batch.putArgs(spec.ID, old, next, spec.Args); err != nil {
		return err
	}
	q.setListed(batch.tx, spec.ID, spec.Listed, old)
	if writesState(old) {
		q.setState(batch.tx, spec.ID, spec.State)
	}
	return nil
}

// writesState reports whether adding a job whose row is old writes its state. A pending or running job keeps it.
func writesState(old *row) bool { return old == nil || old.status == Finished }

// added returns the row of a job that is added, without what it has of its args and of the derivation.
func (q *Queue) added(spec Spec, old *row) *row {
	now := q.layer.now().Unix()
	scheduled := now
	if !spec.Scheduled.IsZero() {
		scheduled = spec.Scheduled.Unix()
	}
	next := row{owner: spec.Owner, token: spec.Token, label: spec.Label, listed: spec.Listed != nil}
	if old != nil {
		next.generation, next.lock, next.version, next.facts = old.generation, old.lock, old.version, old.facts
	}
	switch {
	case old != nil && old.status == Running:
		// It stays in its place: its processor or the activity monitor queues it.
		next = *old
		next.token, next.listed = spec.Token, spec.Listed != nil
		next.generation++
		next.resubmit, next.again = &scheduled, spec.Tag
	case spec.Ended:
		next.status, next.tag, next.scheduled = Finished, spec.Tag, scheduled
	default:
		next = *queued(next, scheduled, now)
		next.tag = spec.Tag
		q.derivation.tagDue(&next)
	}
	return &next
}

// addFacts gives the row of a job that is added the facts of what is written. A row whose parts are both written gets the
// version of new ones.
func (b *batch) addFacts(next *row, spec Spec, old *row) (err error) {
	d := b.queue.derivation
	if writesState(old) {
		if next.version, err = b.newVersion(); err != nil {
			return err
		}
		if next.facts.state, err = d.factsOfState(next.version, orEmpty(spec.State)); err != nil {
			return err
		}
	}
	if next.version != 0 && d == nil {
		return b.queue.needsDerivation()
	}
	next.facts.listed, err = d.factsOfListed(next.version, spec.Listed)
	return err
}

// newVersion returns the version of rows that are added.
func (b *batch) newVersion() (int64, error) {
	if b.version == nil {
		version, err := b.queue.derivation.newVersion(b.tx)
		if err != nil {
			return 0, err
		}
		b.version = &version
	}
	return *b.version, nil
}

// MakeDue makes jobs due that are pending, delayed, and have the tag from. They get the tag to. It reports for each id
// whether it did, only once if an id is given twice. Their args and states stay. The error is ErrTooLarge if what follows from these jobs
// ([Derivation]) is too much for one transaction.
func (q *Queue) MakeDue(tx kv.Transaction, ids []string, from, to string) ([]bool, error) {
	if err := checkTag(to); err != nil {
		return nil, err
	}
	now, batch := q.layer.now().Unix(), q.batch(tx)
	made, err := batch.putAll(ids, func(i int, old *row) *row {
		if !old.waits() || old.tag != from || slices.Contains(ids[:i], ids[i]) {
			return nil
		}
		next := queued(*old, min(old.scheduled, now), now)
		next.tag = to
		return next
	})
	if err == nil && batch.full() {
		err = fmt.Errorf("%w: what follows from these %d jobs, for one transaction", ErrTooLarge, len(ids))
	}
	return made, err
}

// Amend replaces the args of a job, and its Listed, unless they are nil. Everything else stays, also of a running job, which goes on
// with the args that it has. What follows from Listed ([Derivation]) follows anew. The errors are ErrNotFound, ErrTooLarge and
// ErrInvalid.
func (q *Queue) Amend(tx kv.Transaction, id string, args, listed json.RawMessage) error {
	if err := cmp.Or(checkObject("args", args, MaxArgsSize), checkObject("listed part", listed, MaxListedSize)); err != nil {
		return err
	}
	old, err := q.readRow(tx, id).Await()
	switch {
	case err != nil:
		return err
	case old == nil:
		return fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	next := *old
	if listed != nil {
		if next.version != 0 && q.derivation == nil {
			return q.needsDerivation()
		}
		if next.facts.listed, err = q.derivation.factsOfListed(next.version, listed); err != nil {
			return err
		}
		next.listed, next.checked = true, true
	}
	batch := q.batch(tx)
	if args != nil {
		err = batch.putArgs(id, old, &next, args)
	} else {
		err = batch.put(id, old, &next)
	}
	if err != nil {
		return err
	}
	if listed != nil {
		q.setListed(tx, id, listed, old)
	}
	return nil
}

// putArgs puts a row, and replaces the args of the job. Empty args are not stored.
func (b *batch) putArgs(id string, old, next *row, args json.RawMessage) error {
	q, had := b.queue, int64(0)
	if old != nil {
		had = old.chunks
	}
	var sealed []byte
	next.chunks = 0
	if len(args) > 0 {
		sealed = q.layer.sealer.Seal(args, "args", q.name, id)
		next.chunks = rows.Chunks(len(sealed))
	}
	if err := b.put(id, old, next); err != nil {
		return err
	}
	if next.chunks > 0 {
		rows.SetChunks(b.tx, q.keys.args.Sub(id), sealed)
	}
	q.clearArgs(b.tx, id, next.chunks, had)
	return nil
}

// openArgs returns the args of a job. The error is ErrSealed.
func (q *Queue) openArgs(id string, stored []byte) (json.RawMessage, error) {
	args, err := q.layer.sealer.Open(stored, "args", q.name, id)
	if err != nil {
		return nil, fmt.Errorf("%w of the job %q: %w", ErrSealed, id, err)
	}
	return args, nil
}

// clearArgs removes the chunks from begin to end one by one, because a cleared range costs a store more than a few
// keys.
func (q *Queue) clearArgs(tx kv.Transaction, id string, begin, end int64) {
	for n := begin; n < end; n++ {
		tx.Clear(q.keys.args.Pack(id, n))
	}
}

// setListed writes Listed of a job, or clears the one that old has.
func (q *Queue) setListed(tx kv.Transaction, id string, listed json.RawMessage, old *row) {
	switch {
	case listed != nil:
		tx.Set(q.keys.listed.Pack(id), listed)
	case old != nil && old.listed:
		tx.Clear(q.keys.listed.Pack(id))
	}
}

func (q *Queue) setState(tx kv.Transaction, id string, state json.RawMessage) {
	tx.Set(q.keys.state.Pack(id), orEmpty(state))
}

func orEmpty(state json.RawMessage) json.RawMessage {
	if state == nil {
		return json.RawMessage("{}")
	}
	return state
}
