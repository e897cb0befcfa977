package fdbjobs_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// TestCorrupt: a row that no version of the package has written is an error, not a job.
func TestCorrupt(t *testing.T) {
	space := tuple.SubspaceFromBytes(prefix)
	key := func(tag int, elements ...any) []byte { return space.Sub(tag, "work").Pack(elements...) }
	calls := map[string]func(b *bundle, tx kv.Transaction) error{
		"get":    func(b *bundle, tx kv.Transaction) error { _, err := b.jobs.Get(tx, "j"); return err },
		"add":    func(b *bundle, tx kv.Transaction) error { return b.jobs.Add(tx, fdbjobs.Spec{ID: "j"}) },
		"remove": func(b *bundle, tx kv.Transaction) error { _, err := b.jobs.Remove(tx, "j"); return err },
		"list": func(b *bundle, tx kv.Transaction) error {
			_, err := b.jobs.List(tx, fdbjobs.Selection{Parts: fdbjobs.Parts(fdbjobs.Pending)}, fdbjobs.Position{}, 1)
			return err
		},
		"list owned": func(b *bundle, tx kv.Transaction) error {
			_, err := b.jobs.List(tx, fdbjobs.Selection{Owner: new("o"), Parts: fdbjobs.Parts(fdbjobs.Pending)}, fdbjobs.Position{}, 1)
			return err
		},
		"skip": func(b *bundle, tx kv.Transaction) error {
			_, err := b.jobs.Skip(tx, fdbjobs.Selection{Owner: new("o"), Parts: fdbjobs.Parts(fdbjobs.Pending)}, fdbjobs.Position{}, 1)
			return err
		},
		"count": func(b *bundle, tx kv.Transaction) error {
			_, err := b.jobs.Count(tx, fdbjobs.Selection{Parts: fdbjobs.Parts(fdbjobs.Pending)})
			return err
		},
		"owners": func(b *bundle, tx kv.Transaction) error { _, err := b.jobs.Owners(tx, "", 1); return err },
		"rollup": func(b *bundle, _ kv.Transaction) error {
			_, err := b.jobs.RollUp(context.Background(), time.Minute, 0.5, 0)
			return err
		},
		"expired": func(b *bundle, _ kv.Transaction) error {
			_, _, err := removeExpired(context.Background(), b.db, b.jobs)
			return err
		},
		"accept": func(b *bundle, _ kv.Transaction) error {
			_, err := b.jobs.Accept(context.Background(), fdbjobs.AcceptOptions{Wait: -1})
			return err
		},
		"wait": func(b *bundle, _ kv.Transaction) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_, err := b.jobs.Wait(ctx, "j", nil)
			return err
		},
		"monitor": func(b *bundle, _ kv.Transaction) (failed error) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			_ = b.jobs.RunMonitor(ctx, func(_ []string, _ time.Duration, err error) {
				if failed = cmp.Or(failed, err); failed != nil {
					cancel()
				}
			})
			return failed
		},
	}
	soon := func() int64 { return time.Now().Unix() + 60 }
	for name, c := range map[string]struct {
		key, value []byte
		calls      []string
	}{
		"a row that is no tuple":      {key(0, "j"), []byte{0xfe}, []string{"get", "add", "remove", "wait"}},
		"a row of too few elements":   {key(0, "j"), tuple.Tuple{"pending"}.Pack(), []string{"get"}},
		"a row of wrong elements":     {key(0, "j"), tuple.Tuple{nil, 1, 2, 3, 4, 5, nil, 6, nil, 0, "", "", false}.Pack(), []string{"get"}},
		"a row of wrong counts":       {key(0, "j"), tuple.Tuple{nil, "pending", "", 0, "", 0, nil, "", nil, 0, "", "", false, 1, 0, "x"}.Pack(), []string{"get"}},
		"a row of a wrong sequence":   {key(0, "j"), tuple.Tuple{1, "pending", "", 0, "", 0, nil, "", nil, 0, "", "", false}.Pack(), []string{"get"}},
		"a row of a wrong resubmit":   {key(0, "j"), tuple.Tuple{nil, "pending", "", 0, "", 0, "x", "", nil, 0, "", "", false}.Pack(), []string{"get"}},
		"a row of a wrong expiry":     {key(0, "j"), tuple.Tuple{nil, "pending", "", 0, "", 0, nil, "", "x", 0, "", "", false}.Pack(), []string{"get"}},
		"an index of no tuple":        {append(key(14, "_jobs", 0, "o", "", ""), 0xfe), nil, []string{"list owned", "skip"}},
		"an index of numbers":         {key(14, "_jobs", 0, "o", "", "", 1), nil, []string{"list owned", "skip"}},
		"an index without jobs":       {key(14, "_jobs", 0, "o", "", "", "j"), nil, []string{"list owned"}},
		"a short counter":             {key(15, "_jobs", 4, 0, "o", "", "", "pending"), []byte{1}, []string{"count", "list"}},
		"a counter without a tag":     {key(15, "_jobs", 4, 0, "o", "", "pending"), make([]byte, 8), []string{"count", "list"}},
		"a hold that is no tuple":     {key(12, "o", "", "j"), []byte{0xfe}, []string{"monitor"}},
		"a negative timeout":          {key(12, "o", "", "j"), tuple.Tuple{tuple.Versionstamp{}, -1.0}.Pack(), []string{"monitor"}},
		"a rank of no owner":          {key(7, 1, 0.0), nil, []string{"accept"}},
		"a rank that is a string":     {key(7, 1, "x", "o"), nil, []string{"accept", "add"}},
		"an owner's row of strings":   {key(6, ""), tuple.Tuple{"x", 0.0, 0}.Pack(), []string{"add", "owners", "rollup"}},
		"an owner that is a number":   {key(6, 1), tuple.Tuple{0.0, 0.0, 0}.Pack(), []string{"owners", "rollup"}},
		"a weight that is no tuple":   {key(9, ""), []byte{0xfe}, []string{"add"}},
		"a weight below zero":         {key(9, ""), tuple.Tuple{-1.0}.Pack(), []string{"add"}},
		"a roll-up of two elements":   {key(10, "rollup"), tuple.Tuple{1, 2}.Pack(), []string{"add", "owners", "rollup"}},
		"a claimer of no time":        {key(11, "c"), tuple.Tuple{"x"}.Pack(), []string{"monitor"}},
		"an expiry without an id":     {key(14, "_expiry", 1), nil, []string{"expired"}},
		"a due row without an id":     {key(3, 1), []byte("o"), []string{"accept"}},
		"a delayed row without an id": {key(3, soon()), []byte("o"), []string{"accept"}},
		"an active row without an id": {key(12, 1, tuple.Versionstamp{TransactionVersion: [10]byte{7: 1}}), nil, []string{"monitor"}},
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
				for _, call := range c.calls {
					b := &bundle{db: db, layer: fdbjobs.Open(db, prefix, fdbjobs.Options{})}
					b.jobs = b.layer.Queue("work")
					if call == "wait" {
						require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
							tx.ClearRange(kv.PrefixRange(prefix))
							return b.jobs.Add(tx, fdbjobs.Spec{ID: "j"})
						}))
					}
					require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
						tx.Set(key(15, "_jobs", 4, 0, "o", "", "", "pending"), rows.Int(1)) // lists read the index where jobs are counted
						tx.Set(c.key, c.value)
						return nil
					}))
					err := db.Transact(t.Context(), func(tx kv.Transaction) error { return calls[call](b, tx) })
					require.Error(t, err, call)
					b.layer.Close()
				}
			})
		})
	}
}
