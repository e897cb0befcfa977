package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/rows"
	"settee/pkg/nodes"
	"settee/pkg/tuple"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

var (
	space   = tuple.NewSubspace("nodes")
	errDown = errors.New("the store is unreachable")
)

// process is a process and its way to the store that all share.
type process struct {
	kv.Database
	*nodes.Registry
	down    atomic.Bool // transactions fail
	hang    atomic.Bool // transactions wait for the end of their context
	meeting func()      // is called before a commit, if it is not nil
	running int
}

func (p *process) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	switch {
	case p.down.Load():
		return errDown
	case p.hang.Load():
		<-ctx.Done()
		return ctx.Err()
	}
	return p.Database.Transact(ctx, func(tx kv.Transaction) error {
		err := fn(tx)
		if p.meeting != nil {
			p.meeting()
		}
		return err
	})
}

func (p *process) Unwrap() kv.Database { return p.Database }

func newProcess(db kv.Database, name string) *process {
	p := &process{Database: db}
	p.Registry = nodes.New(nodes.Options{Store: p, Prefix: space.Bytes(), Describe: func() nodes.Node {
		return nodes.Node{Name: name, Roles: []string{"replication"}, Running: p.running}
	}})
	return p
}

// start starts a process that renews its row until the end of the test.
func start(t *testing.T, db kv.Database, name string) *process {
	t.Helper()
	p := newProcess(db, name)
	p.Start()
	t.Cleanup(func() { _ = p.Stop(context.Background()) })
	return p
}

// sees returns the names of the processes that p knows. Those that are not live are in brackets.
func (p *process) sees() []string {
	var names []string
	for _, n := range p.Nodes() {
		if !n.Live {
			n.Name = "(" + n.Name + ")"
		}
		names = append(names, n.Name)
	}
	return names
}

// stored returns the number of rows.
func stored(t *testing.T, db kv.Database) int {
	t.Helper()
	pairs, err := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
		return tx.GetRange(rows.Range(space), kv.RangeOptions{}).Slice()
	})
	require.NoError(t, err)
	return len(pairs)
}

// pass lets time pass, and what is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestNodesOnEachEngine(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		db = enginetest.UnknownOnce(struct{ kv.Database }{db}) // not exclusive
		a, b := newProcess(db, "a"), newProcess(db, "b")
		assert.Equal(t, []string{"a"}, a.sees(), "without a renewal")
		require.NoError(t, a.Renew())
		require.NoError(t, b.Renew())
		assert.Equal(t, []string{"a"}, a.sees())
		assert.Equal(t, []string{"a", "b"}, b.sees())
		a.running = 7
		require.NoError(t, a.Renew())
		assert.Equal(t, []string{"a", "b"}, a.sees())
		require.NoError(t, b.Renew())
		assert.Equal(t, 7, b.Nodes()[0].Running)
		assert.Equal(t, a.Nodes()[0].Instance, b.Nodes()[0].Instance)
		assert.Equal(t, []string{"replication"}, b.Nodes()[0].Roles)
		assert.True(t, a.Nodes()[0].Started.Equal(b.Nodes()[0].Started))
		require.NoError(t, b.Stop(t.Context()))
		require.NoError(t, a.Renew())
		assert.Equal(t, []string{"a"}, a.sees())
		require.NoError(t, a.Stop(t.Context()))
		assert.Zero(t, stored(t, db))
	})
}

func TestComingAndGoing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		a := start(t, db, "a")
		pass(time.Second)
		b := newProcess(db, "b")
		b.Start()
		synctest.Wait()
		assert.Equal(t, []string{"a", "b"}, b.sees())
		pass(nodes.Interval)
		assert.Equal(t, []string{"a", "b"}, a.sees())
		require.NoError(t, b.Stop(t.Context()))
		pass(nodes.Interval)
		assert.Equal(t, []string{"a"}, a.sees())
		pass(time.Hour)
		assert.Equal(t, []string{"a"}, a.sees())
	})
}

// A process that dies is known, and not live, until its row has not changed for ForgottenAfter.
func TestDeath(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		a, b := start(t, db, "a"), start(t, db, "b")
		pass(nodes.Interval)
		require.Equal(t, []string{"a", "b"}, a.sees())
		b.down.Store(true)
		pass(2 * nodes.Interval)
		seen := a.Nodes()[1].LastSeen
		assert.Equal(t, []string{"a", "b"}, a.sees())
		pass(nodes.LiveFor)
		assert.Equal(t, []string{"a", "(b)"}, a.sees())
		assert.Equal(t, []string{"(a)", "b"}, b.sees(), "a process is live for itself")
		assert.Greater(t, time.Since(b.Renewed()), nodes.LiveFor)
		assert.LessOrEqual(t, time.Since(a.Renewed()), nodes.Interval)

		late := start(t, db, "late") // it cannot know
		pass(nodes.Interval)
		assert.Equal(t, []string{"a", "b", "late"}, late.sees())
		pass(nodes.LiveFor)
		assert.Equal(t, []string{"a", "(b)", "late"}, late.sees())

		pass(time.Until(seen.Add(nodes.ForgottenAfter - time.Second)))
		assert.Equal(t, []string{"a", "(b)", "late"}, a.sees())
		assert.Equal(t, seen, a.Nodes()[1].LastSeen)
		pass(2 * nodes.Interval)
		assert.Equal(t, []string{"a", "late"}, a.sees())
		assert.Equal(t, []string{"a", "late"}, late.sees())
		assert.Equal(t, 2, stored(t, db))

		b.down.Store(false) // it was not dead
		pass(2 * nodes.Interval)
		for _, p := range []*process{a, b, late} {
			assert.Equal(t, []string{"a", "b", "late"}, p.sees())
		}
	})
}

// A process that was frozen forgets no others that have gone on.
func TestFrozen(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		a, b := start(t, db, "a"), start(t, db, "b")
		pass(nodes.Interval)
		a.down.Store(true)
		pass(2 * nodes.ForgottenAfter)
		require.Equal(t, []string{"a", "(b)"}, a.sees())
		require.Equal(t, []string{"b"}, b.sees())
		b.meeting = func() { assert.Equal(t, 1, stored(t, db)) } // only its own row, until a writes again
		a.down.Store(false)
		require.NoError(t, a.Renew())
		assert.Equal(t, []string{"a", "b"}, a.sees())
		b.meeting = nil
		assert.Equal(t, 2, stored(t, db))
	})
}

// Two processes of one name are two.
func TestSameName(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		a, b := start(t, db, "a"), start(t, db, "a")
		pass(nodes.Interval)
		assert.Equal(t, []string{"a", "a"}, a.sees())
		require.NotEqual(t, a.Nodes()[0].Instance, a.Nodes()[1].Instance)
		b.down.Store(true)
		pass(nodes.LiveFor + nodes.Interval)
		assert.ElementsMatch(t, []string{"a", "(a)"}, a.sees())
	})
}

// A renewal that comes while its row is removed is not lost.
func TestRemovalMeetsRenewal(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		a, b := newProcess(db, "a"), newProcess(db, "b")
		require.NoError(t, b.Renew())
		require.NoError(t, a.Renew())
		pass(nodes.ForgottenAfter)
		met := 0
		a.meeting = func() {
			if met++; met == 1 {
				assert.NoError(t, b.Renew())
			}
		}
		require.NoError(t, a.Renew())
		assert.Equal(t, 2, met, "the removal conflicts with the renewal")
		assert.Equal(t, []string{"a", "b"}, a.sees())
		assert.Equal(t, 2, stored(t, db))
		for _, p := range []*process{a, b} {
			require.NoError(t, p.Stop(t.Context()))
		}
	})
}

type exclusive struct{ kv.Database }

func (exclusive) Exclusive() {}

// On a store of one process the rows of earlier ones are removed at once.
func TestExclusiveStore(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		require.NoError(t, newProcess(db, "a").Renew()) // and dies
		b := newProcess(exclusive{db}, "a")
		require.NoError(t, b.Renew())
		assert.Equal(t, []string{"a"}, b.sees())
		assert.Equal(t, 1, stored(t, db))
		require.NoError(t, b.Stop(t.Context()))
	})
}

// A store that does not answer delays the end of a process by the time limit of the caller, and otherwise by those of a
// renewal and a removal.
func TestStopWithoutStore(t *testing.T) {
	for most, want := range map[time.Duration]error{time.Minute: nil, 7 * time.Second: context.DeadlineExceeded, 0: context.DeadlineExceeded} {
		testkit.RunBubble(t, fmt.Sprint(most), func(t *testing.T) {
			a := newProcess(enginetest.Memory(t), "a")
			a.hang.Store(true)
			a.Start()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), most)
			defer cancel()
			began := time.Now()
			require.ErrorIs(t, a.Stop(ctx), want)
			assert.Equal(t, min(most, 2*nodes.Interval), time.Since(began))
		})
	}
}

// Other layers' keys, and rows of a form that is not known, change nothing.
func TestMalformedRows(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
			tx.Set(space.Pack("b"), []byte(`{}`))
			tx.Set(space.Pack("b", int64(1)), []byte(`{}`))
			tx.Set(space.Pack("b", "1"), []byte(`{`))
			tx.Set(append(space.Pack("b", "2"), 0xfe), []byte(`{}`))
			tx.Set(space.Pack("c", "3"), []byte(`{"name":"other","instance":"other","later":"more"}`))
			return nil
		}))
		a := start(t, db, "a")
		synctest.Wait()
		require.Equal(t, []string{"a", "c"}, a.sees())
		assert.Equal(t, "3", a.Nodes()[1].Instance)
	})
}

// A row says by how much its process's clock is ahead or behind at least. What may be the time that the row took is no
// difference.
func TestClocks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		a := start(t, db, "a")
		renewals := 0
		// ahead writes a row with a clock a second after a renewal of a, and returns what the next renewal says, in seconds.
		ahead := func(clock string) float64 {
			t.Helper()
			pass(time.Second)
			renewals++
			require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
				tx.Set(space.Pack("b", "1"), fmt.Appendf(nil, `{"renewals":%d%s}`, renewals, clock))
				return nil
			}))
			pass(nodes.Interval - time.Second)
			require.Equal(t, []string{"a", "b"}, a.sees())
			assert.Zero(t, a.Nodes()[0].Ahead)
			return a.Nodes()[1].Ahead.Seconds()
		}
		by := func(d time.Duration) string {
			return `,"clock":"` + time.Now().Add(time.Second+d).UTC().Format(time.RFC3339Nano) + `"`
		}
		synctest.Wait()
		assert.Zero(t, ahead(by(-time.Hour)), "the row may be an old one")
		assert.Zero(t, ahead(by(0)))
		assert.InDelta(t, 3600-4, ahead(by(time.Hour)), .5)
		assert.InDelta(t, 20-4, ahead(by(20*time.Second)), .5)
		assert.Zero(t, ahead(by(3*time.Second)))
		assert.Zero(t, ahead(by(-6*time.Second)))
		assert.InDelta(t, -20+1+5, ahead(by(-20*time.Second)), .5)
	})
}

// With faults of all kinds, all processes know each other within the time of some renewals after the faults end, and
// nothing is left when they have stopped.
func TestFaults(t *testing.T) {
	for seed := range uint64(10) {
		testkit.RunBubble(t, fmt.Sprint(seed), func(t *testing.T) {
			memory := enginetest.Memory(t)
			var all []*process
			for i := range 4 {
				wrapped := faultkv.Wrap(memory, faultkv.Options{Seed: seed*10 + uint64(i), Rates: faultkv.Rates{
					faultkv.Conflict: 0.2, faultkv.UnknownCommitted: 0.2, faultkv.UnknownNotCommitted: 0.2, faultkv.TooOld: 0.1,
				}})
				p := newProcess(wrapped, fmt.Sprint(i))
				p.Start()
				all = append(all, p)
			}
			for i := range 30 {
				all[i%4].down.Store(i%3 == 0)
				pass(time.Minute)
			}
			for _, p := range all {
				p.down.Store(false)
			}
			pass(10 * nodes.Interval)
			for _, p := range all {
				assert.Equal(t, []string{"0", "1", "2", "3"}, p.sees())
			}
			for _, p := range all {
				require.NoError(t, p.Stop(t.Context()))
			}
			assert.Zero(t, stored(t, memory))
		})
	}
}
