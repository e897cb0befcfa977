package fdbjobs

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"time"

	"settee/pkg/kv/rows"
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
	tagQueue
	tagClaimers
	tagActive
	tagListed
	tagEntries
	tagTallies
)

// The names of the keys that a queue has once.
const (
	nameRollup     = "rollup"
	nameWatchReady = "ready"
	nameMonitor    = "monitor"
)

// keyspace packs the keys of one queue. The comments of the package and of fairShare list them.
type keyspace struct {
	data, state, args, listed tuple.Subspace
	delayed, ready, active    tuple.Subspace
	claimers                  tuple.Subspace
	entries, tallies          tuple.Subspace
	waiting, accounts, ranks  tuple.Subspace
	charges, weights          tuple.Subspace
	// Keys that a queue has once.
	rollup, watchReady, monitor []byte
}

func newKeyspace(root tuple.Subspace, queue string) *keyspace {
	of := func(tag int64) tuple.Subspace { return root.Sub(tag, queue) }
	one := func(name string) []byte { return root.Pack(tagQueue, queue, name) }
	return &keyspace{
		data: of(tagData), state: of(tagState), args: of(tagArgs), listed: of(tagListed),
		delayed: of(tagDelayed), ready: of(tagReady), active: of(tagActive), claimers: of(tagClaimers),
		entries: of(tagEntries), tallies: of(tagTallies),
		waiting: of(tagWaiting), accounts: of(tagOwners), ranks: of(tagRanks),
		charges: of(tagCharges), weights: of(tagWeights),
		rollup: one(nameRollup), watchReady: one(nameWatchReady), monitor: one(nameMonitor),
	}
}

// row is the value of a job's key in data.
type row struct {
	sequence   *tuple.Versionstamp // of its row in ready; nil without one
	status     Status
	lock       string // of the latest holder, kept after the job ends
	generation int64
	owner      string
	scheduled  int64  // seconds since the epoch
	resubmit   *int64 // time of the next run, after this one; running jobs only
	again      string // tag while it waits for that
	token      string // of the latest add
	expires    *int64 // time of removal; finished jobs only
	chunks     int64  // of its args
	label, tag string // see Part
	listed     bool   // whether it has a key in listed
	entered    entered
	// version is the version of the derivation that has made the job's entries. 0 means that it has none, and no facts.
	version int64
	facts   facts

	// checked says that the call that writes the row can return an error, if what follows from it is over a limit. It is not
	// stored.
	checked bool
	// renews says that the write renews the hold. It is not stored.
	renews bool
}

// entered says how often a job has entered each status since it was added for the first time.
type entered struct{ pending, running, finished int64 }

func (e *entered) of(status Status) *int64 {
	switch status {
	case Pending:
		return &e.pending
	case Running:
		return &e.running
	}
	return &e.finished
}

// waits reports whether the job has a row in delayed.
func (r *row) waits() bool { return r.status == Pending && r.sequence == nil }

func (r *row) heldBy(lock string) bool { return r.status == Running && r.lock == lock }

// job returns the job without its args and Listed.
func (r *row) job(id string, state []byte) *Job {
	job := &Job{
		ID: id, Owner: r.owner, Status: r.status, State: state, Label: r.label, Tag: r.tag,
		Scheduled: unixTime(r.scheduled), generation: r.generation, version: r.version,
	}
	if r.status == Running {
		job.Lock = r.lock
	}
	return job
}

// fields returns pointers to the elements of a row, in their order. A pointer to a pointer is for an element that may be
// null.
func (r *row) fields() []any {
	return []any{
		&r.sequence, (*string)(&r.status), &r.lock, &r.generation, &r.owner, &r.scheduled, &r.resubmit, &r.again, &r.token, &r.expires,
		&r.chunks, &r.label, &r.tag, &r.listed, &r.entered.pending, &r.entered.running, &r.entered.finished,
	}
}

func (r *row) tuple() tuple.Tuple {
	fields := r.fields()
	t := make(tuple.Tuple, 0, len(fields)+4)
	for _, field := range fields {
		v := reflect.ValueOf(field).Elem()
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		var element any
		if v.IsValid() {
			element = v.Interface()
		}
		t = append(t, element)
	}
	if r.version != 0 {
		t = append(t, r.version, []byte(r.facts.listed), []byte(r.facts.state))
	}
	return t
}

func parseRow(value []byte) (*row, error) {
	var r row
	fields := r.fields()
	t, err := tuple.Unpack(value)
	if err == nil {
		own := min(len(t), len(fields))
		if !rows.Store(t[:own], fields...) || !r.setFacts(t[own:]) {
			err = fmt.Errorf("%w: unknown form of %d elements", tuple.ErrMalformed, len(t))
		}
	}
	if err != nil {
		return &r, fmt.Errorf("reading a job's row: %w", err)
	}
	return &r, nil
}

// setFacts sets the version and the facts from the elements behind the others, which a row without a version lacks.
func (r *row) setFacts(elements tuple.Tuple) (ok bool) {
	if len(elements) == 0 {
		return true
	}
	var listed, state []byte
	ok = rows.Store(elements, &r.version, &listed, &state)
	r.facts = facts{listed: string(listed), state: string(state)}
	return ok && r.version > 0
}

// ifAny returns parse for the value of a key that may not exist. It returns none then.
func ifAny[T any](none T, parse func([]byte) (T, error)) func([]byte) (T, error) {
	return func(value []byte) (T, error) {
		if value == nil {
			return none, nil
		}
		return parse(value)
	}
}

// stampAfter returns the first versionstamp of the commits after version.
func stampAfter(version int64) tuple.Versionstamp {
	var s tuple.Versionstamp
	binary.BigEndian.PutUint64(s.TransactionVersion[:8], uint64(version)+1)
	return s
}

// stampVersion returns the version of a stamp's commit.
func stampVersion(s tuple.Versionstamp) int64 {
	return int64(binary.BigEndian.Uint64(s.TransactionVersion[:8]))
}

// readyID returns the id of the job that a key of ready belongs to.
func (k *keyspace) readyID(key []byte) (id string, err error) {
	err = rows.ScanKey("a job's key", k.ready, key, nil, nil, &id)
	return id, err
}

func unixTime(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }
