package fdbjobs

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Check checks all rows of the layer against the invariants of the package's doc comment. It repairs what follows from
// the rows in data: the places of jobs, entries and tallies, and the keys of owners.
//
// The layer's Sealer opens the args. A value whose key is not known is not a fault.
func (l *Layer) Check(ctx context.Context, c *check.Checker) error {
	k := checker{layer: l}
	if kv.Exclusive(c.DB) {
		k.tallyLater = func(of tallied, key []byte, n int64) error { return k.sumLater(ctx, c, of, key, n) }
	}
	// What follows from data is compared with the rest after data, and tallies after the entries that add to them.
	r := kv.PrefixRange(l.space.Bytes())
	for _, end := range [][]byte{l.space.Pack(tagState), l.space.Pack(tagTallies), r.End} {
		if err := c.Walk(ctx, kv.KeyRange{Begin: r.Begin, End: end}, k.visit); err != nil {
			return err
		}
		r.Begin = end
	}
	return nil
}

// checker checks the rows of a layer.
type checker struct {
	layer *Layer
	queue *Queue // of the row before
	// tallyLater compares a tally that takes more than one transaction to sum up. It is nil if the store may change meanwhile.
	tallyLater func(of tallied, key []byte, n int64) error
	// summed are the latest tallies that should be there in a page, and later those that took several transactions.
	summed, later *summed
}

// keyed is a row with the elements of its key after tag and queue.
type keyed struct {
	*check.Page
	kv.KeyValue
	queue *Queue
	key   tuple.Tuple
}

// unknown notes a key that the layer cannot have written.
func (k keyed) unknown() error {
	k.Fault(k.Key, nil, "unknown key")
	return nil
}

// unreadable notes a value that the layer cannot have written.
func (k keyed) unreadable(of string) {
	k.Fault(k.Key, nil, "%s: the value is not one that settee writes", of)
}

// checks has the check of each kind of rows, and the number of the elements of its key after the queue.
var checks = map[int64]struct {
	elements int
	check    func(*checker, keyed) (func() error, error)
}{
	tagData: {1, (*checker).data}, tagState: {1, (*checker).state}, tagArgs: {2, (*checker).args},
	tagDelayed: {2, (*checker).place}, tagReady: {3, (*checker).place},
	tagActive: {3, (*checker).place}, tagListed: {1, (*checker).listed},
	tagEntries: {-1, (*checker).entry}, tagTallies: {-1, (*checker).tally},
	tagWaiting: {1, (*checker).waiting}, tagOwners: {1, (*checker).account}, tagRanks: {3, (*checker).rank},
	tagCharges: {1, (*checker).charges},
	tagWeights: {1, value("an owner's weight", parseWeight)}, tagQueue: {1, (*checker).single},
	tagClaimers: {1, value("when a process last took jobs", parseHeartbeat)},
}

// singles has the checks of the keys that a queue has once.
var singles = map[string]func(*checker, keyed) (func() error, error){
	nameRollup:  value("the last roll-up", parseRollup),
	nameMonitor: value("which monitor looks", parseLease), nameWatchReady: (*checker).watched,
}

func (c *checker) single(k keyed) (func() error, error) {
	var name string
	if !k.as(&name) || singles[name] == nil {
		return nil, k.unknown()
	}
	return singles[name](c, k)
}

func (c *checker) visit(p *check.Page, pair kv.KeyValue) (func() error, error) {
	k := keyed{Page: p, KeyValue: pair}
	elements, err := c.layer.space.Unpack(pair.Key)
	var tag int64
	var name string
	if err != nil || len(elements) < 2 || !rows.As(elements[0], &tag) || !rows.As(elements[1], &name) {
		return nil, k.unknown()
	}
	kind, known := checks[tag]
	k.key = elements[2:]
	if !known || kind.elements >= 0 && len(k.key) != kind.elements {
		return nil, k.unknown()
	}
	if c.queue == nil || c.queue.name != name {
		c.queue = newQueue(c.layer, name)
	}
	k.queue = c.queue
	return kind.check(c, k)
}

// as stores the elements of the key in into, as [rows.ScanKey] does, and reports whether it can.
func (k keyed) as(into ...any) bool { return rows.Store(k.key, into...) }

// data checks a job's own row, and that it has the other rows that it must have.
func (c *checker) data(k keyed) (func() error, error) {
	var id string
	if !k.as(&id) {
		return nil, k.unknown()
	}
	r, err := parseRow(k.Value)
	if err != nil || !r.sound() {
		k.unreadable("a job")
		return nil, nil
	}
	r.renews = true // if a place has to be written
	q, derived := k.queue, k.queue.derive(id, r)
	place := derived.key()
	reads := []kv.Future[[]byte]{k.Get(q.keys.state.Pack(id)), k.Get(q.keys.listed.Pack(id))}
	if place != nil {
		reads = append(reads, k.Get(place))
	}
	owner, args := c.owner(k, id, r), c.allArgs(k, id, r)
	follows, err := c.follows(k, id, r)
	if err != nil {
		return nil, err
	}
	return func() error {
		values, err := kv.All(reads)
		if err != nil {
			return err
		}
		if values[0] == nil {
			k.Fault(k.Key, nil, "the job has no state")
		}
		if r.listed && values[1] == nil {
			k.Fault(k.Key, nil, "the job has no listed part")
		}
		if place != nil && values[2] == nil {
			k.Fault(place, func() error {
				derived.set(k)
				if r.status == Pending {
					k.Add(q.keys.watchReady, 1)
				}
				return nil
			}, "the job is %s, and is missing in the index by which it is found", r.status)
		}
		for _, then := range []func() error{owner, args, func() error { return follows(values[0], values[1]) }} {
			if err := then(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// sound reports whether a row is one that put writes.
func (r *row) sound() bool {
	var sound bool
	switch r.status {
	case Pending:
		sound = r.resubmit == nil && r.again == "" && r.expires == nil
	case Running:
		sound = r.sequence == nil && r.lock != "" && r.expires == nil
	case Finished:
		sound = r.sequence == nil && r.resubmit == nil && r.again == ""
	}
	return sound && r.chunks >= 0 && r.chunks <= MaxArgsSize/rows.ChunkSize+2 && (r.sequence == nil || r.sequence.IsComplete())
}

// owner checks that the owner of a ready or running job is known, and waits if it has to.
func (c *checker) owner(k keyed, id string, r *row) func() error {
	ready := r.status == Pending && !r.waits()
	if !ready && r.status != Running {
		return func() error { return nil }
	}
	share, part := k.queue.share, rankIdle
	keys := [][]byte{share.accounts.Pack(r.owner)}
	if ready {
		keys, part = append(keys, share.waiting.Pack(r.owner)), rankWaiting
	}
	reads := make([]kv.Future[[]byte], len(keys))
	for i, key := range keys {
		reads[i] = k.Get(key)
	}
	return func() error {
		values, err := kv.All(reads)
		if i := slices.IndexFunc(values, func(value []byte) bool { return value == nil }); i >= 0 {
			k.Fault(keys[i], func() error { return share.enter(k, r.owner, part) }, "the owner of the %s job %q is not in fair share", r.status, id)
		}
		return err
	}
}

// allArgs checks that a job's args are complete.
func (c *checker) allArgs(k keyed, id string, r *row) func() error {
	if r.chunks == 0 {
		return func() error { return nil }
	}
	space := k.queue.keys.args.Sub(id)
	first := k.Get(space.Pack(0))
	return func() error {
		stored, err := first.Await()
		if err != nil {
			return err
		}
		if r.chunks > 1 {
			if stored, err = rows.JoinChunks(k.GetRange(kv.KeyRange{Begin: space.Pack(0), End: space.Pack(r.chunks)}, kv.RangeOptions{})); err != nil {
				return err
			}
		}
		if int64(len(stored)) <= (r.chunks-1)*rows.ChunkSize {
			k.Fault(k.Key, nil, "a chunk of the job's args is missing or truncated")
			return nil
		}
		args, err := k.queue.openArgs(id, stored)
		switch {
		case kv.UnknownKey(err):
			k.Sealed()
		case err != nil:
			k.Fault(k.Key, nil, "the job's args cannot be decrypted")
		case !check.Object(args):
			k.Fault(k.Key, nil, "the job's args are not a JSON object")
		}
		return nil
	}
}

// belongs checks that a row belongs to a job: has reports so for the job's row. Otherwise it calls fault. A job that cannot
// be read is a fault of its own.
func (k keyed) belongs(id string, has func(*row) bool, fault func()) func() error {
	job := k.queue.readRow(k, id)
	return func() error {
		r, err := job.Await()
		switch {
		case errors.Is(err, tuple.ErrMalformed):
			return nil
		case err == nil && (r == nil || r.sound() && !has(r)):
			fault()
		}
		return err
	}
}

// part checks a row with a part of a job that no other row says.
func (k keyed) part(id, what string, has func(*row) bool) (func() error, error) {
	return k.belongs(id, has, func() { k.Fault(k.Key, nil, "%s of a job that does not have it", what) }), nil
}

// object checks a row with a JSON object that belongs to a job.
func (k keyed) object(what string, has func(*row) bool) (func() error, error) {
	var id string
	if !k.as(&id) {
		return nil, k.unknown()
	}
	if !check.Object(k.Value) {
		k.Fault(k.Key, nil, "%s is not a JSON object", what)
	}
	return k.part(id, what, has)
}

func (c *checker) state(k keyed) (func() error, error) {
	return k.object("a state", func(*row) bool { return true })
}

func (c *checker) listed(k keyed) (func() error, error) {
	return k.object("a listed part", func(r *row) bool { return r.listed })
}

func (c *checker) args(k keyed) (func() error, error) {
	var id string
	var n int64
	if !k.as(&id, &n) {
		return nil, k.unknown()
	}
	return k.part(id, "a chunk of args", func(r *row) bool { return n >= 0 && n < r.chunks })
}

// place checks a row by which a job is found. Its key ends with the job's id.
func (c *checker) place(k keyed) (func() error, error) {
	var id string
	if !rows.As(k.key[len(k.key)-1], &id) {
		return nil, k.unknown()
	}
	return k.belongs(id, func(r *row) bool {
		if !bytes.Equal(k.queue.derive(id, r).key(), k.Key) {
			return false
		}
		_, _, bad := parseActive(k.Value)
		switch {
		case r.waits() && r.owner != string(k.Value):
			k.Wrong(k.Key, []byte(r.owner), "a delayed job with another owner than its own")
		case r.status == Running && bad != nil:
			r.renews = true
			k.Fault(k.Key, func() error { k.queue.derive(id, r).set(k); return nil },
				"when the hold of a running job was renewed: the value is not one that settee writes")
		}
		return true
	}, func() { k.Stray(k.Key, "a row by which the job %q is found, and the job is not there", id) }), nil
}

// value checks a value that no other row depends on.
func value[T any](of string, parse func([]byte) (T, error)) func(*checker, keyed) (func() error, error) {
	return func(_ *checker, k keyed) (func() error, error) {
		if _, err := parse(k.Value); err != nil {
			k.unreadable(of)
		}
		return nil, nil
	}
}

func (c *checker) watched(k keyed) (func() error, error) {
	if _, err := rows.ParseInt(k.Value); err != nil {
		k.Wrong(k.Key, rows.Int(0), "the key that claimers watch: the value is not one that settee writes")
	}
	return nil, nil
}
