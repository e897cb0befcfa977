package nodes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/nodes"
	"settee/pkg/serverbudget"
)

const budgeted = "db.example:443"

// asking is a process that has jobs, which ask a server with a budget.
type asking struct {
	*process
	budgets *serverbudget.Node
	jobs    sync.WaitGroup
	end     context.CancelFunc
}

// arrivals are the times at which requests arrive at the server.
type arrivals struct {
	mu    sync.Mutex
	times []time.Time
}

func startAsking(t *testing.T, db kv.Database, name string, limit serverbudget.Limit, jobs int, at *arrivals) *asking {
	t.Helper()
	a := &asking{process: &process{Database: db}, budgets: serverbudget.New()}
	a.budgets.Set(map[string]serverbudget.Limit{"db.example": limit})
	a.Registry = nodes.New(nodes.Options{
		Store: a.process, Prefix: space.Bytes(), Describe: func() nodes.Node { return nodes.Node{Name: name} }, Budgets: a.budgets,
	})
	a.Start()
	var ctx context.Context
	ctx, a.end = context.WithCancel(t.Context())
	for i := range jobs {
		a.jobs.Go(func() {
			ctx := serverbudget.WithFlow(ctx, &serverbudget.Flow{Job: fmt.Sprint(i)})
			for {
				x, err := a.budgets.Begin(ctx, budgeted, false)
				if err != nil {
					return
				}
				at.mu.Lock()
				at.times = append(at.times, time.Now())
				at.mu.Unlock()
				time.Sleep(rand.N(50 * time.Millisecond))
				x.Done()
			}
		})
	}
	return a
}

// leave ends the process, which takes back its row.
func (a *asking) leave(t *testing.T) {
	t.Helper()
	a.end()
	a.jobs.Wait()
	require.NoError(t, a.Stop(t.Context()))
}

// die ends the process, whose row stays.
func (a *asking) die(t *testing.T) {
	t.Helper()
	a.down.Store(true)
	a.leave(t)
}

func (a *arrivals) between(from, to time.Time) (count int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range a.times {
		if !at.Before(from) && at.Before(to) {
			count++
		}
	}
	return count
}

// TestBudgetOfAll lets processes come, leave, die and lose the store. All of them together never ask for more than the budget,
// and they use it when they have settled.
func TestBudgetOfAll(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const rate = 100
		db := enginetest.UnknownOnce(struct{ kv.Database }{enginetest.Memory(t)}) // not exclusive
		limit := serverbudget.Limit{Requests: rate}
		var at arrivals
		uses := func(what string) {
			t.Helper()
			pass(3 * nodes.Interval)
			began := time.Now()
			pass(10 * time.Second)
			assert.GreaterOrEqual(t, at.between(began, time.Now()), 10*rate*92/100, what)
		}
		a := startAsking(t, db, "a", limit, 20, &at)
		uses("one process")
		b, c := startAsking(t, db, "b", limit, 10, &at), startAsking(t, db, "c", limit, 1, &at)
		uses("three processes")
		parts := map[string]int64{}
		for _, n := range a.Nodes() {
			parts[n.Name] = n.Budgets["db.example"].Part.Requests
		}
		assert.EqualValues(t, rate, parts["a"]+parts["b"]+parts["c"], parts)
		assert.Greater(t, parts["a"], parts["b"])
		b.leave(t)
		uses("one has left")
		c.die(t)
		pass(nodes.LiveFor)
		uses("one has died")
		d := startAsking(t, db, "d", limit, 20, &at)
		uses("one has come")
		a.down.Store(true)
		d.down.Store(true)
		uses("the store is lost to all")
		a.down.Store(false)
		d.down.Store(false)
		a.budgets.Set(map[string]serverbudget.Limit{"db.example": {Requests: 10}})
		d.budgets.Set(map[string]serverbudget.Limit{"db.example": {Requests: 10}})
		pass(time.Second)
		began := time.Now()
		pass(20 * time.Second)
		assert.LessOrEqual(t, at.between(began, time.Now()), 200)
		a.leave(t)
		d.leave(t)
		assert.LessOrEqual(t, testkit.MostInASecond(at.times), rate)
		synctest.Wait()
	})
}
