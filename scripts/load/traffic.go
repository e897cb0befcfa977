package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"settee/scripts/internal/lab"
)

const (
	// maxNamed is the largest number of missing documents that are named.
	maxNamed = 5
	// word is the number of bits of a uint64.
	word = 64
)

// plan says which databases there are, and what is written.
type plan struct {
	Jobs    int
	Sources int     // job n reads source n % Sources, and has a target of its own
	Docs    int     // in each source at the beginning
	DocSize int     // bytes
	Rate    float64 // documents a second, in all sources together
	Seed    uint64
}

func (p plan) source(job int) int { return job % p.Sources }

// readers returns the number of jobs that read a source.
func (p plan) readers(source int) int64 { return int64((p.Jobs - source + p.Sources - 1) / p.Sources) }

// traffic counts documents that are written to sources, and their arrivals at the targets of jobs. The documents of a
// source have numbers from 0.
type traffic struct {
	plan
	put func(ctx context.Context, source, doc int) error // writes a document

	random  *rand.Rand
	stop    context.CancelFunc // ends the writing
	writing chan error         // its result

	mu      sync.Mutex
	written [][]time.Time // by source and document
	arrived [][]uint64    // by job: a bit for each document
	settled chan struct{} // closed when everything has arrived; nil if nothing waits for that
	total   flow
	opened  flow // total when the window was opened
	window  flow // what happened in the window
	from    time.Time
	until   time.Time
	delays  []time.Duration // of documents that were written in the window
	again   int64
}

// flow is what has happened until a moment, or between two.
type flow struct {
	Written int64 // documents
	Due     int64 // arrivals of these: one for each job that reads the source
	Arrived int64
}

func (f flow) since(g flow) flow {
	return flow{f.Written - g.Written, f.Due - g.Due, f.Arrived - g.Arrived}
}

// counts are the counts of a traffic and of its endpoints.
type counts struct {
	Total, Window flow
	// Seconds is the length of the window.
	Seconds float64
	// Backlog is the number of arrivals that were due at the end of the window.
	Backlog int64
	// Again is the number of documents that arrived more than once.
	Again int64
	// Missing names some of the documents that have not arrived.
	Missing []string
	// P50 to Max are percentiles of the delays of documents that were written in the window.
	P50, P90, P99, Max time.Duration
	// Checkpoints is the number of written checkpoints, two for each. It is nil if the endpoints do not count them.
	Checkpoints *int64
	// Unknown are requests that the endpoints could not answer.
	Unknown []string
}

func newTraffic(p plan, put func(ctx context.Context, source, doc int) error) *traffic {
	return &traffic{
		plan: p, put: put, random: rand.New(rand.NewPCG(p.Seed, 0)),
		written: make([][]time.Time, p.Sources), arrived: make([][]uint64, p.Jobs),
	}
}

// fill writes the documents of the beginning.
func (t *traffic) fill(ctx context.Context) error {
	for source := range t.Sources {
		for range t.Docs {
			if err := t.add(ctx, source); err != nil {
				return err
			}
		}
	}
	return nil
}

// add writes a new document.
func (t *traffic) add(ctx context.Context, source int) error { return t.begin(source)(ctx) }

// begin makes a document of a source due, and returns a function that writes it.
func (t *traffic) begin(source int) func(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	doc := len(t.written[source])
	t.written[source] = append(t.written[source], time.Now())
	t.total.Written++
	t.total.Due += t.readers(source)
	return func(ctx context.Context) error {
		if err := t.put(ctx, source, doc); err != nil {
			return fmt.Errorf("writing to a source: %w", err)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.written[source][doc] = time.Now()
		return nil
	}
}

// arrive counts documents that have arrived at the target of a job.
func (t *traffic) arrive(job int, docs []int) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, doc := range docs {
		written := t.written[t.source(job)][doc]
		if t.has(job, doc) {
			t.again++
			continue
		}
		for len(t.arrived[job]) <= doc/word {
			t.arrived[job] = append(t.arrived[job], 0)
		}
		t.arrived[job][doc/word] |= 1 << (doc % word)
		t.total.Arrived++
		if !t.from.IsZero() && !written.Before(t.from) && (t.until.IsZero() || written.Before(t.until)) {
			t.delays = append(t.delays, now.Sub(written))
		}
	}
	if t.settled != nil && t.total.Arrived == t.total.Due {
		close(t.settled)
		t.settled = nil
	}
}

// has reports whether a document has arrived. The caller holds t.mu.
func (t *traffic) has(job, doc int) bool {
	bits := t.arrived[job]
	return doc/word < len(bits) && bits[doc/word]&(1<<(doc%word)) != 0
}

// lacks returns the documents that have not arrived at the target of a job.
func (t *traffic) lacks(job int, docs []int) []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(docs, func(doc int) bool { return t.has(job, doc) })
}

// start begins to write documents to random sources, at random times (a Poisson process).
func (t *traffic) start(ctx context.Context) error {
	t.writing = make(chan error, 1)
	ctx, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() { t.writing <- t.write(ctx) }()
	return nil
}

// maxWriting is the number of documents that may be written at the same time.
const maxWriting = 100

func (t *traffic) write(ctx context.Context) error {
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(maxWriting)
	for next := time.Now(); t.Rate > 0; {
		next = next.Add(time.Duration(t.random.ExpFloat64() / t.Rate * float64(time.Second)))
		if lab.Pause(working, time.Until(next)) != nil {
			break
		}
		put := t.begin(t.random.IntN(t.Sources))
		// A write that has begun goes on, since it is unknown whether one that is given up happens.
		group.Go(func() error { return put(context.WithoutCancel(ctx)) })
	}
	return group.Wait()
}

// open opens the window.
func (t *traffic) open(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.from, t.opened = time.Now(), t.total
	return nil
}

// end ends the writing and the window.
func (t *traffic) end(context.Context) error {
	t.mu.Lock()
	t.until = time.Now()
	t.window = t.total.since(t.opened)
	t.mu.Unlock()
	t.stop()
	return <-t.writing
}

// await returns when everything that was written has arrived.
func (t *traffic) await(ctx context.Context) error {
	t.mu.Lock()
	if t.total.Arrived == t.total.Due {
		t.mu.Unlock()
		return nil
	}
	if t.settled == nil {
		t.settled = make(chan struct{})
	}
	settled := t.settled
	t.mu.Unlock()
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// count returns the counts until now.
func (t *traffic) count(context.Context) (counts, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(t.delays)
	c := counts{
		Total: t.total, Window: t.window, Seconds: t.until.Sub(t.from).Seconds(), Again: t.again,
		P50: lab.Percentile(t.delays, 50), P90: lab.Percentile(t.delays, 90), P99: lab.Percentile(t.delays, 99),
		Max: lab.Percentile(t.delays, 100),
	}
	c.Backlog = t.opened.Due - t.opened.Arrived + t.window.Due - t.window.Arrived
	for job := range t.Jobs {
		for doc := range t.written[t.source(job)] {
			if len(c.Missing) == maxNamed || t.total.Arrived == t.total.Due {
				return c, nil
			}
			if !t.has(job, doc) {
				c.Missing = append(c.Missing, fmt.Sprintf("%s of source %d at target %d", docID(doc), t.source(job), job))
			}
		}
	}
	return c, nil
}
