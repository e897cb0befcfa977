package main

import (
	"context"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"settee/scripts/internal/lab"
)

// rolling is a restart of all nodes that run jobs, one after the other.
type rolling struct {
	Stops  []float64 `json:"stops"`  // the time that each node took to stop, in seconds
	Still  delays    `json:"still"`  // how long a job stood still each time that it did
	InAll  float64   `json:"in_all"` // how long the job that did most stood still in all, in seconds
	Share  float64   `json:"share"`  // of the time of all jobs in which they stood still
	Change changes   `json:"change"` // of documents that were written meanwhile
}

// settled is how long the nodes are left alone between two restarts.
const settled = 3 * time.Second

// roll stops and starts each node that runs jobs.
func (f *fleet) roll(ctx context.Context) error {
	if err := f.awaitRunning(ctx); err != nil {
		return err
	}
	before, err := f.begin(ctx)
	if err != nil {
		return err
	}
	r := &rolling{}
	watched, end := context.WithCancel(ctx)
	defer end()
	watching, working := errgroup.WithContext(watched)
	s := newStillness()
	watching.Go(func() error { return s.watch(working, f.node) })
	watching.Go(func() error {
		for working.Err() == nil {
			if err := f.write("", f.random.IntN(f.jobs))(ctx); err != nil {
				return err
			}
			_ = lab.Pause(working, time.Duration(f.random.ExpFloat64()/f.rate*float64(time.Second)))
		}
		return nil
	})
	began := time.Now()
	for n := range f.nodes {
		took, err := f.replace(working, n+1)
		if err != nil {
			break // watching has the cause, or ctx
		}
		r.Stops = append(r.Stops, took.Seconds())
		if lab.Pause(working, settled) != nil {
			break
		}
	}
	lasted := time.Since(began)
	err = f.awaitRunning(working)
	end()
	if failed := watching.Wait(); failed != nil {
		err = failed
	}
	if err != nil {
		return err
	}
	slices.Sort(s.spans)
	r.Still, r.Share = percentiles(s.spans), s.total().Seconds()/(float64(f.jobs)*lasted.Seconds())
	for _, one := range s.inAll {
		r.InAll = max(r.InAll, one.Seconds())
	}
	arrived, err := f.arrived(ctx, before)
	if err != nil {
		return err
	}
	r.Change = *arrived
	r.Change.work = work{} // the nodes began to count anew
	f.report.Roll = r
	return nil
}

// replace stops a node and starts another one in its place. It returns how long the stop took.
func (f *fleet) replace(ctx context.Context, n int) (time.Duration, error) {
	began := time.Now()
	if err := f.others[n].Stop(ctx); err != nil {
		return 0, err
	}
	took := time.Since(began)
	f.say("a node stopped in %.2f s", took.Seconds())
	node, err := f.startReplication(ctx)
	if err != nil {
		return 0, err
	}
	stopped := f.others[n]
	f.others[n] = node
	return took, stopped.Close()
}

// awaitRunning returns when all jobs run.
func (f *fleet) awaitRunning(ctx context.Context) error {
	return f.await(ctx, "running", "running all jobs")
}

// stillness is how long jobs stand still: they are in the queue.
type stillness struct {
	since map[string]time.Time // by job
	spans []time.Duration
	inAll map[string]time.Duration // by job
}

func newStillness() *stillness {
	return &stillness{since: map[string]time.Time{}, inAll: map[string]time.Duration{}}
}

// total returns the time of all jobs together.
func (s *stillness) total() (sum time.Duration) {
	for _, one := range s.inAll {
		sum += one
	}
	return sum
}

// lookEvery is how often stillness looks.
const lookEvery = 50 * time.Millisecond

// watch looks which jobs stand still until ctx ends.
func (s *stillness) watch(ctx context.Context, node *lab.Node) error {
	for ctx.Err() == nil {
		var list struct{ Jobs []struct{ ID string } }
		if err := node.Ask(ctx, http.MethodGet, "_scheduler/jobs?states=pending,crashing&limit=10000", nil, &list); err != nil {
			return whileRunning(ctx, err)
		}
		ids := make([]string, len(list.Jobs))
		for i, job := range list.Jobs {
			ids[i] = job.ID
		}
		s.note(ids, time.Now())
		_ = lab.Pause(ctx, lookEvery)
	}
	return nil
}

// whileRunning returns err, unless ctx has ended.
func whileRunning(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = nil
	}
	return err
}

// note notes the jobs that stand still now.
func (s *stillness) note(ids []string, now time.Time) {
	still := make(map[string]bool, len(ids))
	for _, id := range ids {
		still[id] = true
		if _, known := s.since[id]; !known {
			s.since[id] = now
		}
	}
	for id, since := range s.since {
		if !still[id] {
			s.spans = append(s.spans, now.Sub(since))
			s.inAll[id] += now.Sub(since)
			delete(s.since, id)
		}
	}
}
