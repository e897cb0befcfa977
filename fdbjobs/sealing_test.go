package fdbjobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/sealed"
	"settee/pkg/sealed/sealedtest"
	"settee/pkg/tuple"
)

// sealedBundle is a process with keys.
func sealedBundle(t *testing.T, db kv.Database, keys *sealed.Keys) *bundle {
	b := &bundle{db: db, layer: fdbjobs.Open(db, prefix, fdbjobs.Options{Sealer: keys})}
	b.jobs = b.layer.Queue("work")
	t.Cleanup(func() {
		b.layer.Close()
		b.check(t)
	})
	return b
}

func reseal(t *testing.T, b *bundle, keyID string) map[string]int64 {
	t.Helper()
	counts, err := b.jobs.Reseal(t.Context(), keyID)
	require.NoError(t, err)
	return counts
}

const secretArgs = `{"password":"relax-and-enjoy"}`

func TestSealedArgs(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := sealedBundle(t, db, sealedtest.Keys(t, "a"))
		large := `{"password":"relax-and-enjoy","x":"` + strings.Repeat("x", 300_000) + `"}`
		start, end := `{"password":"relax-and-enjoy","x":"`, `"}`
		largest := start + strings.Repeat("y", fdbjobs.MaxArgsSize-len(start)-len(end)) + end
		args := map[string]string{"empty": "{}", "small": secretArgs, "large": large, "largest": largest}
		for id, text := range args {
			b.add(t, fdbjobs.Spec{ID: id, Owner: "owner", Args: json.RawMessage(text), Listed: json.RawMessage(`{"l":1}`)})
		}
		b.add(t, fdbjobs.Spec{ID: "none", Owner: "owner"})
		require.Zero(t, kvtest.Holding(t, db, prefix, `"password":"relax`))
		for id, text := range args {
			require.True(t, text == string(b.get(t, id).Args), id)
		}
		require.Equal(t, "{}", string(b.get(t, "none").Args))
		require.Equal(t, map[string]int64{"a": 4}, reseal(t, b, ""))

		taken := b.acceptBy(t, fdbjobs.AcceptOptions{Count: 10, Wait: -1})
		require.NotEmpty(t, taken)
		for _, held := range taken {
			if text, has := args[held.Job().ID]; has {
				require.True(t, text == string(held.Job().Args))
			}
			require.NoError(t, held.Finish(t.Context(), nil, nil))
		}
		for id := range args {
			b.remove(t, id)
		}
		require.Empty(t, reseal(t, b, ""))
	})
}

// A process without the key finds, takes and lists the jobs, and gets the reason why they have no args.
func TestArgsWithoutTheKey(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		sealedBundle(t, db, sealedtest.Keys(t, "a")).add(t, fdbjobs.Spec{ID: "j", Owner: "owner", Args: json.RawMessage(secretArgs)})
		for _, keys := range []*sealed.Keys{nil, sealedtest.Keys(t, "b")} {
			other := sealedBundle(t, db, keys)
			job := other.get(t, "j")
			require.Nil(t, job.Args)
			require.ErrorIs(t, job.ArgsErr, fdbjobs.ErrSealed)
			require.ErrorContains(t, job.ArgsErr, `sealed with the key "a"`)
			held := other.acceptBy(t, doesNotWait)
			require.ErrorIs(t, held[0].Job().ArgsErr, fdbjobs.ErrSealed)
			require.NoError(t, held[0].Resubmit(t.Context(), held[0].Job().Scheduled, nil, nil))
			require.Equal(t, map[string]int64{"a": 1}, reseal(t, other, ""))
			require.Equal(t, map[string]int64{"a": 1}, reseal(t, other, "b"), "what cannot be opened stays")
		}
	})
}

// Sealed args cannot be moved to another job.
func TestMovedArgs(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := sealedBundle(t, db, sealedtest.Keys(t, "a"))
		b.add(t, fdbjobs.Spec{ID: "j", Args: json.RawMessage(secretArgs)}, fdbjobs.Spec{ID: "k", Args: json.RawMessage(`{}`)})
		b.transact(t, func(tx kv.Transaction) error {
			args := tuple.SubspaceFromBytes(prefix).Sub(2, "work")
			value, err := tx.Get(args.Pack("j", 0)).Await()
			tx.Set(args.Pack("k", 0), value)
			return err
		})
		require.ErrorIs(t, b.get(t, "k").ArgsErr, sealed.ErrNotAuthentic)
		require.NoError(t, b.get(t, "j").ArgsErr)
		said, _ := b.faults(t, false)
		require.Equal(t, []string{"the job's args cannot be decrypted"}, said)
		b.add(t, fdbjobs.Spec{ID: "k"})
	})
}

// Plain args are sealed, and args with an earlier key are sealed again, whatever the status of their jobs.
func TestReseal(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		many := 2*fdbjobs.ResealAtOnce + 3
		specs := func(from int) (list []fdbjobs.Spec) {
			for i := range many {
				list = append(list, fdbjobs.Spec{ID: fmt.Sprintf("%04d", from+i), Owner: "o", Args: json.RawMessage(secretArgs)})
			}
			return list
		}
		plain := sealedBundle(t, db, nil)
		plain.add(t, specs(0)...)
		old := sealedBundle(t, db, sealedtest.Keys(t, "a"))
		old.add(t, specs(5000)...)
		// Args that are one chunk sealed with one key, and two chunks with another.
		edge := `{"x":"` + strings.Repeat("x", fdbjobs.ArgsChunk-30-8-1) + `"}`
		old.add(t, fdbjobs.Spec{ID: "edge", Args: json.RawMessage(edge)})
		big := `{"x":"` + strings.Repeat("x", 700_000) + `"}`
		old.add(t, fdbjobs.Spec{ID: "t1", Args: json.RawMessage(big)}, fdbjobs.Spec{ID: "t2", Args: json.RawMessage(big)})
		held := old.acceptBy(t, fdbjobs.AcceptOptions{Count: 5, Wait: -1})
		require.NotZero(t, kvtest.Holding(t, db, prefix, `"password":"relax`))

		now := sealedBundle(t, db, sealedtest.Keys(t, "bbbb", "a"))
		before := map[string]int64{"": int64(many), "a": int64(many) + 3}
		require.Equal(t, before, reseal(t, now, ""))
		require.Equal(t, before, reseal(t, now, "bbbb"))
		after := map[string]int64{"bbbb": 2*int64(many) + 3}
		require.Equal(t, after, reseal(t, now, "bbbb"))
		require.Zero(t, kvtest.Holding(t, db, prefix, `"password":"relax`))
		require.Equal(t, edge, string(now.get(t, "edge").Args))
		require.Equal(t, big, string(now.get(t, "t2").Args))
		require.Equal(t, secretArgs, string(now.get(t, "0001").Args))
		for _, h := range held {
			require.NoError(t, h.Update(t.Context(), nil, nil))
			require.NoError(t, h.Finish(t.Context(), nil, nil))
		}
		require.Equal(t, after, reseal(t, sealedBundle(t, db, sealedtest.Keys(t, "bbbb")), ""))
		now.remove(t, "edge")
	})
}

// Changes of jobs during a Reseal are kept.
func TestResealAndAdd(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		sealedBundle(t, db, nil).add(t, fdbjobs.Spec{ID: "j", Args: json.RawMessage(secretArgs)}, fdbjobs.Spec{ID: "k", Args: json.RawMessage(secretArgs)})
		keys := sealedtest.Keys(t, "a")
		b := sealedBundle(t, db, keys)
		// The first transaction of Reseal is repeated: what it read has changed.
		changed := false
		hindered := faultkv.Wrap(db, faultkv.Options{Script: func(call faultkv.Call) faultkv.Fault {
			if !changed && call.Op == faultkv.Commit {
				changed = true
				b.add(t, fdbjobs.Spec{ID: "j", Args: json.RawMessage(`{"new":1}`)})
				b.remove(t, "k")
			}
			return faultkv.None
		}})
		counts, err := sealedBundle(t, hindered, keys).jobs.Reseal(context.Background(), "a")
		require.NoError(t, err)
		require.True(t, changed)
		require.Equal(t, map[string]int64{"a": 1}, counts)
		require.JSONEq(t, `{"new":1}`, string(b.get(t, "j").Args))
		_, err = b.read(t, "k")
		require.ErrorIs(t, err, fdbjobs.ErrNotFound)
		require.Zero(t, kvtest.Holding(t, db, prefix, `"password":"relax`))
	})
}
