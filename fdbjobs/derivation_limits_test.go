package fdbjobs_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// TestDerivationLimits: what is over a limit is an error of the call that writes it, and the call writes nothing.
func TestDerivationLimits(t *testing.T) {
	// The state says what is returned for it.
	var returned struct {
		facts   []byte
		entries []fdbjobs.Entry
	}
	ofState := func(state json.RawMessage) bool { return strings.Contains(string(state), "over") }
	d := fdbjobs.Derivation{
		OfListed: func(_ int64, listed json.RawMessage) []byte { return listed },
		OfState: func(_ int64, state json.RawMessage) []byte {
			if !ofState(state) {
				return nil
			}
			return append([]byte("over"), returned.facts...)
		},
		Entries: func(_ int64, f fdbjobs.Facts) []fdbjobs.Entry {
			if f.State == nil {
				return nil
			}
			return returned.entries
		},
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	entry := func(change func(*fdbjobs.Entry)) []fdbjobs.Entry {
		e := fdbjobs.Entry{Index: "i", Key: tuple.Tuple{"k"}}
		change(&e)
		return []fdbjobs.Entry{e}
	}
	many := make([]fdbjobs.Entry, fdbjobs.MaxEntries+1)
	for i := range many {
		many[i] = fdbjobs.Entry{Index: "i", Key: tuple.Tuple{int64(i)}}
	}
	over := text(`{"s":"over"}`)
	for name, c := range map[string]struct {
		entries []fdbjobs.Entry
		facts   []byte
		err     error
	}{
		"facts":              {facts: []byte(long(fdbjobs.MaxFactsSize)), err: fdbjobs.ErrTooLarge},
		"entries":            {entries: many, err: fdbjobs.ErrTooLarge},
		"no index":           {entries: entry(func(e *fdbjobs.Entry) { e.Index = "" }), err: fdbjobs.ErrInvalid},
		"index":              {entries: entry(func(e *fdbjobs.Entry) { e.Index = long(31) }), err: fdbjobs.ErrTooLarge},
		"key":                {entries: entry(func(e *fdbjobs.Entry) { e.Key = tuple.Tuple{long(3_999)} }), err: fdbjobs.ErrTooLarge},
		"element":            {entries: entry(func(e *fdbjobs.Entry) { e.Key = tuple.Tuple{1.5} }), err: fdbjobs.ErrInvalid},
		"stamp":              {entries: entry(func(e *fdbjobs.Entry) { e.Key = tuple.Tuple{tuple.IncompleteVersionstamp(0)} }), err: fdbjobs.ErrInvalid},
		"value":              {entries: entry(func(e *fdbjobs.Entry) { e.Value = make([]byte, 201) }), err: fdbjobs.ErrTooLarge},
		"adds":               {entries: entry(func(e *fdbjobs.Entry) { e.Adds = make([]fdbjobs.Add, 9) }), err: fdbjobs.ErrTooLarge},
		"name":               {entries: entry(func(e *fdbjobs.Entry) { e.Adds = []fdbjobs.Add{{Name: long(31)}} }), err: fdbjobs.ErrTooLarge},
		"prefix":             {entries: entry(func(e *fdbjobs.Entry) { e.Adds = []fdbjobs.Add{{Prefix: 2}} }), err: fdbjobs.ErrInvalid},
		"negative":           {entries: entry(func(e *fdbjobs.Entry) { e.Adds = []fdbjobs.Add{{N: -1}} }), err: fdbjobs.ErrInvalid},
		"two of a key":       {entries: []fdbjobs.Entry{many[0], many[0]}, err: fdbjobs.ErrInvalid},
		"as many as allowed": {entries: many[:fdbjobs.MaxEntries], facts: []byte(long(fdbjobs.MaxFactsSize - 4))},
		"as large as allowed": {entries: entry(func(e *fdbjobs.Entry) {
			e.Index, e.Key, e.Value, e.Adds = long(30), tuple.Tuple{long(3_998)}, make([]byte, 200), []fdbjobs.Add{{Prefix: 1, Name: long(30), N: 1}}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBundleWith(t, enginetest.Memory(t), fdbjobs.Options{Derive: map[string]fdbjobs.Derivation{"work": d}})
			returned.facts, returned.entries = c.facts, c.entries
			id := long(fdbjobs.MaxNameSize)
			b.add(t, fdbjobs.Spec{ID: id})
			h := b.accept(t)
			state := func() string { return string(b.get(t, id).State) }
			add := func(specs ...fdbjobs.Spec) error {
				return b.db.Transact(t.Context(), func(tx kv.Transaction) error { return b.jobs.Add(tx, specs...) })
			}
			if c.err == nil {
				require.NoError(t, h.Update(t.Context(), over, nil))
				require.NoError(t, h.Resubmit(t.Context(), time.Now(), over, nil))
				require.NoError(t, b.accept(t).Finish(t.Context(), over, nil))
				require.NoError(t, add(fdbjobs.Spec{ID: "other", State: over}))
				b.remove(t, id)
				return
			}
			for _, err := range []error{
				h.Update(t.Context(), over, nil), h.Finish(t.Context(), over, nil), h.Resubmit(t.Context(), time.Now(), over, nil),
			} {
				require.ErrorIs(t, err, c.err)
				assert.Equal(t, "{}", state())
			}
			b.transact(t, func(tx kv.Transaction) error { // a caller goes on with the other jobs
				require.ErrorIs(t, b.jobs.Add(tx, fdbjobs.Spec{ID: "other", Args: text(`{"n":1}`), State: over}), c.err)
				return b.jobs.Add(tx, fdbjobs.Spec{ID: "third"})
			})
			_, err := b.read(t, "other")
			require.ErrorIs(t, err, fdbjobs.ErrNotFound)
			require.NoError(t, h.Update(t.Context(), text(`{}`), nil), "the job is still held")
		})
	}
	t.Run("listed", func(t *testing.T) {
		b := newBundleWith(t, enginetest.Memory(t), fdbjobs.Options{Derive: map[string]fdbjobs.Derivation{"work": d}})
		listed := text(`{"l":"` + long(fdbjobs.MaxFactsSize) + `"}`)
		require.ErrorIs(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			return b.jobs.Add(tx, fdbjobs.Spec{ID: "j", Listed: listed})
		}), fdbjobs.ErrTooLarge)
	})
}

// TestLeftOut: a call that cannot return an error leaves out entries over a limit, and a check says so. The rest of what
// follows is right.
func TestLeftOut(t *testing.T) {
	d := fdbjobs.Derivation{Entries: func(_ int64, f fdbjobs.Facts) []fdbjobs.Entry {
		value := ""
		if f.Status == fdbjobs.Running {
			value = strings.Repeat("x", 201)
		}
		return []fdbjobs.Entry{{Index: "i", Value: []byte(value)}, {Index: "j", Adds: []fdbjobs.Add{{Name: "all", N: 1}}}}
	}}
	var reasons []error
	fdbjobs.LeaveOut(func(err error) { reasons = append(reasons, err) })
	defer fdbjobs.LeaveOut(nil)
	b := newBundleWith(t, enginetest.Memory(t), fdbjobs.Options{Derive: map[string]fdbjobs.Derivation{"work": d}})
	b.add(t, fdbjobs.Spec{ID: "k"})
	assert.Len(t, b.entries(t, "i", fdbjobs.EntryRange{}), 1)
	h := b.accept(t)
	require.Len(t, reasons, 1)
	require.ErrorContains(t, reasons[0], `what follows from the job "k": too large: a value of the index "i"`)
	assert.Empty(t, b.entries(t, "i", fdbjobs.EntryRange{}))
	assert.Equal(t, sums{"all": 1}, b.tallies(t, "j"))
	said, _ := b.faults(t, true)
	assert.Equal(t, []string{reasons[0].Error()}, said, "it is no fault that a repair could mend")
	require.NoError(t, h.Finish(t.Context(), nil, nil))
	assert.Len(t, b.entries(t, "i", fdbjobs.EntryRange{}), 1)
}

// TestLargeEntries: jobs from which more follows than one transaction may have for all of them are taken, queued again, made
// ready and ended in several.
func TestLargeEntries(t *testing.T) {
	d := fdbjobs.Derivation{Entries: func(_ int64, f fdbjobs.Facts) (entries []fdbjobs.Entry) {
		for i := range int64(fdbjobs.MaxEntries) {
			key := tuple.Tuple{string(f.Status), f.Tag, strings.Repeat("x", 3_900), i}
			entries = append(entries, fdbjobs.Entry{Index: "i", Key: key, Adds: []fdbjobs.Add{{Prefix: 4, Name: "n", N: 1}, {Prefix: 3, Name: "n", N: 1}}})
		}
		return entries
	}}
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundleWith(t, db, fdbjobs.Options{Derive: map[string]fdbjobs.Derivation{"work": d}})
		const many = 50
		var ids []string
		for i := range many {
			ids = append(ids, fmt.Sprint(i))
			b.add(t, fdbjobs.Spec{ID: ids[i], Owner: fmt.Sprint(i % 2), Scheduled: time.Now().Add(time.Minute), Tag: "later"})
		}
		require.ErrorIs(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
			_, err := b.jobs.MakeDue(tx, ids, "later", "")
			return err
		}), fdbjobs.ErrTooLarge)
		after(2 * time.Minute)
		takeAll := func() (held []*fdbjobs.Held) {
			for len(held) < many {
				some := b.take(t, fdbjobs.MaxClaim)
				require.NotEmpty(t, some)
				require.Less(t, len(some), many)
				held = append(held, some...)
			}
			return held
		}
		takeAll()
		n, err := b.jobs.RequeueAll(t.Context())
		require.NoError(t, err)
		assert.Equal(t, many, n)
		ended := make(chan error)
		for _, h := range takeAll() {
			go func() { ended <- h.Finish(t.Context(), nil, nil) }()
		}
		for range many {
			require.NoError(t, <-ended)
		}
		assert.Equal(t, sums{"n": many * fdbjobs.MaxEntries}, b.tallies(t, "i", "finished", "", strings.Repeat("x", 3_900)))
	})
}

// TestCheckOfEntries plants faults in what follows from jobs, and has them repaired.
func TestCheckOfEntries(t *testing.T) {
	space := tuple.SubspaceFromBytes(prefix)
	key := func(tag int, elements ...any) []byte { return space.Sub(tag, "work").Pack(elements...) }
	state := key(14, "state", "o", "1:1", "j")
	for name, c := range map[string]struct {
		plant func(tx kv.Transaction)
		says  string
		stays bool
	}{
		"a missing entry":         {func(tx kv.Transaction) { tx.Clear(state) }, `an entry of the job "j" in the index "state" is missing`, false},
		"another value":           {func(tx kv.Transaction) { tx.Set(state, nil) }, "is missing or has another value", false},
		"an entry of nothing":     {func(tx kv.Transaction) { tx.Set(key(14, "state", "none"), nil) }, `does not follow from the job "none"`, false},
		"an entry of before":      {func(tx kv.Transaction) { tx.Set(key(14, "status", "running", "", "j"), nil) }, `does not follow from the job "j"`, false},
		"a tally that is wrong":   {func(tx kv.Transaction) { tx.Add(key(15, "state", 0, "sum"), 5) }, `a tally of the index "state" is 25, and its entries add 20`, false},
		"a tally that is missing": {func(tx kv.Transaction) { tx.Clear(key(15, "state", 0, "sum")) }, "a tally of entries of the job", false},
		"a tally of nothing":      {func(tx kv.Transaction) { tx.Add(key(15, "state", 1, "p", "jobs"), 1) }, "and no entry adds to it", false},
		"a tally that is 0":       {func(tx kv.Transaction) { tx.Set(key(15, "state", 1, "p", "jobs"), rows.Int(0)) }, "and no entry adds to it", false},
		"a short tally":           {func(tx kv.Transaction) { tx.Set(key(15, "state", 0, "sum"), []byte{1}) }, "and its entries add 20", false},
		"a state with other facts": {func(tx kv.Transaction) { tx.Set(key(1, "j"), []byte(`{"s":18}`)) },
			"the facts of the job are not those of its state", false},
		"a listed part with other facts": {func(tx kv.Transaction) { tx.Set(key(13, "j"), []byte(`{"l":"z"}`)) },
			"the facts of the job are not those of its state", false},
		"an entry of numbers":     {func(tx kv.Transaction) { tx.Set(key(14, "state", 1), nil) }, "unknown key", true},
		"a tally of its length":   {func(tx kv.Transaction) { tx.Set(key(15, "state", 2, "p", "jobs"), rows.Int(1)) }, "unknown key", true},
		"a row of bad facts":      {func(tx kv.Transaction) { tx.Set(key(0, "j"), append(rowOf(), 0xfe)) }, "a job: the value is not one", true},
		"a row of other facts":    {func(tx kv.Transaction) { tx.Set(key(0, "j"), rowOf(1, []byte{}, tuple.Tuple{})) }, "a job: the value is not one", true},
		"a row without a version": {func(tx kv.Transaction) { tx.Set(key(0, "j"), rowOf(0, []byte{}, []byte{})) }, "a job: the value is not one", true},
	} {
		t.Run(name, func(t *testing.T) {
			db := enginetest.Memory(t)
			layer := fdbjobs.Open(db, prefix, derived("work"))
			defer layer.Close()
			b := &bundle{db: db, layer: layer, jobs: layer.Queue("work")}
			b.setVersion(t, 1)
			b.add(t, fdbjobs.Spec{ID: "j", Owner: "o", State: text(`{"s":7}`), Listed: text(`{"l":"a"}`)},
				fdbjobs.Spec{ID: "k", Owner: "o", State: text(`{"s":13}`), Scheduled: time.Now().Add(time.Hour)})
			said, sound := b.faults(t, false)
			require.Empty(t, said)
			b.transact(t, func(tx kv.Transaction) error { c.plant(tx); return nil })
			said, _ = b.faults(t, false)
			assert.Contains(t, strings.Join(said, "\n"), c.says)
			_, _ = b.faults(t, true)
			left, counts := b.faults(t, false)
			if c.stays {
				assert.Contains(t, strings.Join(left, "\n"), c.says)
				return
			}
			assert.Empty(t, left)
			assert.Equal(t, sound.Rows, counts.Rows)
			b.transact(t, func(tx kv.Transaction) error { return followsFromScratch(tx.Snapshot(), b.jobs) })
		})
	}
}

// rowOf is the row of a pending job, with elements at its end.
func rowOf(end ...any) []byte {
	stamp := tuple.Versionstamp{TransactionVersion: [10]byte{7: 1}}
	return append(tuple.Tuple{stamp, "pending", "", 0, "o", 0, nil, "", nil, 0, "", "", true, 1, 0, 0}, end...).Pack()
}

// exclusive is a store that one process at a time can have open.
type exclusive struct{ kv.Database }

func (exclusive) Exclusive() {}

// TestTalliesOfMany: a tally whose entries take more than the time of a page is summed up in several transactions, or counts as
// unsettled in a store that others may use.
func TestTalliesOfMany(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		store := enginetest.Control(db)
		b := newBundleWith(t, store, derived("work"))
		b.setVersion(t, 1)
		const many, atOnce = 2_100, 700
		for n := 0; n < many; n += atOnce {
			specs := make([]fdbjobs.Spec, atOnce)
			for i := range specs {
				specs[i] = fdbjobs.Spec{ID: fmt.Sprint(n + i), Owner: "o", State: text(`{"s":3}`), Ended: true}
			}
			b.transact(t, func(tx kv.Transaction) error { return b.jobs.Add(tx, specs...) })
		}
		b.transact(t, func(tx kv.Transaction) error {
			tx.Add(tuple.SubspaceFromBytes(prefix).Sub(15, "work").Pack("state", 0, "sum"), 1)
			return nil
		})
		check := func(delay time.Duration, db kv.Database) ([]string, int64) {
			store.Delay.Store(int64(delay))
			defer store.Delay.Store(0)
			said, counts := (&bundle{db: db, layer: b.layer}).faults(t, true)
			return said, counts.Unsettled
		}
		said, unsettled := check(450*time.Millisecond, store)
		assert.Empty(t, said)
		assert.EqualValues(t, 7, unsettled)
		wrong := fmt.Sprintf(`a tally of the index "state" is %d, and its entries add %d`, 3*many+1, 3*many)
		said, unsettled = check(450*time.Millisecond, exclusive{store})
		assert.Equal(t, []string{wrong}, said)
		assert.Zero(t, unsettled)
		assert.Equal(t, sums{"sum": 3 * many}, b.tallies(t, "state"))
		said, unsettled = check(0, store)
		assert.Empty(t, said)
		assert.Zero(t, unsettled)
	})
}
