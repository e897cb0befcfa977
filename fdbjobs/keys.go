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
	tagWaiting
	tagOwners
	tagRanks
	tagCharges
	tagWeights
	tagRollup
	tagClaimers
	tagActive
	tagStatus
	tagOwned
	tagCount
	tagOwnedCount
	tagExpiry
	tagTransitions
	tagTrimmed
	tagTimeout
	tagWatchReady
	tagWatchTransitions
	tagHeads
	tagListed
	tagOwnedTagged
)

// keyspace packs the keys of one type. The comment of the package has their table.
type keyspace struct {
	data, state, args, delayed, ready, active, transitions tuple.Subspace
	waiting, owners, ranks, charges, weights, claimers     tuple.Subspace
	heads, listed                                          tuple.Subspace
	status, owned, count, ownedCount, ownedTagged, expiry  tuple.Subspace
	rollup, trimmed, timeout, watchReady, watchTransitions []byte
}

func newKeyspace(root tuple.Subspace, typ string) keyspace {
	return keyspace{
		data:             root.Sub(tagData, typ),
		state:            root.Sub(tagState, typ),
		args:             root.Sub(tagArgs, typ),
		delayed:          root.Sub(tagDelayed, typ),
		ready:            root.Sub(tagReady, typ),
		waiting:          root.Sub(tagWaiting, typ),
		owners:           root.Sub(tagOwners, typ),
		ranks:            root.Sub(tagRanks, typ),
		charges:          root.Sub(tagCharges, typ),
		weights:          root.Sub(tagWeights, typ),
		claimers:         root.Sub(tagClaimers, typ),
		heads:            root.Sub(tagHeads, typ),
		listed:           root.Sub(tagListed, typ),
		active:           root.Sub(tagActive, typ),
		status:           root.Sub(tagStatus, typ),
		owned:            root.Sub(tagOwned, typ),
		count:            root.Sub(tagCount, typ),
		ownedCount:       root.Sub(tagOwnedCount, typ),
		ownedTagged:      root.Sub(tagOwnedTagged, typ),
		expiry:           root.Sub(tagExpiry, typ),
		transitions:      root.Sub(tagTransitions, typ),
		rollup:           root.Pack(tagRollup, typ),
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
	expires    *int64 // when it is to go; finished jobs only
	chunks     int64  // of its args
	label, tag string // see Part
	listed     bool   // it has a key in listed

	// timeout is written beside a running job, not in its row: the one that its holder
	// has read, and goes by.
	timeout time.Duration
}

// waits reports whether the job is in the queue of those that are not yet due.
func (r *row) waits() bool { return r.status == Pending && r.sequence == nil }

func (r *row) part() Part { return Part{r.status, r.label, r.tag} }

// elements are those of a part in keys.
func (p Part) elements() tuple.Tuple { return tuple.Tuple{string(p.Status), p.Label, p.Tag} }

// heldBy reports whether the job runs under lock.
func (r *row) heldBy(lock string) bool { return r.status == Running && r.lock == lock }

func (r *row) tuple() tuple.Tuple {
	t := tuple.Tuple{nil, string(r.status), r.lock, r.generation, r.owner, r.scheduled, nil, r.token, nil, r.chunks, r.label, r.tag, r.listed}
	if r.sequence != nil {
		t[0] = *r.sequence
	}
	if r.resubmit != nil {
		t[6] = *r.resubmit
	}
	if r.expires != nil {
		t[8] = *r.expires
	}
	return t
}

func parseRow(value []byte) (*row, error) {
	t, err := tuple.Unpack(value)
	if err != nil {
		return nil, fmt.Errorf("reading a job's row: %w", err)
	}
	bad := fmt.Errorf("reading a job's row: unknown form of %d elements", len(t))
	if len(t) != 13 {
		return nil, bad
	}
	var r row
	var status string
	fields := []bool{
		as(t[1], &status), as(t[2], &r.lock), as(t[3], &r.generation),
		as(t[4], &r.owner), as(t[5], &r.scheduled), as(t[7], &r.token), as(t[9], &r.chunks),
		as(t[10], &r.label), as(t[11], &r.tag), as(t[12], &r.listed),
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
	if t[8] != nil {
		r.expires = new(int64)
		if !as(t[8], r.expires) {
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

// stampVersion is the version of a stamp's commit.
func stampVersion(s tuple.Versionstamp) int64 {
	return int64(binary.BigEndian.Uint64(s.TransactionVersion[:8]))
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

// awaitInt returns what atomic additions have made of a key, 0 if there were none.
func awaitInt(f kv.Future[[]byte]) (int64, error) {
	value, err := f.Await()
	if err != nil || value == nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("reading a counter: %d bytes", len(value))
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
}

func unixTime(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }
