// Package peers runs the same jobs through fdbjobs and through River (https://riverqueue.com), a Go library for jobs in
// PostgreSQL.
//
// The systems take turns: River on PostgreSQL, fdbjobs on the embedded store, and, with the build tag fdb, fdbjobs on a
// FoundationDB of one process. A turn starts with an empty store and with servers of its own, which end with it. Each system
// acknowledges a commit when it is on disk.
package peers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"settee/internal/servers"
	"settee/pkg/retry"
	"settee/scripts/bench/lab"
)

// Scenario compares fdbjobs with River.
var Scenario = lab.Scenario{Name: "peers", New: func(r *lab.Run) lab.Measurement { return &bench{Run: r} }, WithoutSettee: true}

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

// bench is the flags.
type bench struct {
	jobs, turns int
	*lab.Run
}

// Register implements lab.Measurement.
func (b *bench) Register(f *flag.FlagSet) {
	f.IntVar(&b.jobs, "jobs", 100_000, "the number of jobs in a turn")
	f.IntVar(&b.turns, "turns", 1, "the number of turns of each system with each load")
}

// Check implements lab.Measurement.
func (b *bench) Check() error {
	if b.jobs < latencyPart || b.turns < 1 {
		return fmt.Errorf("there must be %d jobs and a turn", latencyPart)
	}
	return nil
}

// A system is a job queue with the servers that it needs.
type system struct {
	name string
	// open starts the system with an empty queue that will have a number of workers.
	open func(ctx context.Context, r *lab.Run, workers int, p *progress) (queue, error)
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
	close()
}

// progress connects the workers of a queue with a measurement.
type progress struct {
	update  bool                    // workers update the state of each job
	started []time.Time             // by the job's number
	fail    context.CancelCauseFunc // ends the turn with an error
	left    atomic.Int64            // jobs to finish
	done    chan struct{}           // closed when there are none left
}

func (p *progress) jobStarted(number int) { p.started[number] = time.Now() }

func (p *progress) jobFinished() {
	if p.left.Add(-1) == 0 {
		close(p.done)
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

// Measure implements lab.Measurement.
func (b *bench) Measure(ctx context.Context) error {
	systems := systems()
	versions, err := versions(ctx)
	if err != nil {
		return err
	}
	b.Report.Table(fmt.Sprintf(`%s
%d jobs in a turn, added by %d clients; %d turns, of which the medians are shown; %d processors
A no-op cycle is insert, start and finish; all jobs are inserted before any starts.
A mixed cycle is insert, start, update and finish; jobs are inserted while others run. Processor time is that of all processes.`, versions, b.jobs, clients, b.turns, runtime.NumCPU()),
		"cycle", "jobs per insert", "workers", "system", "inserts/s", "runs/s", "cycles/s", "x River", "processor, µs/cycle")
	for _, l := range loads {
		measured, err := b.inTurns(systems, func(s system) (lab.Sample, error) { return b.cycles(ctx, s, l) })
		if err != nil {
			return err
		}
		cycle := "no-op"
		if l.mixed {
			cycle = "mixed"
		}
		for i, s := range systems {
			own := measured[i]
			b.Report.Row(cycle, fmt.Sprint(l.batch), fmt.Sprint(l.workers), s.name, median(own, "inserts"), median(own, "runs"), median(own, "cycles"),
				own.Ratios("cycles", measured[0]), median(own, "processor"))
		}
	}
	b.Report.Table(fmt.Sprintf("From insert to start: %d jobs a second, added by one, %d workers", latencyRate, latencyWorkers),
		"system", "median, µs", "p99, µs", "median x River", "p99 x River")
	measured, err := b.inTurns(systems, func(s system) (lab.Sample, error) { return b.latency(ctx, s, b.jobs/latencyPart) })
	if err != nil {
		return err
	}
	for i, s := range systems {
		own := measured[i]
		b.Report.Row(s.name, median(own, "median"), median(own, "p99"), own.Ratios("median", measured[0]), own.Ratios("p99", measured[0]))
	}
	return nil
}

// median returns the median of jobs or microseconds.
func median(s lab.Samples, name string) string { return lab.Number(s.Median(name), 0) }

// versions names the systems. FoundationDB is among them if it is installed.
func versions(ctx context.Context) (string, error) {
	var all []string
	info, _ := debug.ReadBuildInfo()
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			all = append(all, "fdbjobs of commit "+setting.Value[:8])
		}
	}
	for _, module := range info.Deps {
		if module.Path == "github.com/riverqueue/river" {
			all = append(all, "River "+module.Version)
		}
	}
	folder, err := findPostgres()
	if err != nil {
		return "", err
	}
	programs := []string{filepath.Join(folder, "postgres")}
	if fdbserver, _, err := servers.FindFoundationDB(); err == nil {
		programs = append(programs, fdbserver)
	}
	for _, program := range programs {
		line, err := lab.Version(ctx, program, "--version")
		if err != nil {
			return "", err
		}
		all = append(all, line)
	}
	return strings.Join(all, "; "), nil
}

// inTurns measures each system as often as the flag says.
func (b *bench) inTurns(systems []system, measure func(system) (lab.Sample, error)) ([]lab.Samples, error) {
	names := make([]string, len(systems))
	for i, s := range systems {
		names[i] = s.name
	}
	return lab.InTurns(b.turns, names, func(_, i int) (lab.Sample, error) { return measure(systems[i]) })
}

// cycles runs jobs with a load.
func (b *bench) cycles(ctx context.Context, s system, l load) (lab.Sample, error) {
	var add, run lab.Used
	p := &progress{update: l.mixed}
	err := b.turn(ctx, s, p, l, b.jobs, func(ctx context.Context, q queue) (err error) {
		adding := func() error { return lab.InBatches(ctx, clients, l.batch, warmUp, warmUp+b.jobs, q.add) }
		if !l.mixed {
			if add, err = measure(adding); err != nil {
				return err
			}
			adding = func() error { return nil }
		}
		run, err = runJobs(ctx, q, p, b.jobs, adding)
		return err
	})
	if err != nil {
		return nil, err
	}
	n := float64(b.jobs)
	measured := lab.Sample{"cycles": n / (add.Seconds + run.Seconds), "processor": 1e6 * run.Of(0) / n}
	if !l.mixed {
		measured["inserts"], measured["runs"] = n/add.Seconds, n/run.Seconds
		measured["processor"] += 1e6 * add.Of(0) / n
	}
	return measured, nil
}

// latency adds single jobs at latencyRate, however long each addition takes, and measures how long they wait for a worker.
func (b *bench) latency(ctx context.Context, s system, jobs int) (lab.Sample, error) {
	p := &progress{}
	added := make([]time.Time, warmUp+jobs)
	err := b.turn(ctx, s, p, load{batch: 1, workers: latencyWorkers}, jobs, func(ctx context.Context, q queue) error {
		_, err := runJobs(ctx, q, p, jobs, func() error {
			began := time.Now()
			return lab.Each(ctx, jobs, jobs, func(ctx context.Context, i int) error {
				n := warmUp + i
				if err := retry.Wait(ctx, time.Until(began.Add(time.Duration(i)*time.Second/latencyRate))); err != nil {
					return err
				}
				added[n] = time.Now()
				return q.add(ctx, n, n+1)
			})
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	var all lab.Delays
	for n := warmUp; n < len(added); n++ {
		all = append(all, p.started[n].Sub(added[n]))
	}
	us := func(percent int) float64 { return 1e6 * all.Percentile(percent).Seconds() }
	return lab.Sample{"median": us(50), "p99": us(99)}, nil
}

// turn opens the system, warms it up, calls measure, which runs jobs, and checks that no job is missing.
func (b *bench) turn(ctx context.Context, s system, p *progress, l load, jobs int, measure func(context.Context, queue) error) (err error) {
	ctx, p.fail = context.WithCancelCause(ctx)
	defer func() {
		err = errors.Join(context.Cause(ctx), err)
		p.fail(nil)
	}()
	p.started = make([]time.Time, warmUp+jobs)
	q, err := s.open(ctx, b.Run, l.workers, p)
	if err != nil {
		return err
	}
	defer q.close()
	b.Say("%s: %+v", s.name, l)
	warm := func() error { return lab.InBatches(ctx, clients, l.batch, 0, warmUp, q.add) }
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

// measure returns the time and the processor time of all processes for f.
func measure(f func() error) (lab.Used, error) {
	return lab.Meter{{Name: "all", Time: func() (time.Duration, error) { return servers.ProcessorTime(os.Getpid()) }}}.Measure(f)
}

// runJobs starts workers, calls add, waits until all jobs have finished, and ends the workers. The cost counts all
// but the end of the workers.
func runJobs(ctx context.Context, q queue, p *progress, jobs int, add func() error) (lab.Used, error) {
	p.left.Store(int64(jobs))
	p.done = make(chan struct{})
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
		select {
		case <-p.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}
