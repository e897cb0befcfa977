package fdbjobs

import (
	"sync"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

const (
	// ownersAtOnce is the minimum number of owners that a claim reads at the same time, and maxOwners the maximum of all.
	ownersAtOnce = 8
	maxOwners    = 500
	// enoughBytes is the size of args and states after which a claim reads no further ones, because with large ones its five
	// seconds would end before it had maxClaim. It starts reading all jobs at the same time, but only the first chunk of the
	// args of each.
	enoughBytes = 16_000_000
	// window is the minimum number of an owner's ready rows that a claim looks at. With other claimers it is more: a
	// quarter of it, multiplied by the number of claimers that share the owner. maxWindow is the maximum number for an
	// owner, and for owners whose rows are read at the same time.
	window    = 16
	maxWindow = 2_048
)

// ownersToRead returns the number of waiting owners to read at the same time.
func (v *view) ownersToRead(partition partition) int {
	return min(max(v.n, ownersAtOnce, 4*partition.claimers), maxOwners)
}

// startWindows starts reading the first ready rows of owners: of as many as have maxWindow rows. It returns these owners.
func (v *view) startWindows(owners []*contender) (started []*contender) {
	// Enough that several are likely to be in the partition, if the owner has so many.
	own, all := max(window/4, 4*v.n/max(len(owners), 1)), 0
	for _, p := range owners {
		if all >= maxWindow {
			break
		}
		limit := window
		if p.partition.prefers() {
			limit = min(max(window, own*p.partition.shared), maxWindow)
		}
		if v.windows[p] == nil {
			v.windows[p] = v.queue.readReady(v.tx.Snapshot(), p.owner, limit)
		}
		all += limit
		started = append(started, p)
	}
	return started
}

// readWindows awaits the first ready rows of owners, of as many as startWindows returns.
func (v *view) readWindows(owners []*contender) error {
	for _, p := range v.startWindows(owners) {
		pairs, err := v.windows[p].Await()
		if err != nil {
			return err
		}
		p.unread, p.read, p.empty = false, true, len(pairs) == 0
		if p.empty {
			version, err := v.version.Await()
			if err != nil {
				return err
			}
			v.queue.bounds.set(p.owner, v.queue.keys.ready.Sub(p.owner).Pack(stampAfter(version)))
			continue
		}
		v.queue.bounds.set(p.owner, pairs[0].Key)
		if p.rows, p.others = p.partition.split(pairs); v.anyPart {
			p.rows, p.others = v.shuffled(append(p.rows, p.others...)), nil
		}
	}
	return nil
}

func (v *view) shuffled(keys [][]byte) [][]byte {
	v.random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

// readReady starts reading the first ready rows of an owner.
func (q *Queue) readReady(tx kv.ReadTransaction, owner string, limit int) kv.Future[[]kv.KeyValue] {
	ready := rows.From(q.keys.ready.Sub(owner), q.bounds.of(owner))
	return kv.Func[[]kv.KeyValue](tx.GetRange(ready, kv.RangeOptions{Limit: limit}).Slice)
}

// maxBounds limits the number of owners whose bounds a process remembers.
const maxBounds = 10_000

// bounds are lower bounds of the keys of ready rows, by owner: where an earlier read of this process has found the first row.
// They stay valid, because stamps only grow. bounds is safe for concurrent use. Forgetting costs only time.
type bounds struct {
	mu      sync.Mutex
	byOwner map[string][]byte
}

// of returns the bound of an owner, or nil if none is known.
func (b *bounds) of(owner string) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byOwner[owner]
}

// set notes that an owner has no ready rows below a key.
func (b *bounds) set(owner string, key []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	note(&b.byOwner, owner, key)
}

// note sets an entry of a map of limited size.
func note[V any](m *map[string]V, owner string, v V) {
	if *m == nil || len(*m) >= maxBounds {
		*m = map[string]V{}
	}
	(*m)[owner] = v
}
