package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"settee/scripts/internal/lab"
)

// few measures few jobs, which all have a slot.
func (f *fleet) few(ctx, feeding context.Context) (err error) {
	const prefix = "few-"
	node, err := lab.StartNode(ctx, lab.NodeOptions{Program: f.settee, Settings: []string{"replicator/max_jobs=500", quietLog}})
	if err != nil {
		return err
	}
	f.node = node // so that it ends in any case
	if err := f.makeDatabases(ctx, feeding, fewJobs, fewJobs, prefix); err != nil {
		return err
	}
	if err := f.writeAll(ctx, prefix, numbersTo(fewJobs)); err != nil {
		return err
	}
	if err := f.addJobs(ctx, node, prefix, fewJobs, fewJobs); err != nil {
		return err
	}
	limited, cancel := f.within(ctx, "the case few")
	defer cancel()
	if err := f.arrivals.await(limited); err != nil {
		return err
	}
	f.arrivals.take()
	for range f.fewChanges {
		if err := f.write(prefix, f.random.IntN(fewJobs))(ctx); err != nil {
			return err
		}
		if err := f.arrivals.await(limited); err != nil {
			return err
		}
	}
	d := f.arrivals.take()
	f.report.Few = &d
	f.node = nil
	return node.Close()
}

// first adds the jobs, and waits until each has copied the first document of its source.
func (f *fleet) first(ctx context.Context) error {
	if err := f.writeAll(ctx, "", numbersTo(f.jobs)); err != nil {
		return err
	}
	f.say("a document in each source; adding %d jobs", f.jobs)
	limited, cancel := f.within(ctx, "the first run of all jobs")
	defer cancel()
	before, err := f.begin(ctx)
	if err != nil {
		return err
	}
	if err := f.addJobs(limited, f.node, "", f.jobs, f.targets); err != nil {
		return err
	}
	added := time.Since(before.at)
	f.say("all jobs added after %.1f s", added.Seconds())
	if err := f.arrivals.await(limited); err != nil {
		return err
	}
	used, err := f.since(ctx, before)
	if err != nil {
		return err
	}
	f.report.First = &first{Added: added.Seconds(), Rate: float64(f.jobs) / used.Seconds, used: used}
	f.arrivals.take()
	f.say("all have had their first run after %.1f s", used.Seconds)
	return nil
}

// awaitParked returns when all jobs are parked.
func (f *fleet) awaitParked(ctx context.Context) error {
	return f.await(ctx, "parked", "parking all jobs")
}

// await returns when all jobs are in a state. what says for an error what takes too long.
func (f *fleet) await(ctx context.Context, state, what string) error {
	ctx, cancel := f.within(ctx, what)
	defer cancel()
	_, err := f.node.Jobs(ctx, func(states map[string]int) bool { return states[state] == f.jobs })
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// parked measures the node while all jobs are parked and nothing changes.
func (f *fleet) parked(ctx context.Context) error {
	began := time.Now()
	if err := f.awaitParked(ctx); err != nil {
		return err
	}
	f.say("all jobs parked after %.1f s more", time.Since(began).Seconds())
	r, err := f.rest(ctx)
	f.report.Parked = r
	return err
}

// rest measures nodes that have nothing to do.
func (f *fleet) rest(ctx context.Context) (*rest, error) {
	before, err := f.begin(ctx)
	if err != nil {
		return nil, err
	}
	for _, node := range f.running() {
		node.CloseIdle()
	}
	if err := lab.Pause(ctx, f.quiet); err != nil {
		return nil, err
	}
	used, err := f.since(ctx, before)
	if err != nil {
		return nil, err
	}
	r := &rest{used: used}
	for _, node := range f.running() {
		if err := r.add(ctx, node); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// add adds a node.
func (m *rest) add(ctx context.Context, node *lab.Node) error {
	const megabyte = 1_000_000
	resident, largest, err := node.Memory()
	if err != nil {
		return err
	}
	connections, err := node.Connections()
	if err != nil {
		return err
	}
	metrics, err := node.Metrics(ctx)
	if err != nil {
		return err
	}
	m.Memory, m.MaxMemory = max(m.Memory, float64(resident)/megabyte), max(m.MaxMemory, float64(largest)/megabyte)
	m.Heap, m.Goroutines = max(m.Heap, metrics["go_memstats_heap_alloc_bytes"]/megabyte), max(m.Goroutines, int(metrics["go_goroutines"]))
	m.Connections = max(m.Connections, connections)
	return nil
}

// changes writes documents to random sources at random times.
func (f *fleet) changes(ctx context.Context) error {
	if err := f.login(ctx); err != nil {
		return err
	}
	before, err := f.begin(ctx)
	if err != nil {
		return err
	}
	if err := f.writeAtRandom(ctx); err != nil {
		return err
	}
	f.report.Changes, err = f.arrived(ctx, before)
	return err
}

// writeAtRandom writes documents at random times, and returns when all writes were answered.
func (f *fleet) writeAtRandom(ctx context.Context) error {
	f.say("writing %g documents a second for %s", f.rate, f.duration)
	writing, working := errgroup.WithContext(ctx)
	next := time.Now()
	for end := next.Add(f.duration); ; {
		next = next.Add(time.Duration(f.random.ExpFloat64() / f.rate * float64(time.Second)))
		if next.After(end) || lab.Pause(working, time.Until(next)) != nil {
			break
		}
		put := f.write("", f.random.IntN(f.jobs))
		writing.Go(func() error { return put(working) })
	}
	return writing.Wait()
}

// arrived waits until all documents have arrived, and reports on the time since before.
func (f *fleet) arrived(ctx context.Context, before usage) (*changes, error) {
	limited, cancel := f.within(ctx, "the arrival of the last change")
	defer cancel()
	if err := f.arrivals.await(limited); err != nil {
		return nil, err
	}
	used, err := f.since(ctx, before)
	if err != nil {
		return nil, err
	}
	return &changes{f.arrivals.take(), used}, nil
}

// atOnce writes to many sources at once.
func (f *fleet) atOnce(ctx context.Context) error {
	if f.has(caseParked) {
		if err := f.awaitParked(ctx); err != nil {
			return err
		}
	}
	sources := f.random.Perm(f.jobs)[:f.burst]
	before, err := f.begin(ctx)
	if err != nil {
		return err
	}
	f.say("writing to %d sources at once", f.burst)
	if err := f.writeAll(ctx, "", sources); err != nil {
		return err
	}
	f.report.Burst, err = f.arrived(ctx, before)
	return err
}

// restart kills the node and starts it again.
func (f *fleet) restart(ctx context.Context) error {
	if f.has(caseParked) {
		if err := f.awaitParked(ctx); err != nil {
			return err
		}
	}
	node := f.node
	f.node = nil
	if err := node.Close(); err != nil {
		return err
	}
	f.say("starting the node again")
	began := time.Now()
	if err := f.startNode(ctx); err != nil {
		return err
	}
	r := &restart{Answers: time.Since(began).Seconds()}
	if err := f.writeAll(ctx, "", []int{f.random.IntN(f.jobs)}); err != nil {
		return err
	}
	limited, cancel := f.within(ctx, "the arrival of a change after a restart")
	defer cancel()
	if err := f.arrivals.await(limited); err != nil {
		return err
	}
	r.Wakes = f.arrivals.take().Max / 1000
	rest, err := f.rest(ctx)
	r.Rest = rest
	f.report.Restart = r
	return err
}
