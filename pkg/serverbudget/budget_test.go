package serverbudget_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/serverbudget"
)

const server = "db.example:6984"

// newNode returns a node that is alone, with a limit for the server.
func newNode(limit serverbudget.Limit) *serverbudget.Node {
	n := serverbudget.New()
	n.Set(map[string]serverbudget.Limit{"db.example": limit})
	return n
}

// renew divides the budgets of nodes that know each other, and returns what the node with the index i has said.
func renew(nodes []*serverbudget.Node, rows []map[string]serverbudget.Need, i int) {
	others := map[string]map[string]serverbudget.Need{}
	for j, row := range rows {
		if j != i && row != nil {
			others[fmt.Sprint(j)] = row
		}
	}
	needs := nodes[i].Needs()
	nodes[i].Divide(needs, fmt.Sprint(i), others)
	rows[i] = needs
	nodes[i].Use()
}

// alone renews a node that is alone each second, until the context ends.
func alone(ctx context.Context, n *serverbudget.Node) {
	rows := make([]map[string]serverbudget.Need, 1)
	for ctx.Err() == nil {
		renew([]*serverbudget.Node{n}, rows, 0)
		select {
		case <-ctx.Done():
		case <-n.Wanted():
		case <-time.After(time.Second):
		}
	}
}

// arrivals are the times of requests.
type arrivals struct {
	mu    sync.Mutex
	times []time.Time
}

func (a *arrivals) add() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times = append(a.times, time.Now())
}

// between returns the number of requests in a time.
func (a *arrivals) between(from, to time.Time) (count int) {
	for _, at := range a.times {
		if !at.Before(from) && at.Before(to) {
			count++
		}
	}
	return count
}

// ask makes requests as a job until the context ends, each for a random time.
func ask(ctx context.Context, n *serverbudget.Node, f *serverbudget.Flow, each func()) {
	for ctx = serverbudget.WithFlow(ctx, f); ; {
		x, err := n.Begin(ctx, server, false)
		if err != nil {
			return
		}
		each()
		time.Sleep(time.Duration(rand.N(int64(100 * time.Millisecond))))
		x.Done()
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	for _, rate := range []int64{1, 7, 20, 100, 400} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(serverbudget.Limit{Requests: rate})
			ctx, end := context.WithTimeout(t.Context(), 30*time.Second)
			defer end()
			var jobs sync.WaitGroup
			var at arrivals
			jobs.Go(func() { alone(ctx, n) })
			for i := range 200 {
				jobs.Go(func() { ask(ctx, n, &serverbudget.Flow{Job: fmt.Sprint(i)}, at.add) })
			}
			began := time.Now()
			jobs.Wait()
			assert.LessOrEqual(t, testkit.MostInASecond(at.times), int(rate))
			used := at.between(began.Add(5*time.Second), began.Add(25*time.Second))
			assert.GreaterOrEqual(t, used, int(float64(rate*20)*0.95), "of %d", rate*20)
		})
	}
}

func TestOwnersHaveTheirShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(serverbudget.Limit{Requests: 100})
		ctx, end := context.WithTimeout(t.Context(), 60*time.Second)
		defer end()
		var jobs sync.WaitGroup
		jobs.Go(func() { alone(ctx, n) })
		counts := map[string]*atomic.Int64{}
		for owner, of := range map[string]struct{ jobs, weight int }{"many": {40, 100}, "few": {4, 100}, "half": {20, 50}} {
			for i := range of.jobs {
				name := owner + fmt.Sprint(i)
				counts[name] = new(atomic.Int64)
				jobs.Go(func() {
					ask(ctx, n, &serverbudget.Flow{Owner: owner, Weight: of.weight, Job: name}, func() { counts[name].Add(1) })
				})
			}
		}
		jobs.Wait()
		sum := func(owner string, jobs int) (sum int64) {
			for i := range jobs {
				one := counts[owner+fmt.Sprint(i)].Load()
				assert.Positive(t, one)
				sum += one
			}
			return sum
		}
		many, few, half := sum("many", 40), sum("few", 4), sum("half", 20)
		assert.InEpsilon(t, many, few, 0.05)
		assert.InEpsilon(t, many, 2*half, 0.05)
	})
}

// move moves bytes of a body in pieces.
func move(ctx context.Context, n *serverbudget.Node, left int) error {
	x, err := n.Begin(ctx, server, false)
	if err != nil {
		return err
	}
	defer x.Done()
	s := x.Stream()
	defer s.Done()
	for left > 0 {
		most, err := s.Take(left)
		if err != nil {
			return err
		}
		moved := min(most, 1+rand.N(20_000))
		s.Moved(moved)
		left -= moved
	}
	return nil
}

func TestBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(serverbudget.Limit{Bytes: 1_000_000})
		ctx, end := context.WithCancel(t.Context())
		var jobs, renewing sync.WaitGroup
		renewing.Go(func() { alone(ctx, n) })
		began, failures := time.Now(), make(chan error, 20)
		for range 20 {
			jobs.Go(func() { failures <- move(ctx, n, 500_000) })
		}
		jobs.Wait()
		for range 20 {
			require.NoError(t, <-failures)
		}
		assert.InDelta(t, 10, time.Since(began).Seconds(), 0.5)
		assert.InDelta(t, 10_000_000, n.States()[0].Bytes, 1)
		end()
		renewing.Wait()
	})
}

func TestConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(serverbudget.Limit{Connections: 4})
		ctx, end := context.WithCancel(t.Context())
		var renewing sync.WaitGroup
		renewing.Go(func() { alone(ctx, n) })
		synctest.Wait()
		begin := func(f *serverbudget.Flow, feed bool) *serverbudget.Exchange {
			x, err := n.Begin(serverbudget.WithFlow(ctx, f), server, feed)
			require.NoError(t, err)
			return x
		}
		parked := make(chan string, 10)
		flows := make([]*serverbudget.Flow, 3)
		for i := range flows {
			flows[i] = &serverbudget.Flow{Job: fmt.Sprint(i), Park: func() { parked <- fmt.Sprint(i) }}
		}
		first, second := begin(flows[0], true), begin(flows[1], true)
		var third *serverbudget.Exchange
		done := make(chan struct{})
		go func() {
			third = begin(flows[2], true) // half of the connections are for others
			close(done)
		}()
		assert.Equal(t, "0", <-parked)
		assert.Equal(t, "1", <-parked)
		waits, ok := flows[2].Waiting()
		require.True(t, ok)
		assert.Equal(t, "db.example", waits.Server)
		first.Done()
		<-done
		_, ok = flows[2].Waiting()
		assert.False(t, ok)

		a, b := begin(flows[0], false), begin(flows[1], false)
		began := time.Now()
		_, err := n.Begin(serverbudget.WithFlow(ctx, flows[0]), server, false)
		require.ErrorIs(t, err, serverbudget.ErrConnections, "it could wait for itself")
		assert.Equal(t, 10*time.Second, time.Since(began))
		for _, x := range []*serverbudget.Exchange{a, b, second, third} {
			x.Done()
		}
		end()
		renewing.Wait()
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(serverbudget.Limit{Requests: 1, Connections: 4})
		over := errors.New("over")
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { end(over) })
		_, err := n.Begin(ctx, server, false) // the node has no part
		require.ErrorIs(t, err, over)
		x, err := n.Begin(t.Context(), "other.example:80", false)
		require.NoError(t, err, "it has no budget")
		x.Done()
	})
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	n := serverbudget.New()
	n.Set(map[string]serverbudget.Limit{
		"db.example": {Requests: 1}, "db.example:6984": {Requests: 2}, "*.example": {Requests: 3}, "*.eu.example": {Requests: 4},
	})
	ended, end := context.WithCancel(t.Context())
	end()
	for _, host := range []string{"db.example:443", "DB.example:6984", "a.example:80", "a.eu.example:80", "b.eu.example:80", "example:80"} {
		_, _ = n.Begin(ended, host, false)
	}
	got := map[string]int64{}
	for _, s := range n.States() {
		got[s.Server] = s.Limit.Requests
	}
	assert.Equal(t, map[string]int64{"db.example": 1, "db.example:6984": 2, "a.example": 3, "a.eu.example": 4, "b.eu.example": 4}, got)
}

// TestParts divides limits among random nodes. The parts add up to the limit. Each node gets what it wants, or at least its part by
// its jobs.
func TestParts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := serverbudget.Limit{Requests: 1 + r.Int64N(200), Bytes: 1 + r.Int64N(1e9), Connections: 4 + r.Int64N(100)}
		needs, jobs := map[string]serverbudget.Need{}, int64(0)
		for i := range 1 + r.IntN(8) {
			need := serverbudget.Need{Jobs: 1 + r.Int64N(50), Want: serverbudget.Limit{Requests: r.Int64N(100), Bytes: r.Int64N(1e8)}}
			needs[fmt.Sprint(i)] = need
			jobs += need.Jobs
		}
		var sum serverbudget.Limit
		for name, part := range serverbudget.PartsOf(limit, needs, int64(seed)) {
			sum.Requests += part.Requests
			sum.Bytes += part.Bytes
			sum.Connections += part.Connections
			need := needs[name]
			if fair := limit.Requests * need.Jobs / jobs; need.Want.Requests == 0 || need.Want.Requests > fair {
				require.GreaterOrEqual(t, part.Requests, fair, "seed %d", seed)
			} else {
				require.GreaterOrEqual(t, part.Requests, need.Want.Requests, "seed %d", seed)
			}
		}
		require.Equal(t, limit.Requests, sum.Requests, "seed %d", seed)
		require.Equal(t, limit.Bytes, sum.Bytes, "seed %d", seed)
		require.Equal(t, limit.Connections/serverbudget.MinConnections*serverbudget.MinConnections, sum.Connections, "seed %d", seed)
	}
}
