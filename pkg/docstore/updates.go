package docstore

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// UpdateType is what has happened to a database.
type UpdateType string

// The types of updates, in CouchDB's words.
const (
	Created UpdateType = "created"
	Updated UpdateType = "updated" // a document has changed
	Deleted UpdateType = "deleted"
)

// updateTypes has the types at their numbers, which are stored, and so never change.
var updateTypes = [...]UpdateType{1: Created, 2: Updated, 3: Deleted}

// packed returns the value of a row with this type and a time, in seconds since the epoch. 0 means that it is unknown.
func (u UpdateType) packed(time int64) []byte {
	return tuple.Tuple{u.number(), time}.Pack()
}

// packedUpdated is the beginning of the value of most rows.
var packedUpdated = tuple.Tuple{Updated.number()}.Pack()

// packedStamp is the length of a versionstamp in a key.
var packedStamp = len(tuple.Tuple{tuple.Versionstamp{}}.Pack())

func (u UpdateType) number() int64 {
	switch u {
	case Created:
		return 1
	case Updated:
		return 2
	}
	return 3
}

// parseUpdateType returns the type that an element of a stored tuple is.
func parseUpdateType(element any) (UpdateType, bool) {
	var n int64
	if !rows.As(element, &n) || n < 1 || n >= int64(len(updateTypes)) {
		return "", false
	}
	return updateTypes[n], true
}

// The elements after (updates, stripe). They are stored, and so never change.
const (
	tagArmed int64 = iota
	_
	tagJudged
	tagRows
)

// stripes is the number of ranges over which the rows of updates are spread. It is part of the keys, and so never
// changes.
const stripes = 16

// stripeKeys are the keys of one stripe.
type stripeKeys struct {
	armed, judged []byte
	rows          tuple.Subspace
}

func newStripeKeys(s tuple.Subspace) stripeKeys {
	return stripeKeys{s.Pack(tagArmed), s.Pack(tagJudged), s.Sub(tagRows)}
}

// nameHash is the last two bytes of the stamps of a database's rows, and decides about their stripe. It is stored, and
// so never changes.
func nameHash(name string) uint16 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // it never fails
	sum := h.Sum32()
	return uint16(sum>>16) ^ uint16(sum)
}

// stripeOf returns the number of a database's stripe.
func stripeOf(name string) int { return int(nameHash(name) % stripes) }

// stripe returns the keys of the stripe of a database.
func (k *storeKeys) stripe(name string) *stripeKeys { return &k.stripes[stripeOf(name)] }

// updateKey returns the key of a database's row of the commit that has a stamp.
func (k *storeKeys) updateKey(name string, of tuple.Versionstamp) []byte {
	of.UserVersion = nameHash(name)
	return k.stripe(name).rows.Pack(of, name)
}

// setUpdate adds a row of a database at the stamp of the commit. time is as in UpdateType.packed.
func (s *Store) setUpdate(tx kv.Transaction, name string, u UpdateType, time int64) error {
	key, err := s.keys.stripe(name).rows.PackWithVersionstamp(tuple.IncompleteVersionstamp(nameHash(name)), name)
	if err != nil {
		return err
	}
	tx.SetVersionstampedKey(key, u.packed(time))
	return nil
}

// wake wakes the followers that wait for the next row of the stripe, if there are any. Only followers conflict with it: if
// one arms the stripe at the same time, either this transaction removes the row armed, or the follower tries again and sees
// the new row.
func (s *Store) wake(tx kv.Transaction, name string) { tx.Clear(s.keys.stripe(name).armed) }

const (
	// tidyEvery is the number of writes of a process of which one tidies the end of its stripe, and tidyRows the number of
	// rows that it looks at. Each row is within reach of four of them on average.
	tidyEvery = 32
	tidyRows  = 4 * tidyEvery
)

// tidyMark is where a process begins to read when it tidies the end of a stripe: at the last change that the tidying write
// before the last one has seen. So it does not pass over all rows that were ever removed there, which a store does as
// slowly as over others.
type tidyMark struct {
	mu           sync.Mutex
	before, last tuple.Versionstamp // not complete: there was none
}

func (m *tidyMark) begin() tuple.Versionstamp {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == (tuple.Versionstamp{}) {
		return tuple.IncompleteVersionstamp(0)
	}
	return m.before
}

// note notes a change that a tidying write has seen.
func (m *tidyMark) note(seen tuple.Versionstamp) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen.UserVersion = 0
	if m.last == (tuple.Versionstamp{}) {
		m.last = seen
	}
	if seen.Compare(m.last) >= 0 {
		m.before, m.last = m.last, seen
	}
}

const (
	// freshFor is how long after a write of a database this process leaves the database's former row to the writes that
	// tidy, and to RemoveUpdates. A row that is left is at most this and kv.MaxTransactionAge older than the next one, so
	// RemoveUpdates judges it when it sees the next one.
	freshFor = 20 * time.Second
	// freshSlots bounds the databases that are known to be written lately.
	freshSlots = 1024
)

// freshWrites knows which databases this process has changed lately. Two that have the same slot forget each other.
type freshWrites [freshSlots]atomic.Pointer[freshWrite]

type freshWrite struct {
	instance uuid.UUID
	at       time.Time // when its transaction began
	time     int64     // of its changes, see changeTime
}

func (f *freshWrites) slot(instance uuid.UUID) *atomic.Pointer[freshWrite] {
	return &f[binary.BigEndian.Uint16(instance[14:])%freshSlots]
}

// note notes a change that is committed. It keeps what it knows as long as that is half as old as it may be, and the change is
// of the same second.
func (f *freshWrites) note(instance uuid.UUID, began time.Time, changed int64) {
	slot := f.slot(instance)
	if known := slot.Load(); known == nil || known.instance != instance || began.Sub(known.at) > freshFor/2 || known.time != changed {
		slot.Store(&freshWrite{instance, began, changed})
	}
}

// last returns the time of the last change that this process knows, if it has changed the database lately.
func (f *freshWrites) last(instance uuid.UUID, now time.Time) (changed int64, has bool) {
	known := f.slot(instance).Load()
	if known == nil || known.instance != instance || now.Sub(known.at) >= freshFor {
		return 0, false
	}
	return known.time, true
}

// updating is what a write has to know for the row that it adds to updates.
type updating struct {
	w      *writer
	former kv.RangeResult // the last change of the database before this one; nil: not read
	tidy   *tidyMark      // nil: it does not tidy the end of its stripe
	end    kv.RangeResult // the last rows of the stripe; nil: not read
	old    [][]byte       // the rows that go, the row of the last change first
	last   int64          // the time of the last change; 0: unknown
}

// readUpdates starts the reads. A call that is not the first one of its transaction cannot read what the first one has
// written, and need not: it adds the same row.
func (w *writer) readUpdates(alone, first bool) *updating {
	s := w.db.store
	u := &updating{w: w}
	if s.silent {
		return u
	}
	tidying := alone && s.writes.Add(1)%tidyEvery == 0
	last, fresh := s.fresh.last(w.db.instance, time.Now())
	u.last = last
	if first && (tidying || !fresh) {
		u.former = w.db.lastRows(w.tx.Snapshot())
	}
	if tidying {
		u.tidy = &s.tidied[stripeOf(w.db.name)]
		if from := u.tidy.begin(); from.IsComplete() {
			within := rows.Range(s.keys.stripe(w.db.name).rows)
			within.Begin = s.keys.stripe(w.db.name).rows.Pack(from)
			u.end = w.tx.Snapshot().GetRange(within, kv.RangeOptions{Limit: tidyRows, Reverse: true})
		}
	}
	return u
}

// await waits for the reads. It is called before the write writes anything.
func (u *updating) await() error {
	if u.former != nil {
		pairs, err := u.former.Slice()
		if err != nil {
			return err
		}
		former, err := u.w.db.stampOfLast(pairs)
		if err != nil {
			return err
		}
		if former.IsComplete() {
			u.old = append(u.old, u.w.db.store.keys.updateKey(u.w.db.name, former))
			if row, err := u.w.db.parseChange(pairs[0]); err == nil { // one that cannot be read is no reason to refuse writes
				u.last = max(u.last, row.time)
			}
			if u.tidy != nil {
				u.tidy.note(former)
			}
		}
	}
	if u.end != nil {
		pairs, err := u.end.Slice()
		if err != nil {
			return err
		}
		u.old = append(u.old, u.w.db.store.keys.stripe(u.w.db.name).replaced(pairs, u.w.db.name, u.old)...)
	}
	return nil
}

// flush adds the row and removes those that it replaces.
func (u *updating) flush() error {
	s := u.w.db.store
	if s.silent {
		return nil
	}
	for _, key := range u.old {
		u.w.tx.Clear(key)
	}
	s.wake(u.w.tx, u.w.db.name)
	return s.setUpdate(u.w.tx, u.w.db.name, Updated, u.w.time)
}

// replaced returns the keys of the rows of the type updated, among rows of the stripe from the last to the first, that
// later ones or the row that the writer of a database adds replace, without those in known. It compares packed names, since
// every write pays for several rows, and a row that cannot be read is no reason to refuse writes.
func (k *stripeKeys) replaced(pairs []kv.KeyValue, name string, known [][]byte) (old [][]byte) {
	later := superseded{string(tuple.Tuple{name}.Pack()): true}
	at := len(k.rows.Bytes()) + packedStamp
	for _, pair := range pairs {
		if len(pair.Key) <= at {
			continue
		}
		if later.is(pair.Key[at:], bytes.HasPrefix(pair.Value, packedUpdated)) && !(len(known) > 0 && bytes.Equal(pair.Key, known[0])) {
			old = append(old, pair.Key)
		}
	}
	return old
}

// superseded has the names of databases, packed or not, whose later rows were looked at. Rows are looked at from the last
// to the first.
type superseded map[string]bool

// is reports whether a later row replaces the row of a database. Only rows of the type updated are replaced: the next
// creation or deletion removes the others.
func (s superseded) is(name []byte, updated bool) bool {
	if s[string(name)] {
		return updated
	}
	s[string(name)] = true
	return false
}

// life is a database's row in lives: its creation or deletion.
type life struct {
	kind  UpdateType
	stamp tuple.Versionstamp // of the row in updates
	time  int64              // seconds since the epoch
}

func parseLife(value []byte) (l life, err error) {
	t, err := tuple.Unpack(value)
	ok := err == nil && len(t) == 3 && rows.As(t[1], &l.stamp) && rows.As(t[2], &l.time)
	if ok {
		l.kind, ok = parseUpdateType(t[0])
	}
	if !ok || l.kind == Updated {
		return life{}, corrupt("the life of a database: %v (%w)", t, err)
	}
	return l, nil
}

// turn is a transaction that creates or deletes a database.
type turn struct {
	store *Store
	tx    kv.Transaction
	name  string
	life  kv.Future[[]byte]
}

func (s *Store) readLife(tx kv.Transaction, name string) turn {
	return turn{s, tx, name, tx.Get(s.keys.lives.Pack(name))}
}

// begin writes that the database is created.
func (t turn) begin(now int64) error { return t.set(Created, now) }

// end writes that a database is deleted.
func (t turn) end(db *Database, now int64) error {
	last, err := db.awaitLastStamp(db.lastRows(t.tx.Snapshot()))
	if err != nil {
		return err
	}
	if last.IsComplete() {
		t.tx.Clear(t.store.keys.updateKey(t.name, last))
	}
	t.tx.Set(t.store.keys.deletions.Pack(now, t.name), nil)
	return t.set(Deleted, now)
}

// set replaces the rows of the last creation or deletion.
func (t turn) set(kind UpdateType, now int64) error {
	keys := &t.store.keys
	value, err := t.life.Await()
	if err != nil {
		return err
	}
	if value != nil {
		last, err := parseLife(value)
		if err != nil {
			return err
		}
		t.tx.Clear(keys.updateKey(t.name, last.stamp))
		if last.kind == Deleted {
			t.tx.Clear(keys.deletions.Pack(last.time, t.name))
		}
	}
	row, err := tuple.Tuple{kind.number(), tuple.IncompleteVersionstamp(nameHash(t.name)), now}.PackWithVersionstamp(nil)
	if err != nil {
		return err
	}
	t.tx.SetVersionstampedValue(keys.lives.Pack(t.name), row)
	t.store.wake(t.tx, t.name)
	return t.store.setUpdate(t.tx, t.name, kind, time.Now().Unix()) // now may be of an earlier run of the transaction
}

// storedUpdate is a row of updates.
type storedUpdate struct {
	UpdateRow
	key  []byte
	time int64 // in seconds since the epoch; 0: unknown
}

func (k *storeKeys) parseUpdates(pairs []kv.KeyValue) ([]storedUpdate, error) {
	found := make([]storedUpdate, len(pairs))
	for i, pair := range pairs {
		row, err := k.parseUpdate(pair)
		if err != nil {
			return nil, err
		}
		found[i] = row
	}
	return found, nil
}

func (k *storeKeys) parseUpdate(pair kv.KeyValue) (row storedUpdate, err error) {
	row.key = pair.Key
	key, err := k.updates.Unpack(pair.Key)
	var stamp tuple.Versionstamp
	if err != nil || len(key) != 4 || !rows.As(key[2], &stamp) || !rows.As(key[3], &row.Database) {
		return row, corrupt("the key of an update: %v (%w)", key, err)
	}
	row.Sequence = updateSequence(stamp)
	if row.Type, row.time, err = parseUpdateValue(pair.Value); err != nil {
		return row, err
	}
	return row, nil
}

// parseUpdateValue returns the type of an update, and its time in seconds since the epoch, 0 if it is unknown.
func parseUpdateValue(packed []byte) (u UpdateType, time int64, err error) {
	value, err := tuple.Unpack(packed)
	ok := err == nil && len(value) == 2 && rows.As(value[1], &time)
	if ok {
		u, ok = parseUpdateType(value[0])
	}
	if !ok {
		return "", 0, corrupt("an update: %v (%w)", value, err)
	}
	return u, time, nil
}
