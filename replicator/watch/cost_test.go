package watch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/retry"
)

// What a node with idle watches does in an hour grows little with their number: heartbeats share transactions.
func TestCostsOfManyWatches(t *testing.T) {
	inLab(t, func(l *lab) {
		controlled := control(l.db)
		controlled.CommitDelay.Store(int64(time.Millisecond)) // meanwhile others gather
		// Others write, too, so that versions grow.
		var others sync.WaitGroup
		ctx, cancel := context.WithCancel(l.Context())
		defer others.Wait()
		defer cancel()
		others.Go(func() {
			for ctx.Err() == nil {
				_ = l.db.Transact(ctx, func(tx kv.Transaction) error {
					tx.Clear([]byte("other"))
					return nil
				})
				_ = retry.Wait(ctx, time.Second)
			}
		})
		cost := func() int64 {
			time.Sleep(time.Minute)
			synctest.Wait()
			before := controlled.Transactions.Load()
			time.Sleep(time.Hour)
			synctest.Wait()
			return controlled.Transactions.Load() - before
		}
		l.source.write("db")
		n := l.startOn(controlled)
		none := cost()
		l.park("root", "db")
		l.until(n.follows(1))
		one := cost()
		l.source.manyServers()
		for i := range 50 {
			l.parkAt(fmt.Sprintf("http://a.example/s%d/", i), "root", "db")
		}
		l.until(n.follows(51))
		many := cost()
		t.Logf("transactions in an hour: %d without watches, %d with one, %d with 51", none, one, many)
		const beats = 180
		require.LessOrEqual(t, one-none, int64(beats+20))
		require.LessOrEqual(t, many-one, int64(5*beats+50*(8+13)), "a page and twelve looks at targets for each, and five transactions for each heartbeat of all")
	})
}
