package fdbjobs_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/enginetest"
	"settee/pkg/tuple"
)

// faulty returns what a check of the layer says, and makes repairs.
func (b *bundle) faults(t *testing.T, repair bool) (said []string, counts check.Counts) {
	t.Helper()
	c := check.Checker{DB: b.db, Repair: repair, Report: func(f check.Fault) error {
		said = append(said, f.What)
		assert.Equal(t, repair && f.Repairable, f.Repaired)
		return nil
	}}
	require.NoError(t, b.layer.Check(t.Context(), &c))
	return said, c.Counts
}

// TestCheckNamesFaults plants faults of each kind. The check names them, and repairs what follows from other rows: the
// store is then what it was.
func TestCheckNamesFaults(t *testing.T) {
	space := tuple.SubspaceFromBytes(prefix)
	key := func(tag int, elements ...any) []byte { return space.Sub(tag, "work").Pack(elements...) }
	stamp := tuple.Versionstamp{TransactionVersion: [10]byte{7: 1}}
	const primary, derived = false, true
	for name, c := range map[string]struct {
		plant    func(tx kv.Transaction, found map[int64][]byte)
		says     string
		repaired bool
	}{
		"a missing index row":      {func(tx kv.Transaction, _ map[int64][]byte) { tx.Clear(key(14, "_jobs", 0, "o", "", "", "ready")) }, "is missing or has another value", derived},
		"an extra index row":       {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(key(14, "_jobs", 0, "o", "", "", "none"), nil) }, `does not follow from the job "none"`, derived},
		"an index row of no tuple": {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(append(key(14, "_jobs", 0, "o"), 0xfe), nil) }, "unknown key", primary},
		"a wrong counter":          {func(tx kv.Transaction, _ map[int64][]byte) { tx.Add(key(15, "_jobs", 4, 0, "o", "", "", "pending"), 5) }, `is 7, and its entries add 2`, derived},
		"a missing counter":        {func(tx kv.Transaction, _ map[int64][]byte) { tx.Clear(key(15, "_jobs", 4, 0, "o", "", "", "pending")) }, "a tally of entries", derived},
		"a counter of nothing":     {func(tx kv.Transaction, _ map[int64][]byte) { tx.Add(key(15, "_jobs", 4, 0, "p", "", "", "pending"), 1) }, "no entry adds to it", derived},
		"a short counter": {func(tx kv.Transaction, _ map[int64][]byte) {
			tx.Set(key(15, "_jobs", 4, 0, "o", "", "", "pending"), []byte{1})
		}, "its entries add 2", derived},
		"a job that is not ready":     {func(tx kv.Transaction, found map[int64][]byte) { tx.Clear(found[4]) }, "missing in the index by which it is found", derived},
		"a job that is not delayed":   {func(tx kv.Transaction, found map[int64][]byte) { tx.Clear(found[3]) }, "missing in the index by which it is found", derived},
		"a job that is not active":    {func(tx kv.Transaction, found map[int64][]byte) { tx.Clear(found[12]) }, "missing in the index by which it is found", derived},
		"a job that never expires":    {func(tx kv.Transaction, found map[int64][]byte) { tx.Clear(found[14]) }, "is missing or has another value", derived},
		"a timeout of nothing":        {func(tx kv.Transaction, found map[int64][]byte) { tx.Set(found[12], nil) }, "when the hold of a running job was renewed", derived},
		"a delayed job of another":    {func(tx kv.Transaction, found map[int64][]byte) { tx.Set(found[3], []byte("p")) }, "another owner than its own", derived},
		"a dangling ready row":        {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(key(4, "o", stamp, "none"), nil) }, "the job is not there", derived},
		"a dangling expiry":           {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(key(14, "_expiry", 1, "ready"), nil) }, "does not follow from the job", derived},
		"an owner that does not wait": {func(tx kv.Transaction, _ map[int64][]byte) { tx.Clear(key(5, "o")) }, "is not in fair share", derived},
		"an owner without usage": {func(tx kv.Transaction, _ map[int64][]byte) {
			tx.Clear(key(6, "o"))
		}, "is not in fair share", derived},
		"an owner without a rank": {func(tx kv.Transaction, found map[int64][]byte) { tx.Clear(found[7]) }, "has no rank", derived},
		"a rank of nobody":        {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(key(7, 1, 2.5, "p"), nil) }, "that is not its own", derived},
		"a rank of a paused owner": {func(tx kv.Transaction, _ map[int64][]byte) {
			tx.Set(key(9, "r"), tuple.Tuple{0.0}.Pack())
		}, `a rank of the owner "r" that is not its own`, derived},
		"charges of nobody":      {func(tx kv.Transaction, _ map[int64][]byte) { tx.Add(key(8, "p"), 2) }, "charges of an owner that is not in fair share", derived},
		"a row that is no tuple": {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(key(0, "ready"), []byte{0xfe}) }, "a job: the value is not one", primary},
		"a job of no status": {func(tx kv.Transaction, _ map[int64][]byte) {
			tx.Set(key(0, "ready"), tuple.Tuple{nil, "lost", "", 0, "o", 0, nil, "", nil, 0, "", "", false, 0, 0, 0}.Pack())
		}, "a job: the value is not one", primary},
		"a missing state":       {func(tx kv.Transaction, _ map[int64][]byte) { tx.Clear(key(1, "ready")) }, "the job has no state", primary},
		"broken JSON":           {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(key(1, "ready"), []byte(`{"a":`)) }, "a state is not a JSON object", primary},
		"a dangling state":      {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(key(1, "none"), []byte(`{}`)) }, "a state of a job that does not have it", primary},
		"a missing chunk":       {func(tx kv.Transaction, _ map[int64][]byte) { tx.Clear(key(2, "ready", 1)) }, "a chunk of the job's args is missing", primary},
		"a truncated chunk":     {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(key(2, "ready", 0), []byte(`{`)) }, "a chunk of the job's args is missing or truncated", primary},
		"broken args":           {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(key(2, "delayed", 0), []byte(`[]`)) }, "args are not a JSON object", primary},
		"a chunk too many":      {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(key(2, "ready", 2), nil) }, "a chunk of args of a job that does not have it", primary},
		"a missing listed part": {func(tx kv.Transaction, _ map[int64][]byte) { tx.Clear(key(13, "ready")) }, "the job has no listed part", primary},
		"a weight of no tuple":  {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(key(9, "o"), []byte{0xfe}) }, "an owner's weight: the value", primary},
		"a roll-up of no tuple": {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(key(10, "rollup"), []byte{0xfe}) }, "the last roll-up: the value", primary},
		"a claimer of no tuple": {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(key(11, "c"), []byte{0xfe}) }, "last took jobs: the value", primary},
		"a lease of no tuple":   {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(key(10, "monitor"), []byte{0xfe}) }, "which monitor looks: the value", primary},
		"a key of no layer":     {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(space.Pack(99, "work"), nil) }, "unknown key", primary},
		"a key that is no tuple": {func(tx kv.Transaction, _ map[int64][]byte) {
			tx.Set(append(prefix[:len(prefix):len(prefix)], 0xfe), nil)
		}, "unknown key", primary},
		"an index of wrong types": {func(tx kv.Transaction, _ map[int64][]byte) { tx.Set(key(14, "_jobs", 0, "o", "", "", 1), nil) }, "unknown key", primary},
	} {
		t.Run(name, func(t *testing.T) {
			db := enginetest.Memory(t)
			b := &bundle{db: db, layer: fdbjobs.Open(db, prefix, fdbjobs.Options{})}
			b.jobs = b.layer.Queue("work")
			defer func() { b.layer.Close() }()
			args, err := json.Marshal(map[string]string{"text": strings.Repeat("x", fdbjobs.ArgsChunk)})
			require.NoError(t, err)
			b.add(t, fdbjobs.Spec{ID: "active", Owner: "r"}, fdbjobs.Spec{ID: "expires", Owner: "r"})
			held := b.take(t, 2)
			if held[0].Job().ID == "expires" {
				held[0], held[1] = held[1], held[0]
			}
			held[1].Expires = time.Now().Add(time.Hour)
			require.NoError(t, held[1].Finish(context.Background(), nil, nil))
			b.layer.Close() // which waits for what it writes after a claim
			b.layer = fdbjobs.Open(db, prefix, fdbjobs.Options{})
			b.jobs = b.layer.Queue("work")
			b.add(t,
				fdbjobs.Spec{ID: "ready", Owner: "o", Args: args, Listed: text(`{}`)},
				fdbjobs.Spec{ID: "delayed", Owner: "o", Args: text(`{"n":1}`), Scheduled: time.Now().Add(time.Hour)},
			)
			said, sound := b.faults(t, false)
			require.Empty(t, said)
			require.Positive(t, sound.Rows)

			found := map[int64][]byte{}
			b.transact(t, func(tx kv.Transaction) error {
				pairs, err := tx.GetRange(kv.PrefixRange(prefix), kv.RangeOptions{}).Slice()
				for _, pair := range pairs {
					elements, _ := space.Unpack(pair.Key)
					if tag := elements[0].(int64); tag != 7 && tag != 14 || elements[len(elements)-1] == "o" || elements[2] == "_expiry" {
						found[tag] = pair.Key
					}
				}
				return err
			})
			b.transact(t, func(tx kv.Transaction) error {
				c.plant(tx, found)
				return nil
			})
			said, counts := b.faults(t, false)
			assert.Contains(t, strings.Join(said, "\n"), c.says)
			assert.Zero(t, counts.Repaired)
			again, _ := b.faults(t, true)
			assert.Contains(t, strings.Join(again, "\n"), c.says, "a check without a repair changes nothing")
			left, counts := b.faults(t, false)
			if c.repaired {
				assert.Empty(t, left)
				assert.Equal(t, sound.Rows, counts.Rows)
				return
			}
			assert.Contains(t, strings.Join(left, "\n"), c.says, "it is not derived from other rows")
			assert.GreaterOrEqual(t, counts.Rows, sound.Rows-1, "primary rows stay")
		})
	}
}
