package nodes_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/levels"
	"settee/pkg/nodes"
)

// release is a process of a release, which knows a level of the store and the one before.
type release struct {
	*process
	*nodes.Upgrade
	level int64
}

func newRelease(t *testing.T, db kv.Database, name string, level int64) *release {
	t.Helper()
	guard, err := levels.Open(t.Context(), db, levels.Options{Key: []byte("level"), Own: level, Release: name})
	require.NoError(t, err)
	r := &release{process: &process{Database: guard}, level: level}
	r.Registry = nodes.New(nodes.Options{Store: r.process, Prefix: space.Bytes(), Describe: func() nodes.Node {
		return nodes.Node{Name: name, Version: "of " + name, Level: level}
	}})
	r.Upgrade = nodes.NewUpgrade(guard, r.Registry)
	return r
}

// The level is raised when all live processes know it, and not before. It costs a process that has died its time to be
// taken for dead.
func TestUpgrade(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.UnknownOnce(struct{ kv.Database }{enginetest.Memory(t)})
		old, next := newRelease(t, db, "old", 1), newRelease(t, db, "next", 2)
		require.NoError(t, next.Renew())
		require.NoError(t, old.Renew())
		_, err := next.Raise(t.Context())
		var behind *nodes.BehindError
		require.ErrorAs(t, err, &behind, "the row of a process that was never seen counts")
		require.EqualError(t, err, "the store cannot have level 2 yet, because live nodes do not know it: old (of old)")
		require.NoError(t, next.Renew())
		s := next.Status()
		assert.EqualValues(t, 1, s.Level)
		assert.EqualValues(t, 2, s.Next)
		require.Len(t, s.Behind, 1)
		assert.EqualValues(t, 1, s.Behind[0].Level)
		assert.Equal(t, nodes.LevelStatus{Level: 1}, old.Status(), "it can raise the store to nothing")

		pass(nodes.LiveFor)
		next.Raising = func(kv.Transaction) error { return assert.AnError }
		_, err = next.Raise(t.Context())
		require.ErrorIs(t, err, assert.AnError)
		assert.EqualValues(t, 1, next.Status().Level)
		next.Raising = func(tx kv.Transaction) error {
			tx.Set([]byte("raised"), []byte("at once"))
			return nil
		}
		raised, err := next.Raise(t.Context())
		require.NoError(t, err)
		assert.True(t, raised)
		assert.Equal(t, nodes.LevelStatus{Level: 2}, next.Status())
		value, err := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) ([]byte, error) { return tx.Get([]byte("raised")).Await() })
		require.NoError(t, err)
		assert.Equal(t, "at once", string(value))
		var unknown *levels.UnknownLevelError
		require.ErrorAs(t, old.Renew(), &unknown, "it was frozen")
		raised, err = next.Raise(t.Context())
		require.NoError(t, err)
		assert.False(t, raised)
	})
}

// A process that joins while the level is raised is either seen, or does not join.
func TestJoinDuringRaise(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		db = struct{ kv.Database }{db}
		m := &meeting{Database: db}
		old, next := newRelease(t, db, "old", 1), newRelease(t, m, "next", 2)
		require.NoError(t, next.Renew())
		runs := 0
		m.meet = func() {
			if runs++; runs == 1 {
				require.NoError(t, old.Renew())
			}
		}
		_, err := next.Raise(t.Context())
		var behind *nodes.BehindError
		require.ErrorAs(t, err, &behind)
		assert.Equal(t, 2, runs, "the first run has read the rows before the process joined")
		m.meet = nil

		require.NoError(t, old.Stop(context.Background()))
		late := newRelease(t, db, "late", 1)
		joins := 0
		late.meeting = func() {
			if joins++; joins == 1 {
				raised, err := next.Raise(t.Context())
				require.NoError(t, err)
				require.True(t, raised)
			}
		}
		var unknown *levels.UnknownLevelError
		require.ErrorAs(t, late.Renew(), &unknown)
		assert.Equal(t, 1, joins)
	})
}

// meeting calls a function, if it is not nil, at the end of each transaction, before its commit.
type meeting struct {
	kv.Database
	meet func()
}

func (m *meeting) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	return m.Database.Transact(ctx, func(tx kv.Transaction) error {
		err := fn(tx)
		if m.meet != nil {
			m.meet()
		}
		return err
	})
}

// A process raises the level by itself when all have known the next one for long enough.
func TestUpgradeInTime(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := struct{ kv.Database }{enginetest.Memory(t)}
		old, next := newRelease(t, db, "old", 1), newRelease(t, db, "next", 2)
		old.Start()
		next.Start()
		defer func() { assert.NoError(t, next.Stop(context.Background())) }()
		var after atomic.Int64 // nanoseconds
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan struct{})
		var told []error
		go func() {
			defer close(ended)
			next.Run(ctx, func() time.Duration { return time.Duration(after.Load()) }, func(level int64, err error) {
				assert.EqualValues(t, 2, level)
				told = append(told, err)
			})
		}()
		pass(time.Hour)
		require.NoError(t, old.Stop(context.Background()))
		pass(time.Hour)
		assert.EqualValues(t, 1, next.Status().Level, "0 is never")
		after.Store(int64(2 * time.Hour))
		next.down.Store(true)
		pass(time.Hour)
		assert.EqualValues(t, 1, next.Status().Level, "not yet")
		next.down.Store(false)
		pass(3 * nodes.Interval)
		<-ended
		assert.EqualValues(t, 2, next.Status().Level)
		require.NotEmpty(t, told)
		assert.NoError(t, errors.Join(told[len(told)-1]))
	})
}
