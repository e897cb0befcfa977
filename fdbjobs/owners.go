package fdbjobs

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// DefaultWeight is that of an owner that was given none.
const DefaultWeight = 1.0

// ownersAtATime is how many owners one transaction folds, or looks through for those
// that have no jobs left.
const ownersAtATime = 100

// The two parts of ranks.
const (
	rankIdle    int64 = iota // nothing is ready
	rankWaiting              // something is ready, or was lately
)

// Owner is what the layer knows of an owner that has pending or running jobs.
type Owner struct {
	Name string
	// Weight is the share of the owner among the others.
	Weight float64
	// Usage is what was charged to it, decayed by each roll-up, in the caller's
	// unit. An owner that had no jobs began level with the others.
	Usage float64
	// How many jobs it has.
	Pending, Running, Finished int64
	// Tagged is how many of them have a tag, by status and tag.
	Tagged map[Part]int64
}

// SetWeight sets an owner's weight, which is positive. It stays when the owner has no
// jobs; DefaultWeight takes its row away. The error is ErrInvalid, or ErrTooLarge.
func (t *Type) SetWeight(tx kv.Transaction, owner string, weight float64) error {
	switch {
	case len(owner) > MaxNameSize:
		return fmt.Errorf("%w: the owner: %d bytes, at most %d", ErrTooLarge, len(owner), MaxNameSize)
	case !(weight > 0) || math.IsInf(weight, 1):
		return fmt.Errorf("%w: the weight of the owner %q is %v, not a positive number", ErrInvalid, owner, weight)
	case weight == DefaultWeight:
		tx.Clear(t.keys.weights.Pack(owner))
	default:
		tx.Set(t.keys.weights.Pack(owner), tuple.Tuple{weight}.Pack())
	}
	return t.fold(tx, []string{owner})
}

// Weights returns the weights that were set, by owner, but for those that are
// [DefaultWeight].
func (t *Type) Weights(tx kv.ReadTransaction) (map[string]float64, error) {
	weights := map[string]float64{}
	for pair, err := range tx.GetRange(keyRange(t.keys.weights), kv.RangeOptions{Mode: kv.StreamWantAll}).All() {
		if err != nil {
			return nil, err
		}
		owner, err := lastString(t.keys.weights, pair.Key)
		if err != nil {
			return nil, err
		}
		if weights[owner], err = parseWeight(pair.Value); err != nil {
			return nil, err
		}
	}
	return weights, nil
}

// Charge adds to an owner's usage, in a unit that is the same for all owners. It
// belongs into a transaction that updates or ends a job of the owner's ([Held.Update],
// also): only an owner with jobs has a usage. Charges conflict with nothing. A repeated
// transaction may charge twice.
func (t *Type) Charge(tx kv.Transaction, owner string, amount int64) {
	tx.Atomic(kv.MutationAdd, t.keys.charges.Pack(owner), littleEndian(amount))
}

// Owners lists the owners that have pending or running jobs (and some that had, until a
// monitor has seen it), by name: at most limit of them, from the first that is greater
// than after.
func (t *Type) Owners(tx kv.ReadTransaction, after string, limit int) ([]Owner, error) {
	if limit <= 0 {
		return nil, nil
	}
	r := keyRange(t.keys.owners)
	if after != "" {
		r.Begin = kv.KeyAfter(t.keys.owners.Pack(after))
	}
	rollup := tx.Get(t.keys.rollup)
	pairs, err := tx.GetRange(r, kv.RangeOptions{Limit: limit, Mode: kv.StreamWantAll}).Slice()
	if err != nil {
		return nil, err
	}
	reads, tagged := make([]ownerRead, len(pairs)), make([]kv.RangeResult, len(pairs))
	for i, pair := range pairs {
		if reads[i].name, err = lastString(t.keys.owners, pair.Key); err != nil {
			return nil, err
		}
		reads[i].begin(t, tx)
		tagged[i] = tx.GetRange(keyRange(t.keys.ownedTagged.Sub(reads[i].name)), kv.RangeOptions{})
	}
	rolled, err := awaitRollup(rollup)
	if err != nil {
		return nil, err
	}
	owners := make([]Owner, len(pairs))
	for i, pair := range pairs {
		s, err := parseStanding(pair.Value)
		if err != nil {
			return nil, err
		}
		if owners[i], err = reads[i].await(s, rolled); err != nil {
			return nil, err
		}
		if owners[i].Tagged, err = t.countTagged(tagged[i]); err != nil {
			return nil, err
		}
	}
	return owners, nil
}

// countTagged returns the counts of an owner's jobs that have tags.
func (t *Type) countTagged(rows kv.RangeResult) (map[Part]int64, error) {
	counts := map[Part]int64{}
	for pair, err := range rows.All() {
		if err != nil {
			return nil, err
		}
		key, err := t.keys.ownedTagged.Unpack(pair.Key)
		var status, tag string
		if err == nil && (len(key) != 3 || !as(key[1], &status) || !as(key[2], &tag) || len(pair.Value) != 8) {
			err = tuple.ErrMalformed
		}
		if err != nil {
			return nil, fmt.Errorf("reading how many jobs have a tag: %w", err)
		}
		if n := int64(binary.LittleEndian.Uint64(pair.Value)); n != 0 {
			counts[Status(status).In("", tag)] = n
		}
	}
	return counts, nil
}

// ownerRead is the reading of what belongs to an owner.
type ownerRead struct {
	name                                        string
	weight, charges, pending, running, finished kv.Future[[]byte]
}

func (r *ownerRead) begin(t *Type, tx kv.ReadTransaction) {
	r.weight = tx.Get(t.keys.weights.Pack(r.name))
	r.charges = tx.Get(t.keys.charges.Pack(r.name))
	r.pending = tx.Get(t.keys.ownedCount.Pack(r.name, string(Pending)))
	r.running = tx.Get(t.keys.ownedCount.Pack(r.name, string(Running)))
	r.finished = tx.Get(t.keys.ownedCount.Pack(r.name, string(Finished)))
}

func (r *ownerRead) await(s standing, rolled rollup) (o Owner, err error) {
	o.Name = r.name
	if o.Weight, err = awaitWeight(r.weight); err != nil {
		return o, err
	}
	charges, err := awaitInt(r.charges)
	if err != nil {
		return o, err
	}
	o.Usage = s.rolled(rolled) + float64(charges)
	for _, c := range []struct {
		read kv.Future[[]byte]
		into *int64
	}{{r.pending, &o.Pending}, {r.running, &o.Running}, {r.finished, &o.Finished}} {
		if *c.into, err = awaitInt(c.read); err != nil {
			return o, err
		}
	}
	return o, nil
}

func (o Owner) live() bool { return o.Pending+o.Running > 0 }

// standing is the value of an owner's key in owners.
type standing struct {
	usage      float64 // without the charges since
	rank       float64 // usage over weight: its place in ranks
	generation int64   // the last roll-up that usage has been through
}

func (s standing) pack() []byte { return tuple.Tuple{s.usage, s.rank, s.generation}.Pack() }

func parseStanding(value []byte) (s standing, err error) {
	e, err := tuple.Unpack(value)
	if err != nil {
		return s, fmt.Errorf("reading an owner's row: %w", err)
	}
	if len(e) != 3 || !as(e[0], &s.usage) || !as(e[1], &s.rank) || !as(e[2], &s.generation) {
		return s, fmt.Errorf("reading an owner's row: unknown form %v", e)
	}
	return s, nil
}

// rolled is the usage after the roll-ups that it has not been through.
func (s standing) rolled(r rollup) float64 {
	if missed := r.generation - s.generation; missed > 0 {
		return s.usage * math.Pow(r.coeff, float64(missed))
	}
	return s.usage
}

func awaitWeight(f kv.Future[[]byte]) (float64, error) {
	value, err := f.Await()
	if err != nil || value == nil {
		return DefaultWeight, err
	}
	return parseWeight(value)
}

func parseWeight(value []byte) (weight float64, err error) {
	e, err := tuple.Unpack(value)
	if err == nil && (len(e) != 1 || !as(e[0], &weight) || !(weight > 0)) {
		err = fmt.Errorf("unknown form %v", e)
	}
	if err != nil {
		return 0, fmt.Errorf("reading an owner's weight: %w", err)
	}
	return weight, nil
}

// line is the owners that wait, as one transaction finds and changes them.
//
// The key in waiting is what a transaction that makes a job ready conflicts on: it is
// written only when an owner comes into the line or leaves it. So those who add to
// one owner's queue do not hinder one another, nor do they who change its usage.
type line struct {
	typ   *Type
	tx    kv.Transaction
	reads map[string]kv.Future[[]byte] // nil: it waits
}

func (t *Type) line(tx kv.Transaction) *line {
	return &line{typ: t, tx: tx, reads: map[string]kv.Future[[]byte]{}}
}

// want begins to read whether an owner is in the line.
func (l *line) want(owner string) {
	if _, ok := l.reads[owner]; !ok {
		l.reads[owner] = l.tx.Get(l.typ.keys.waiting.Pack(owner))
	}
}

// enlist puts an owner into the line whose job becomes ready. It comes before that
// job's put: an owner without jobs begins level with the lowest of those that have
// some, so that it owes nothing for what was and is owed nothing.
func (l *line) enlist(owner string) error {
	l.want(owner)
	if l.reads[owner] == nil {
		return nil
	}
	value, err := l.reads[owner].Await()
	if err != nil {
		return err
	}
	if value == nil {
		if err := l.typ.place(l.tx, owner, rankWaiting); err != nil {
			return err
		}
	}
	l.reads[owner] = nil
	return nil
}

// place gives an owner a row and a place in ranks. An owner that has them moves to
// rankWaiting, and stays where it is for rankIdle.
func (t *Type) place(tx kv.Transaction, owner string, part int64) error {
	// That the owner is here only now is what this conflicts on; all else may be a
	// little out of date.
	now := tx.Snapshot()
	row, rolled := tx.Get(t.keys.owners.Pack(owner)), now.Get(t.keys.rollup)
	read := ownerRead{name: owner}
	read.begin(t, now)
	lowest := t.lowestUsage(now)

	s, known, err := awaitStanding(row)
	if err != nil {
		return err
	}
	r, err := awaitRollup(rolled)
	if err != nil {
		return err
	}
	o, err := read.await(s, r)
	if err != nil {
		return err
	}
	if known && part == rankIdle {
		return nil
	}
	if known {
		tx.Clear(t.keys.ranks.Pack(rankIdle, s.rank, owner))
	}
	if !known || !o.live() {
		least, err := lowest(owner, r)
		if err != nil {
			return err
		}
		s.usage, s.generation = least*o.Weight, r.generation
		s.rank = least + float64(r.running*o.Running)/o.Weight
		tx.Clear(t.keys.charges.Pack(owner))
	}
	tx.Set(t.keys.owners.Pack(owner), s.pack())
	tx.Set(t.keys.ranks.Pack(part, s.rank, owner), nil)
	if part == rankWaiting {
		tx.Set(t.keys.waiting.Pack(owner), nil)
	}
	return nil
}

// lowestOf is how many of the owners that have used the least are asked for what they
// were charged since: the lowest of them is what newcomers begin level with.
const lowestOf = 8

// lowestUsage begins to read what the owner has used for its weight that has used the
// least, but for one, and without what counts for running jobs.
func (t *Type) lowestUsage(tx kv.ReadTransaction) func(but string, r rollup) (float64, error) {
	var parts []kv.RangeResult
	for _, part := range []int64{rankIdle, rankWaiting} {
		parts = append(parts, tx.GetRange(keyRange(t.keys.ranks.Sub(part)), kv.RangeOptions{Limit: lowestOf}))
	}
	return func(but string, r rollup) (float64, error) {
		var reads []usageRead
		for _, part := range parts {
			for pair, err := range part.All() {
				if err != nil {
					return 0, err
				}
				_, owner, err := t.parseRank(pair.Key)
				if err != nil {
					return 0, err
				}
				if owner != but {
					reads = append(reads, t.readUsage(tx, owner))
				}
			}
		}
		lowest := math.Inf(1)
		for _, read := range reads {
			used, _, err := read.await(rollup{generation: r.generation, coeff: r.coeff})
			if err != nil {
				return 0, err
			}
			lowest = min(lowest, used)
		}
		if math.IsInf(lowest, 1) {
			lowest = 0
		}
		return lowest, nil
	}
}

// usageRead is the reading of what an owner has used.
type usageRead struct{ row, charges, weight, running kv.Future[[]byte] }

func (t *Type) readUsage(tx kv.ReadTransaction, owner string) usageRead {
	return usageRead{
		row: tx.Get(t.keys.owners.Pack(owner)), charges: tx.Get(t.keys.charges.Pack(owner)),
		weight:  tx.Get(t.keys.weights.Pack(owner)),
		running: tx.Get(t.keys.ownedCount.Pack(owner, string(Running))),
	}
}

// await returns what the owner has used for its weight, and that.
func (u usageRead) await(r rollup) (used, weight float64, err error) {
	s, _, err := awaitStanding(u.row)
	if err != nil {
		return 0, 0, err
	}
	charged, err := awaitInt(u.charges)
	if err != nil {
		return 0, 0, err
	}
	running, err := awaitInt(u.running)
	if err != nil {
		return 0, 0, err
	}
	weight, err = awaitWeight(u.weight)
	return (s.rolled(r) + float64(charged+r.running*running)) / weight, weight, err
}

// parseRank returns what a key of ranks says.
func (t *Type) parseRank(key []byte) (rank float64, owner string, err error) {
	e, err := t.keys.ranks.Unpack(key)
	if err == nil && (len(e) != 3 || !as(e[1], &rank) || !as(e[2], &owner)) {
		err = tuple.ErrMalformed
	}
	if err != nil {
		err = fmt.Errorf("reading an owner's rank: %w", err)
	}
	return rank, owner, err
}

func awaitStanding(f kv.Future[[]byte]) (s standing, known bool, err error) {
	value, err := f.Await()
	if err != nil || value == nil {
		return s, false, err
	}
	s, err = parseStanding(value)
	return s, true, err
}

// delist takes owners out of the line in whose queues nothing is ready. One whose job
// becomes ready meanwhile conflicts with that, or comes in again; on a conflict there
// is something to take, and all stay for now. heads are queueReader's.
func (t *Type) delist(ctx context.Context, owners []string, heads map[string][]byte) error {
	attempted := false
	return t.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		if attempted {
			return nil
		}
		attempted = true
		ready := make([]kv.RangeResult, len(owners))
		rows := make([]kv.Future[[]byte], len(owners))
		for i, owner := range owners {
			ready[i] = tx.GetRange(from(t.keys.ready.Sub(owner), heads[owner]), kv.RangeOptions{Limit: 1})
			rows[i] = tx.Get(t.keys.owners.Pack(owner))
		}
		for i, owner := range owners {
			found, err := ready[i].Slice()
			if err != nil {
				return err
			}
			s, known, err := awaitStanding(rows[i])
			if err != nil {
				return err
			}
			if len(found) > 0 || !known {
				continue
			}
			tx.Clear(t.keys.waiting.Pack(owner))
			tx.Clear(t.keys.ranks.Pack(rankWaiting, s.rank, owner))
			tx.Set(t.keys.ranks.Pack(rankIdle, s.rank, owner), nil)
		}
		return nil
	})
}

// fold moves what was charged to owners into their usage, and them to the place in
// ranks that is theirs then. It does not conflict with charges: what it moves it
// subtracts.
func (t *Type) fold(tx kv.Transaction, owners []string) error {
	rolledRead := tx.Snapshot().Get(t.keys.rollup)
	rows, waits := make([]kv.Future[[]byte], len(owners)), make([]kv.Future[[]byte], len(owners))
	reads := make([]ownerRead, len(owners))
	for i, owner := range owners {
		rows[i], waits[i] = tx.Get(t.keys.owners.Pack(owner)), tx.Get(t.keys.waiting.Pack(owner))
		reads[i] = ownerRead{
			name: owner, weight: tx.Get(t.keys.weights.Pack(owner)),
			charges: tx.Snapshot().Get(t.keys.charges.Pack(owner)),
			running: tx.Snapshot().Get(t.keys.ownedCount.Pack(owner, string(Running))),
		}
	}
	rolled, err := awaitRollup(rolledRead)
	if err != nil {
		return err
	}
	for i, owner := range owners {
		old, known, err := awaitStanding(rows[i])
		if err != nil {
			return err
		}
		waits, err := waits[i].Await()
		if err != nil {
			return err
		}
		weight, err := awaitWeight(reads[i].weight)
		if err != nil {
			return err
		}
		charged, err := awaitInt(reads[i].charges)
		if err != nil {
			return err
		}
		running, err := awaitInt(reads[i].running)
		if err != nil {
			return err
		}
		if !known {
			continue
		}
		next := standing{usage: max(old.rolled(rolled)+float64(charged), 0), generation: rolled.generation}
		next.rank = (next.usage + float64(rolled.running*running)) / weight
		if charged != 0 {
			t.Charge(tx, owner, -charged)
		}
		part := rankIdle
		if waits != nil {
			part = rankWaiting
		}
		tx.Clear(t.keys.ranks.Pack(part, old.rank, owner))
		tx.Set(t.keys.ranks.Pack(part, next.rank, owner), nil)
		tx.Set(t.keys.owners.Pack(owner), next.pack())
	}
	return nil
}

// settle forgets those of some owners that have no jobs any more: their standing if
// none is pending or running, their counts if there is none at all. It conflicts
// with a job that comes meanwhile, and with nothing where there are jobs.
func (t *Type) settle(tx kv.Transaction, owners []string) error {
	now := tx.Snapshot()
	reads := make([]ownerRead, len(owners))
	for i, owner := range owners {
		reads[i].name = owner
		reads[i].begin(t, now)
	}
	for _, read := range reads {
		o, err := read.await(standing{}, rollup{})
		if err != nil {
			return err
		}
		if o.live() {
			continue
		}
		gone := []Status{Pending, Running}
		if o.Finished == 0 {
			gone = append(gone, Finished)
		}
		for _, status := range gone {
			key := t.keys.ownedCount.Pack(o.Name, string(status))
			tx.AddReadConflictKey(key)
			tx.Clear(key)
			tx.ClearRange(keyRange(t.keys.ownedTagged.Sub(o.Name, string(status))))
		}
		s, known, err := awaitStanding(tx.Get(t.keys.owners.Pack(o.Name)))
		if err != nil {
			return err
		}
		if !known {
			continue
		}
		for _, part := range []int64{rankIdle, rankWaiting} {
			tx.Clear(t.keys.ranks.Pack(part, s.rank, o.Name))
		}
		tx.Clear(t.keys.owners.Pack(o.Name))
		tx.Clear(t.keys.waiting.Pack(o.Name))
		tx.Clear(t.keys.charges.Pack(o.Name))
		tx.Clear(t.keys.heads.Pack(o.Name))
	}
	return nil
}

// byRank sorts candidates by what they have used, and leaves equals as they are.
func byRank(candidates []*candidate) {
	slices.SortStableFunc(candidates, func(a, b *candidate) int { return cmp.Compare(a.used, b.used) })
}
