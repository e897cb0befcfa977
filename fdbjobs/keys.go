package fdbjobs

import (
	"encoding/binary"
	"fmt"
	"time"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// The first elements of all keys. They are stored, and so never change.
const (
	tagData int64 = iota
	tagState
	tagArgs
	tagDelayed
	tagReady
	tagOwners
	tagActive
	tagStatus
	tagCount
	tagTransitions
	tagTrimmed
	tagTimeout
	tagWatchReady
	tagWatchTransitions
)

// keyspace packs the keys of one type. The comment of the package has their table.
type keyspace struct {
	data, state, args, delayed, ready, owners, active, status, count, transitions tuple.Subspace
	trimmed, timeout, watchReady, watchTransitions                                []byte
}

func newKeyspace(root tuple.Subspace, typ string) keyspace {
	return keyspace{
		data:             root.Sub(tagData, typ),
		state:            root.Sub(tagState, typ),
		args:             root.Sub(tagArgs, typ),
		delayed:          root.Sub(tagDelayed, typ),
		ready:            root.Sub(tagReady, typ),
		owners:           root.Sub(tagOwners, typ),
		active:           root.Sub(tagActive, typ),
		status:           root.Sub(tagStatus, typ),
		count:            root.Sub(tagCount, typ),
		transitions:      root.Sub(tagTransitions, typ),
		trimmed:          root.Pack(tagTrimmed, typ),
		timeout:          root.Pack(tagTimeout, typ),
		watchReady:       root.Pack(tagWatchReady, typ),
		watchTransitions: root.Pack(tagWatchTransitions, typ),
	}
}

// keyRange is the range of all keys of s.
func keyRange(s tuple.Subspace) kv.KeyRange {
	begin, end := s.Range()
	return kv.KeyRange{Begin: begin, End: end}
}

// from is the range of the keys of s that are not less than key, which may be nil.
func from(s tuple.Subspace, key []byte) kv.KeyRange {
	r := keyRange(s)
	if key != nil {
		r.Begin = key
	}
	return r
}

// row is the value of a job's key in data.
type row struct {
	sequence   *tuple.Versionstamp // of its row in ready or active; nil: it has none
	status     Status
	lock       string // of the latest holder, kept after it let go
	generation int64
	owner      string
	scheduled  int64  // seconds since the epoch
	resubmit   *int64 // when it is to run again after this run; running jobs only
	token      string // of the latest add
}

// waits reports whether the job is in the queue of those that are not yet due.
func (r *row) waits() bool { return r.status == Pending && r.sequence == nil }

// heldBy reports whether the job runs under lock.
func (r *row) heldBy(lock string) bool { return r.status == Running && r.lock == lock }

func (r *row) tuple() tuple.Tuple {
	t := tuple.Tuple{nil, string(r.status), r.lock, r.generation, r.owner, r.scheduled, nil, r.token}
	if r.sequence != nil {
		t[0] = *r.sequence
	}
	if r.resubmit != nil {
		t[6] = *r.resubmit
	}
	return t
}

func parseRow(value []byte) (*row, error) {
	t, err := tuple.Unpack(value)
	if err != nil {
		return nil, fmt.Errorf("reading a job's row: %w", err)
	}
	bad := fmt.Errorf("reading a job's row: unknown form of %d elements", len(t))
	if len(t) != 8 {
		return nil, bad
	}
	var r row
	var status string
	fields := []bool{
		as(t[1], &status), as(t[2], &r.lock), as(t[3], &r.generation),
		as(t[4], &r.owner), as(t[5], &r.scheduled), as(t[7], &r.token),
	}
	for _, ok := range fields {
		if !ok {
			return nil, bad
		}
	}
	r.status = Status(status)
	if t[0] != nil {
		r.sequence = new(tuple.Versionstamp)
		if !as(t[0], r.sequence) {
			return nil, bad
		}
	}
	if t[6] != nil {
		r.resubmit = new(int64)
		if !as(t[6], r.resubmit) {
			return nil, bad
		}
	}
	return &r, nil
}

func as[T any](element any, into *T) bool {
	v, ok := element.(T)
	*into = v
	return ok
}

// stampAfter is the first versionstamp of commits after version.
func stampAfter(version int64) tuple.Versionstamp {
	var s tuple.Versionstamp
	binary.BigEndian.PutUint64(s.TransactionVersion[:8], uint64(version)+1)
	return s
}

// stampAndID takes the last two elements of a key of s: those of a row in ready,
// active or transitions.
func stampAndID(s tuple.Subspace, key []byte) (tuple.Versionstamp, string, error) {
	t, err := s.Unpack(key)
	if err != nil {
		return tuple.Versionstamp{}, "", fmt.Errorf("reading a job's key: %w", err)
	}
	var stamp tuple.Versionstamp
	var id string
	if len(t) < 2 || !as(t[len(t)-2], &stamp) || !as(t[len(t)-1], &id) {
		return stamp, "", fmt.Errorf("reading a job's key: unknown form %v", t)
	}
	return stamp, id, nil
}

// littleEndian is the operand of an atomic addition.
func littleEndian(n int64) []byte {
	return binary.LittleEndian.AppendUint64(nil, uint64(n))
}

func unixTime(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }
