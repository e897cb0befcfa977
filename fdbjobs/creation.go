package fdbjobs

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// argsChunk is how many bytes of args one value holds.
const argsChunk = 90_000

// Add adds a job, or changes the one that has its id: of a pending one the args,
// the owner and the scheduled time are replaced; of a running one the args, and
// it stops at its next update and is queued again; a finished one is queued
// again. A job can be added once in a transaction: the second time is
// kv.ErrUnreadable.
//
// The errors are ErrTooLarge and ErrInvalid, with the field's name. They come
// before anything is written.
func (t *Type) Add(tx kv.Transaction, spec Spec) error {
	if err := spec.check(); err != nil {
		return err
	}
	old, err := awaitRow(t.readRow(tx, spec.ID))
	if err != nil {
		return err
	}
	if old != nil && spec.Token != "" && old.token == spec.Token {
		return nil // an earlier run of the transaction did it
	}
	t.setArgs(tx, spec.ID, spec.Args)
	now := time.Now().Unix()
	scheduled := now
	if !spec.Scheduled.IsZero() {
		scheduled = spec.Scheduled.Unix()
	}
	next := row{owner: spec.Owner, token: spec.Token}
	if old != nil {
		next.generation, next.lock = old.generation, old.lock
		if old.status == Running {
			next = *old
			next.token = spec.Token
			next.generation++
			next.resubmit = &scheduled
			// The row is written without moving the job: its processor, or the
			// activity monitor, queues it. Who follows the job is told.
			tx.Set(t.keys.data.Pack(spec.ID), next.tuple().Pack())
			t.transition(tx, spec.ID, Running, spec.Order)
			return nil
		}
	}
	if old == nil || old.status == Finished {
		t.setState(tx, spec.ID, spec.State)
	}
	t.put(tx, spec.ID, old, queued(next, scheduled, now, spec.Order), spec.Order)
	return nil
}

// Remove removes a job, and reports whether it was there. If it runs, its
// processor gets ErrHalt at its next update.
//
// After a commit whose result was unknown the function of the transaction runs
// again and does not find what it has removed. Who tells a user keeps the answer
// outside, and takes a job that any run has seen for one that was there.
func (t *Type) Remove(tx kv.Transaction, id string) (bool, error) {
	old, err := awaitRow(t.readRow(tx, id))
	if err != nil || old == nil {
		return false, err
	}
	tx.ClearRange(keyRange(t.keys.args.Sub(id)))
	tx.Clear(t.keys.state.Pack(id))
	t.put(tx, id, old, nil, 0)
	return true, nil
}

// Get reads a job. The error is ErrNotFound if there is none.
func (t *Type) Get(tx kv.ReadTransaction, id string) (*Job, error) {
	return t.readJob(tx, id).await()
}

func (t *Type) setArgs(tx kv.Transaction, id string, args json.RawMessage) {
	s := t.keys.args.Sub(id)
	tx.ClearRange(keyRange(s))
	n := int64(0)
	for chunk := range slices.Chunk([]byte(args), argsChunk) {
		tx.Set(s.Pack(n), chunk)
		n++
	}
}

func (t *Type) setState(tx kv.Transaction, id string, state json.RawMessage) {
	if state == nil {
		state = json.RawMessage("{}")
	}
	tx.Set(t.keys.state.Pack(id), state)
}

// jobRead is the reading of a job under way.
type jobRead struct {
	id         string
	row, state kv.Future[[]byte]
	args       kv.RangeResult
}

func (t *Type) readJob(tx kv.ReadTransaction, id string) jobRead {
	return jobRead{
		id:    id,
		row:   t.readRow(tx, id),
		state: tx.Get(t.keys.state.Pack(id)),
		args:  tx.GetRange(keyRange(t.keys.args.Sub(id)), kv.RangeOptions{Mode: kv.StreamWantAll}),
	}
}

func (r jobRead) await() (*Job, error) {
	row, err := awaitRow(r.row)
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, r.id)
	}
	return r.job(row)
}

// job awaits what is left of a job whose row is known.
func (r jobRead) job(row *row) (*Job, error) {
	job := &Job{
		ID: r.id, Owner: row.owner, Status: row.status,
		Scheduled: unixTime(row.scheduled), Generation: row.generation,
	}
	state, err := r.state.Await()
	if err != nil {
		return nil, err
	}
	job.State = state
	for pair, err := range r.args.All() {
		if err != nil {
			return nil, err
		}
		job.Args = append(job.Args, pair.Value...)
	}
	if job.Args == nil {
		job.Args = json.RawMessage("{}")
	}
	return job, nil
}

// List reads the jobs that have one of the statuses, by id, up to limit of them
// from the first id that is greater than after.
func (t *Type) List(tx kv.ReadTransaction, after string, limit int, statuses ...Status) ([]*Job, error) {
	ids, err := t.ids(tx, after, limit, statuses)
	if err != nil {
		return nil, err
	}
	reads := make([]jobRead, len(ids))
	for i, id := range ids {
		reads[i] = t.readJob(tx, id)
	}
	jobs := make([]*Job, len(ids))
	for i, read := range reads {
		if jobs[i], err = read.await(); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

// Skip returns the id of the nth job, from 1, among those that List would list
// after an id, or the last one's where there are fewer; after itself if there is
// none. It reads the index alone, n keys of it for each status.
func (t *Type) Skip(tx kv.ReadTransaction, after string, n int, statuses ...Status) (string, error) {
	ids, err := t.ids(tx, after, n, statuses)
	if err != nil || len(ids) == 0 {
		return after, err
	}
	return ids[len(ids)-1], nil
}

func (t *Type) ids(tx kv.ReadTransaction, after string, limit int, statuses []Status) ([]string, error) {
	if limit <= 0 {
		return nil, nil
	}
	ranges := make([]kv.RangeResult, len(statuses))
	for i, status := range statuses {
		s := t.keys.status.Sub(string(status))
		var begin []byte
		if after != "" {
			begin = kv.KeyAfter(s.Pack(after))
		}
		ranges[i] = tx.GetRange(from(s, begin), kv.RangeOptions{Limit: limit, Mode: kv.StreamWantAll})
	}
	var ids []string
	for _, r := range ranges {
		for pair, err := range r.All() {
			if err != nil {
				return nil, err
			}
			id, err := lastString(t.keys.status, pair.Key)
			if err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, cmp.Compare[string])
	return ids[:min(limit, len(ids))], nil
}

// lastString is the last element of a key of s.
func lastString(s tuple.Subspace, key []byte) (string, error) {
	elements, err := s.Unpack(key)
	if err != nil {
		return "", fmt.Errorf("reading a job's key: %w", err)
	}
	var last string
	if len(elements) == 0 || !as(elements[len(elements)-1], &last) {
		return "", fmt.Errorf("reading a job's key: unknown form %v", elements)
	}
	return last, nil
}

// Count returns how many jobs have one of the statuses.
func (t *Type) Count(tx kv.ReadTransaction, statuses ...Status) (int64, error) {
	reads := make([]kv.Future[[]byte], len(statuses))
	for i, status := range statuses {
		reads[i] = tx.Get(t.keys.count.Pack(string(status)))
	}
	var total int64
	for _, read := range reads {
		value, err := read.Await()
		if err != nil {
			return 0, err
		}
		if value == nil {
			continue
		}
		if len(value) != 8 {
			return 0, fmt.Errorf("reading a count of jobs: %d bytes", len(value))
		}
		total += int64(binary.LittleEndian.Uint64(value))
	}
	return total, nil
}

// SetTimeout sets the type's activity timeout: how long a job may go without an
// update before it is queued again. It holds for processors from their next
// update on.
func (t *Type) SetTimeout(tx kv.Transaction, timeout time.Duration) error {
	if timeout <= 0 {
		return fmt.Errorf("%w: the activity timeout of %s is not positive", ErrInvalid, timeout)
	}
	tx.Set(t.keys.timeout, tuple.Tuple{timeout.Seconds()}.Pack())
	return nil
}

// Timeout reads the type's activity timeout, DefaultTimeout if none was set.
func (t *Type) Timeout(tx kv.ReadTransaction) (time.Duration, error) {
	return awaitTimeout(tx.Get(t.keys.timeout))
}

func awaitTimeout(f kv.Future[[]byte]) (time.Duration, error) {
	value, err := f.Await()
	if err != nil || value == nil {
		return DefaultTimeout, err
	}
	elements, err := tuple.Unpack(value)
	if err != nil {
		return 0, fmt.Errorf("reading a type's timeout: %w", err)
	}
	var seconds float64
	if len(elements) != 1 || !as(elements[0], &seconds) || seconds <= 0 {
		return 0, fmt.Errorf("reading a type's timeout: unknown form %v", elements)
	}
	return time.Duration(math.Round(seconds * float64(time.Second))), nil
}
