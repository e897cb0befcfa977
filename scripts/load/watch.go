package main

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"settee/scripts/internal/lab"
)

// sampleInterval is the time between two looks at the memory of the node.
const sampleInterval = 200 * time.Millisecond

// watch looks at the processes.
type watch struct {
	t    *test
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	samples int64 // of the resident set since the window was opened
	sum     int64
	largest int64

	before usage
}

// usage is what processes have used until a moment.
type usage struct {
	at                        time.Time
	node, endpoints, own, all time.Duration // processor time; all is the whole machine's
	metrics                   map[string]float64
	checkpoints               int64
}

// watch samples the memory of the node. fail is called if the node ends.
func (t *test) watch(ctx context.Context, fail func(error)) (*watch, error) {
	ctx, stop := context.WithCancel(ctx)
	w := &watch{t: t, stop: stop}
	w.done.Go(func() {
		ticks := time.NewTicker(sampleInterval)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			if err := w.sample(); err != nil {
				fail(errors.Join(t.node.Ended(), err))
				return
			}
		}
	})
	return w, nil
}

func (w *watch) sample() error {
	now, largest, err := w.t.node.Memory()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples++
	w.sum += now
	w.largest = largest
	return nil
}

func (w *watch) end() {
	w.stop()
	w.done.Wait()
}

// use returns what was used until now.
func (w *watch) use(ctx context.Context) (u usage, err error) {
	u.at = time.Now()
	if u.node, err = w.t.node.Processor(); err != nil {
		return u, err
	}
	if u.endpoints, err = w.t.endpoints.processor(); err != nil {
		return u, err
	}
	if u.all, err = lab.MachineTime(); err != nil {
		return u, err
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return u, err
	}
	u.own = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	if u.metrics, err = w.t.node.Metrics(ctx); err != nil {
		return u, err
	}
	c, err := w.t.endpoints.count(ctx)
	if c.Checkpoints != nil {
		u.checkpoints = *c.Checkpoints
	}
	return u, err
}

// open opens the window.
func (w *watch) open(ctx context.Context) (err error) {
	w.before, err = w.use(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples, w.sum = 0, 0
	return err
}

// close closes the window and reports what was used in it.
func (w *watch) close(ctx context.Context, r *report) error {
	if err := w.sample(); err != nil { // so that there is one
		return err
	}
	now, err := w.use(ctx)
	if err != nil {
		return err
	}
	seconds := now.at.Sub(w.before.at).Seconds()
	rate := func(metric string) float64 { return (now.metrics[metric] - w.before.metrics[metric]) / seconds }
	r.Seconds = seconds
	r.Processor = processor{
		Node: (now.node - w.before.node).Seconds(), Endpoints: (now.endpoints - w.before.endpoints).Seconds(),
		Load: (now.own - w.before.own).Seconds(),
	}
	r.Processor.Others = max(0, (now.all-w.before.all).Seconds()-r.Processor.Node-r.Processor.Endpoints-r.Processor.Load)
	r.Requests = rate("couchdb_couch_replicator_requests_total")
	r.Checkpoints = float64(now.checkpoints-w.before.checkpoints) / 2 / seconds
	r.Crashes = int64(now.metrics["couchdb_couch_replicator_jobs_crashes_total"])
	r.Stops = int64(now.metrics["couchdb_couch_replicator_jobs_stops_total"])
	w.mu.Lock()
	defer w.mu.Unlock()
	const mebibyte = 1 << 20
	r.Memory = memory{
		Max: float64(w.largest) / mebibyte, Mean: float64(w.sum) / float64(w.samples) / mebibyte,
		Heap: now.metrics["go_memstats_heap_alloc_bytes"] / mebibyte, Goroutines: int64(now.metrics["go_goroutines"]),
		Files: int64(now.metrics["process_open_fds"]),
	}
	return nil
}
