package fleet

import (
	"context"
	"net/http"
	"time"

	"settee/pkg/retry"
	"settee/scripts/bench/lab"
)

// settled is how long the nodes are left alone between two restarts.
const settled = 3 * time.Second

// roll stops and starts each node that runs jobs, while documents are written to random sources.
func (f *fleet) roll(ctx context.Context) error {
	if err := f.awaitJobs(ctx, "running"); err != nil {
		return err
	}
	s := stillness{since: map[string]time.Time{}, inAll: map[string]time.Duration{}}
	var slowest, lasted time.Duration
	// The nodes begin to count anew: what they have done meanwhile is unknown.
	used, _, err := f.arrive(ctx, func() error {
		return f.WriteDuring(ctx, f.Random, f.rate, func(ctx context.Context) error {
			return s.during(ctx, f.running[0], func(ctx context.Context) error {
				began := time.Now()
				for n := range f.nodes {
					took, err := f.replace(ctx, frontends+n)
					if err != nil {
						return err
					}
					slowest = max(slowest, took)
					if err := retry.Wait(ctx, settled); err != nil {
						return err
					}
				}
				lasted = time.Since(began)
				return f.awaitJobs(ctx, "running")
			})
		})
	}, f.Await)
	if err != nil {
		return err
	}
	var all, most time.Duration
	for _, one := range s.inAll {
		all, most = all+one, max(most, one)
	}
	row := f.Report.Measured
	row("nodes restarted one after the other: each stopped in", "", "%.2f s at most", slowest.Seconds())
	row("  a job stood still", "at most 3 s", "%s times", s.spans)
	row("  in all, the job that did most", "", "%.2f s", most.Seconds())
	row("  share of the time of all jobs", "5 %", "%.2f %%", 100*all.Seconds()/(float64(f.jobs)*lasted.Seconds()))
	row("  changes meanwhile: change to target", "", "%s documents", f.Take())
	row("  processor, of a core", "", "%s", used)
	return nil
}

// replace stops a node and starts another one in its place. It returns how long the stop took.
func (f *fleet) replace(ctx context.Context, n int) (took time.Duration, err error) {
	began := time.Now()
	if err = f.running[n].Stop(ctx); err != nil {
		return 0, err
	}
	took = time.Since(began)
	f.Say("a node stopped in %.2f s", took.Seconds())
	f.running[n].Close()
	f.running[n], err = f.startNode(ctx, n)
	return took, err
}

// stillness is how long jobs stand still: they are in the queue.
type stillness struct {
	since map[string]time.Time // by job
	spans lab.Delays
	inAll map[string]time.Duration // by job
}

// lookEvery is how often stillness looks.
const lookEvery = 50 * time.Millisecond

// during looks which jobs stand still until f returns.
func (s *stillness) during(ctx context.Context, node *lab.Node, f func(context.Context) error) error {
	return lab.Both(ctx, func(ctx context.Context) error {
		for retry.Wait(ctx, lookEvery) == nil {
			var list struct{ Jobs []struct{ ID string } }
			if err := node.Ask(ctx, http.MethodGet, "_scheduler/jobs?states=pending,crashing&limit=10000", nil, &list); err != nil {
				return err
			}
			ids := make([]string, len(list.Jobs))
			for i, job := range list.Jobs {
				ids[i] = job.ID
			}
			s.note(ids, time.Now())
		}
		return nil
	}, f)
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
