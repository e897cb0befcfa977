package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"settee/scripts/internal/lab"
)

// startLimit is how long the jobs of a turn may take until all have copied their first document.
const startLimit = 10 * time.Minute

// continuous is a turn with continuous jobs, one for each source.
type continuous struct {
	b                *bench
	sources, targets []string
	node             *lab.Node // nil in CouchDB's turns
	arrivals         arrivals
}

// startContinuous starts jobs and returns when each of them has copied a document.
func startContinuous(ctx context.Context, b *bench, s system, sources []string) (c *continuous, err error) {
	c = &continuous{b: b, sources: sources, arrivals: arrivals{seen: map[string]chan time.Time{}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.end(context.WithoutCancel(ctx)))
		}
	}()
	if c.targets, err = b.empty(ctx, len(sources)); err != nil {
		return c, err
	}
	host := b.server.Server
	if s == settee {
		c.node, err = lab.StartNode(ctx, lab.NodeOptions{Program: b.program, Settings: []string{"replicator/max_jobs=100000"}})
		if err != nil {
			return c, err
		}
		host = c.node.Server
	}
	for i := range sources {
		if err := b.server.put(ctx, sources[i], b.server.newID()); err != nil {
			return c, err
		}
		if err := b.replicate(ctx, host, b.server.URL(sources[i], ""), b.server.URL(c.targets[i], ""), continuously); err != nil {
			return c, err
		}
	}
	return c, c.awaitAll(ctx)
}

var continuously = map[string]any{"continuous": true}

// awaitAll returns when each target has as many documents as its source.
func (c *continuous) awaitAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errors.New("the jobs do not copy"))
	defer cancel()
	for i := range c.sources {
		for c.b.sameCount(ctx, c.sources[i], c.targets[i]) != nil {
			if err := lab.Pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// end ends the jobs and removes the targets.
func (c *continuous) end(ctx context.Context) error {
	var all error
	if c.node != nil {
		all = c.node.Close()
	} else {
		for i := range c.targets {
			_ = c.b.replicate(ctx, c.b.server.Server, c.b.server.URL(c.sources[i], ""), c.b.server.URL(c.targets[i], ""),
				map[string]any{"continuous": true, "cancel": true}) // a job that was not started cannot be cancelled
		}
	}
	return errors.Join(all, c.b.server.Remove(ctx, c.targets...))
}

// measure returns the costs of f, and the delays that f returns.
func (c *continuous) measure(ctx context.Context, f func(context.Context) ([]time.Duration, error)) (m sample, err error) {
	if err := c.b.server.rest(ctx); err != nil {
		return m, err
	}
	costs := func() (endpoints, own time.Duration, err error) {
		if endpoints, err = c.b.server.Processor(); err == nil && c.node != nil {
			own, err = c.node.Processor()
		}
		return endpoints, own, err
	}
	endpoints, own, err := costs()
	if err != nil {
		return m, err
	}
	began := time.Now()
	if m.delays, err = f(ctx); err != nil {
		return m, err
	}
	m.wall = time.Since(began)
	if m.endpoints, m.own, err = costs(); err != nil {
		return m, err
	}
	m.endpoints -= endpoints
	m.own -= own
	if c.node != nil {
		_, m.memory, err = c.node.Memory()
	}
	return m, err
}

// arrivals are the moments when documents are on their targets.
type arrivals struct {
	mu   sync.Mutex
	seen map[string]chan time.Time
}

// of returns the channel that receives the moment for a document. It has a buffer of one.
func (a *arrivals) of(id string) chan time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen[id] == nil {
		a.seen[id] = make(chan time.Time, 1)
	}
	return a.seen[id]
}

// watch reads the changes feed of a target until ctx ends.
func (c *continuous) watch(ctx context.Context, target string) error {
	return c.b.server.Follow(ctx, target, func(id string) {
		select {
		case c.arrivals.of(id) <- time.Now():
		default: // a feed may repeat a row
		}
	})
}

// deliverOne writes a document, and returns how long after the answer it is on the target.
func (c *continuous) deliverOne(ctx context.Context, source string) (time.Duration, error) {
	id := c.b.server.newID()
	there := c.arrivals.of(id)
	if err := c.b.server.put(ctx, source, id); err != nil {
		return 0, err
	}
	written := time.Now()
	select {
	case at := <-there:
		return max(0, at.Sub(written)), nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// watched calls f while the targets are watched.
func (c *continuous) watched(ctx context.Context, f func(context.Context) ([]time.Duration, error)) ([]time.Duration, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	group, working := errgroup.WithContext(ctx)
	var feeds errgroup.Group
	for _, target := range c.targets {
		feeds.Go(func() error {
			err := c.watch(watching, target)
			if err != nil {
				group.Go(func() error { return err })
			}
			return err
		})
	}
	var delays []time.Duration
	group.Go(func() (err error) {
		defer stop()
		delays, err = f(working)
		return err
	})
	err := group.Wait()
	stop()
	return delays, errors.Join(err, feeds.Wait())
}

// runContinuous starts jobs, measures f and ends the jobs.
func runContinuous(
	ctx context.Context, b *bench, s system, sources []string, f func(context.Context, *continuous) ([]time.Duration, error),
) (m sample, err error) {
	c, err := startContinuous(ctx, b, s, sources)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, c.end(context.WithoutCancel(ctx))) }()
	return c.measure(ctx, func(ctx context.Context) ([]time.Duration, error) { return f(ctx, c) })
}

// deliver writes documents one after the other.
func deliver(ctx context.Context, b *bench, _ benchCase, s system, sources []string) (sample, error) {
	return runContinuous(ctx, b, s, sources, func(ctx context.Context, c *continuous) ([]time.Duration, error) {
		return c.watched(ctx, func(ctx context.Context) ([]time.Duration, error) {
			var delays []time.Duration
			for range b.options.deliveries {
				if err := lab.Pause(ctx, b.options.pausing); err != nil {
					return nil, err
				}
				delay, err := c.deliverOne(ctx, sources[0])
				if err != nil {
					return nil, err
				}
				delays = append(delays, delay)
			}
			return delays, nil
		})
	})
}

// deliverMany writes a document a second to each source.
func deliverMany(ctx context.Context, b *bench, _ benchCase, s system, sources []string) (sample, error) {
	return runContinuous(ctx, b, s, sources, func(ctx context.Context, c *continuous) ([]time.Duration, error) {
		return c.watched(ctx, func(ctx context.Context) ([]time.Duration, error) {
			seconds := int(b.options.manyTime / time.Second)
			delays := make([]time.Duration, seconds*len(sources))
			began := time.Now()
			group, ctx := errgroup.WithContext(ctx)
			for n := range delays {
				at := began.Add(time.Duration(n) * time.Second / time.Duration(len(sources)))
				if err := lab.Pause(ctx, time.Until(at)); err != nil {
					break
				}
				group.Go(func() (err error) {
					delays[n], err = c.deliverOne(ctx, sources[n%len(sources)])
					return err
				})
			}
			return delays, group.Wait()
		})
	})
}

// burst writes documents as fast as the source takes them, and waits until all are on the target.
func burst(ctx context.Context, b *bench, _ benchCase, s system, sources []string) (sample, error) {
	return runContinuous(ctx, b, s, sources, func(ctx context.Context, c *continuous) ([]time.Duration, error) {
		if err := b.server.fill(ctx, sources[0], b.options.burst, b.options.docSize, 0, 1, ""); err != nil {
			return nil, err
		}
		want, err := b.server.count(ctx, sources[0])
		for got := -1; err == nil && got != want; {
			if err = lab.Pause(ctx, 20*time.Millisecond); err == nil {
				got, err = b.server.count(ctx, c.targets[0])
			}
		}
		return nil, err
	})
}

// idle lets the jobs wait.
func idle(ctx context.Context, b *bench, _ benchCase, s system, sources []string) (sample, error) {
	return runContinuous(ctx, b, s, sources, func(ctx context.Context, _ *continuous) ([]time.Duration, error) {
		return nil, lab.Pause(ctx, b.options.idleTime)
	})
}
