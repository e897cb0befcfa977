package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// clients is the number of goroutines that add jobs.
	clients = 64
	// warmUp is the number of jobs that run before a measurement.
	warmUp = 1000
	// latencyPart is the part of the jobs that measure the latency, with latencyWorkers and latencyRate jobs a second.
	latencyPart    = 5
	latencyWorkers = 64
	latencyRate    = 1000
)

// A system is a job queue with the servers that it needs.
type system struct {
	name, about string
	// open starts the system with an empty queue that will have a number of workers. All its files are in dir.
	open func(ctx context.Context, dir string, workers int, p *progress) (queue, error)
}

// A queue is an open system.
type queue interface {
	// add adds the jobs with the numbers from begin up to end, in one call of the system.
	add(ctx context.Context, begin, end int) error
	// work starts the workers, which take jobs until stop is called or ctx ends. A worker tells progress that a job has
	// started, updates the job's state if progress says so, finishes it, and tells progress after the commit.
	work(ctx context.Context) (stop func(), err error)
	// finished returns the number of finished jobs in the store.
	finished(ctx context.Context) (int, error)
	// close ends everything that open has started.
	close() error
}

// A committer is a queue whose store can commit transactions that have nothing to do with jobs.
type committer interface {
	// commit writes one small key with a number.
	commit(ctx context.Context, number int) error
}

// progress connects the workers of a queue with a measurement.
type progress struct {
	update  bool                    // workers update the state of each job
	started []time.Time             // by the job's number; nil if it is not wanted
	fail    context.CancelCauseFunc // ends the turn with an error
	left    atomic.Int64            // jobs to finish
	done    chan struct{}           // closed when there are none left
}

// expect must be called before the workers start.
func (p *progress) expect(jobs int) {
	p.left.Store(int64(jobs))
	p.done = make(chan struct{})
}

func (p *progress) jobStarted(number int) {
	if p.started != nil {
		p.started[number] = time.Now()
	}
}

func (p *progress) jobFinished() {
	if p.left.Add(-1) == 0 {
		close(p.done)
	}
}

func (p *progress) await(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A load is a way to run jobs.
type load struct {
	mixed   bool // jobs are added while others run, and are updated before they finish
	batch   int  // jobs in one call of add
	workers int
}

var loads = []load{
	{false, 1, 64}, {false, 1, 512}, {false, 100, 64}, {false, 100, 512},
	{true, 1, 64}, {true, 1, 512}, {true, 100, 64}, {true, 100, 512},
}

func (l load) String() string {
	return fmt.Sprintf("%s, added by %d, %d workers", l.cycle(), l.batch, l.workers)
}

func (l load) cycle() string {
	if l.mixed {
		return "mixed"
	}
	return "no-op"
}

// cycles are the costs of running jobs.
type cycles struct {
	add, run cost // of the two phases, unless the load is mixed
	all      cost
	commits  float64 // plain ones per second, by as many goroutines as there are workers; 0 if there is no committer
}

// measureCycles runs jobs with a load.
func (s system) measureCycles(ctx context.Context, l load, jobs int) (c cycles, err error) {
	p := &progress{update: l.mixed}
	err = s.turn(ctx, p, l, jobs, func(ctx context.Context, q queue) error {
		if c.commits, err = plainCommits(ctx, q, l.workers, jobs); err != nil {
			return err
		}
		add := func() error { return inBatches(ctx, clients, warmUp, warmUp+jobs, l.batch, q.add) }
		if l.mixed {
			c.all, err = runJobs(ctx, q, p, jobs, add)
			return err
		}
		if c.add, err = measure(add); err != nil {
			return err
		}
		c.run, err = runJobs(ctx, q, p, jobs, func() error { return nil })
		c.all = cost{c.add.wall + c.run.wall, c.add.processor + c.run.processor}
		return err
	})
	return c, err
}

// latency is the time from the call that adds a job until a worker has it.
type latency struct{ median, p99 time.Duration }

// measureLatency adds single jobs at latencyRate, however long each addition takes.
func (s system) measureLatency(ctx context.Context, jobs int) (l latency, err error) {
	p := &progress{started: make([]time.Time, warmUp+jobs)}
	added := make([]time.Time, warmUp+jobs)
	err = s.turn(ctx, p, load{batch: 1, workers: latencyWorkers}, jobs, func(ctx context.Context, q queue) error {
		_, err := runJobs(ctx, q, p, jobs, func() error {
			group, ctx := errgroup.WithContext(ctx)
			began := time.Now()
			for i := 0; i < jobs && ctx.Err() == nil; i++ {
				time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / latencyRate)))
				group.Go(func() error {
					n := warmUp + i
					added[n] = time.Now()
					return q.add(ctx, n, n+1)
				})
			}
			return group.Wait()
		})
		return err
	})
	if err != nil {
		return l, err
	}
	var all []time.Duration
	for n := warmUp; n < len(added); n++ {
		all = append(all, p.started[n].Sub(added[n]))
	}
	slices.Sort(all)
	return latency{median: all[len(all)/2], p99: all[len(all)*99/100]}, nil
}

// turn opens the system, warms it up, calls measure, which runs jobs, and checks that no job is missing.
func (s system) turn(ctx context.Context, p *progress, l load, jobs int, measure func(context.Context, queue) error) (err error) {
	ctx, p.fail = context.WithCancelCause(ctx)
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		p.fail(nil)
	}()
	dir, err := os.MkdirTemp("", "bench-peers-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	q, err := s.open(ctx, dir, l.workers, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.close()) }()

	warm := func() error { return inBatches(ctx, clients, 0, warmUp, l.batch, q.add) }
	if _, err := runJobs(ctx, q, p, warmUp, warm); err != nil {
		return err
	}
	runtime.GC() // what was left by other turns
	if err := measure(ctx, q); err != nil {
		return err
	}
	finished, err := q.finished(ctx)
	if err == nil && finished != warmUp+jobs {
		err = fmt.Errorf("%d jobs have finished, not %d", finished, warmUp+jobs)
	}
	return err
}

// runJobs starts workers, calls add, waits until all jobs have finished, and ends the workers. The cost counts all
// but the end of the workers.
func runJobs(ctx context.Context, q queue, p *progress, jobs int, add func() error) (cost, error) {
	p.expect(jobs)
	stop := func() {}
	defer func() { stop() }()
	return measure(func() error {
		end, err := q.work(ctx)
		if err != nil {
			return err
		}
		stop = end
		if err := add(); err != nil {
			return err
		}
		return p.await(ctx)
	})
}

// plainCommits returns how many transactions of one small key the store commits per second.
func plainCommits(ctx context.Context, q queue, goroutines, n int) (perSecond float64, err error) {
	store, ok := q.(committer)
	if !ok {
		return 0, nil
	}
	c, err := measure(func() error {
		return inBatches(ctx, goroutines, 0, n, 1, func(ctx context.Context, number, _ int) error {
			return store.commit(ctx, number)
		})
	})
	return c.perSecond(n), err
}

// inBatches has goroutines call f with the numbers from begin up to end, each time with the next batch of them.
func inBatches(ctx context.Context, goroutines, begin, end, batch int, f func(ctx context.Context, begin, end int) error) error {
	var next atomic.Int64
	next.Store(int64(begin))
	group, ctx := errgroup.WithContext(ctx)
	for range goroutines {
		group.Go(func() error {
			for {
				from := int(next.Add(int64(batch))) - batch
				if from >= end {
					return nil
				}
				if err := f(ctx, from, min(from+batch, end)); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}
