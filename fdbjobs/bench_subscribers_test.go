package fdbjobs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
)

// BenchmarkSubscriptions has one process update its 1,500 running jobs, and another one
// wait for 1,000 of them to change. Now and then a job is queued again, and taken again:
// that are two transitions. Reads are transactions of the process that waits.
func BenchmarkSubscriptions(b *testing.B) {
	const running, waiting, requeuedAtOnce = 1_500, 1_000, 10
	db := openDisk(b)
	processes := openLayer(b, db).Type("work")
	jobs := &queue{db: db, jobs: processes, owners: 10}
	jobs.add(b, running)
	held := holdAll(b, processes, running)

	counted := &counted{Database: db}
	followers := follow(b, openLayer(b, counted).Type("work"), held[:waiting])
	var heartbeats, transitions, forHeartbeats, forTransitions int64
	for b.Loop() {
		before := counted.runs.Load()
		heartbeat(b, held)
		between := counted.runs.Load()
		for range requeuedAtOnce {
			i := int(transitions/2) % waiting
			id := held[i].Job().ID
			require.NoError(b, held[i].Resubmit(b.Context(), time.Now(), nil, nil))
			followers.await(b, id, fdbjobs.Pending)
			again, err := processes.Accept(b.Context(), fdbjobs.AcceptOptions{})
			require.NoError(b, err)
			held[i] = again[0]
			followers.await(b, id, fdbjobs.Running)
			transitions += 2
		}
		heartbeats += running
		forHeartbeats += between - before
		forTransitions += counted.runs.Load() - between
	}
	b.ReportMetric(0, "ns/op") // it is of many things
	b.ReportMetric(float64(forHeartbeats)/float64(heartbeats), "reads/heartbeat")
	b.ReportMetric(float64(forTransitions)/float64(transitions), "reads/transition")
}

func holdAll(b *testing.B, jobs *fdbjobs.Type, n int) (held []*fdbjobs.Held) {
	b.Helper()
	for len(held) < n {
		some, err := jobs.Accept(b.Context(), fdbjobs.AcceptOptions{Count: fdbjobs.MaxClaim})
		require.NoError(b, err)
		held = append(held, some...)
	}
	return held
}

// heartbeat updates all jobs once, as many at a time as are likely to come together.
func heartbeat(b *testing.B, held []*fdbjobs.Held) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(held)); i = next.Add(1) - 1 {
				if err := held[i].Update(b.Context(), nil, nil); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// followers follow some jobs, each in a goroutine.
type followers map[string]chan fdbjobs.Status

// follow returns when all follow their jobs.
func follow(b *testing.B, jobs *fdbjobs.Type, held []*fdbjobs.Held) followers {
	b.Helper()
	f := followers{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, h := range held {
		id, seen := h.Job().ID, make(chan fdbjobs.Status)
		f[id] = seen
		wg.Go(func() {
			err := jobs.Follow(ctx, id, func(job *fdbjobs.Job) (bool, error) {
				select {
				case seen <- job.Status:
				case <-ctx.Done():
				}
				return false, nil
			})
			if !errors.Is(err, context.Canceled) {
				b.Errorf("following %s: %v", id, err)
			}
		})
	}
	b.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	for id := range f {
		f.await(b, id, fdbjobs.Running)
	}
	return f
}

// await waits until a job's follower is told of its status.
func (f followers) await(b *testing.B, id string, status fdbjobs.Status) {
	b.Helper()
	select {
	case seen := <-f[id]:
		require.Equal(b, status, seen, "of the job %s", id)
	case <-time.After(time.Minute):
		require.FailNow(b, fmt.Sprintf("nobody was told that the job %s is %s", id, status))
	}
}
