package lab

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"settee/pkg/retry"
)

// What has the databases: a node of settee, or the installed CouchDB with the feed _db_updates or without it. With the last one
// CouchDB also runs the jobs, with its default settings.
const (
	OnSettee             = "settee"
	OnCouchDB            = "couchdb"
	OnCouchDBWithoutFeed = "couchdb-without-feed"
	OnCouchDBAlone       = "couchdb-alone"
)

// NoJobs is the setting of a node that runs no jobs.
const NoJobs = "node_types/replication=false"

// StartEndpoints starts what has the databases.
func (r *Run) StartEndpoints(ctx context.Context, kind string) (*Server, error) {
	if kind == OnSettee {
		node, err := r.StartNode(ctx, NodeOptions{Settings: []string{NoJobs}})
		if err != nil {
			return nil, err
		}
		return node.Server, nil
	}
	db, err := r.startCouchDB(ctx)
	if err == nil && kind == OnCouchDB {
		err = db.Ask(ctx, http.MethodPut, "_global_changes", nil, nil)
	}
	return db, err
}

// Databases are the sources and targets of jobs, and the documents on their way. The sources are s0, s1 and so on, and the
// targets t0, t1 and so on. A job has the source and the target with its number, modulo the numbers of sources and targets.
type Databases struct {
	Sources, Targets, Jobs int

	Arrivals
	// URL returns the URL of a database, with credentials.
	URL func(name string) string
	// Put writes a document of a source. Its id is ID(source, number).
	Put func(ctx context.Context, source, number int) error

	mu      sync.Mutex
	numbers map[int]int // of documents written, by source
}

// ID returns the id of a document.
func ID(source, number int) string { return fmt.Sprintf("%d-%d", source, number) }

// makers is the number of databases that are made at a time, and writers the number of documents that WriteTo writes.
const makers, writers = 16, 64

// Make makes the databases on a server, and follows the targets until the run ends. Documents have a text.
func (d *Databases) Make(ctx context.Context, r *Run, s *Server, text string) error {
	began := time.Now()
	d.URL = func(name string) string { return s.URL(name, "") }
	d.Put = func(ctx context.Context, source, number int) error {
		path := "s" + strconv.Itoa(source) + "/" + ID(source, number)
		return s.Ask(ctx, http.MethodPut, path, map[string]string{"text": text}, nil)
	}
	err := Each(ctx, makers, d.Sources+d.Targets, func(ctx context.Context, n int) error {
		name := "s" + strconv.Itoa(n)
		if n >= d.Sources {
			name = "t" + strconv.Itoa(n-d.Sources)
		}
		return s.Ask(ctx, http.MethodPut, name, nil, nil)
	})
	if err != nil {
		return err
	}
	for n := range d.Targets {
		r.Go(ctx, func(ctx context.Context) {
			if err := s.follow(ctx, "t"+strconv.Itoa(n), d.Arrive); ctx.Err() == nil {
				r.Fail(err)
			}
		})
	}
	r.Say("%d databases made in %.1f s", d.Sources+d.Targets, time.Since(began).Seconds())
	return nil
}

// Write writes a new document to a source.
func (d *Databases) Write(ctx context.Context, source int) error {
	d.mu.Lock()
	if d.numbers == nil {
		d.numbers = map[int]int{}
	}
	number := d.numbers[source]
	d.numbers[source]++
	d.mu.Unlock()
	d.expect(ID(source, number), (d.Jobs-source+d.Sources-1)/d.Sources) // a target of each job that reads the source
	err := d.Put(ctx, source, number)
	if err == nil {
		d.wrote(ID(source, number))
	}
	return err
}

// WriteAll writes documents to all sources, so many to each.
func (d *Databases) WriteAll(ctx context.Context, docs int) error {
	sources := make([]int, docs*d.Sources)
	for n := range sources {
		sources[n] = n % d.Sources
	}
	return d.WriteTo(ctx, sources)
}

// WriteTo writes a document to each of some sources.
func (d *Databases) WriteTo(ctx context.Context, sources []int) error {
	return Each(ctx, writers, len(sources), func(ctx context.Context, n int) error { return d.Write(ctx, sources[n]) })
}

// WriteDuring calls f, and meanwhile writes documents to random sources at random times (a Poisson process), so many a second.
// It returns when f has returned and all writes were answered.
func (d *Databases) WriteDuring(ctx context.Context, random *rand.Rand, rate float64, f func(context.Context) error) error {
	return Both(ctx, func(ctx context.Context) error { return d.writeAtRandom(ctx, random, rate) }, f)
}

// maxWriting is the number of documents that writeAtRandom writes at a time.
const maxWriting = 100

// writeAtRandom writes documents until ctx ends.
func (d *Databases) writeAtRandom(ctx context.Context, random *rand.Rand, rate float64) error {
	writing, working := errgroup.WithContext(ctx)
	writing.SetLimit(maxWriting)
	for at := time.Now(); rate > 0; {
		at = at.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		if retry.Wait(working, time.Until(at)) != nil {
			break
		}
		source := random.IntN(d.Sources)
		// A write that has begun goes on, since it is unknown whether one that is given up happens.
		writing.Go(func() error { return d.Write(context.WithoutCancel(ctx), source) })
	}
	return writing.Wait()
}

// addBatch is the number of replication documents in a request, and adders the number of requests at a time.
const addBatch, adders = 100, 2

// AddJobs adds the jobs from first to before last to a replicator database. more returns further fields of a job's document.
func (d *Databases) AddJobs(ctx context.Context, node *Server, database string, first, last int, more map[string]any) error {
	return InBatches(ctx, adders, addBatch, first, last, func(ctx context.Context, begin, end int) error {
		var docs []map[string]any
		for job := begin; job < end; job++ {
			doc := map[string]any{
				"_id":    "job-" + strconv.Itoa(job),
				"source": d.URL("s" + strconv.Itoa(job%d.Sources)), "target": d.URL("t" + strconv.Itoa(job%d.Targets)),
			}
			maps.Copy(doc, more)
			docs = append(docs, doc)
		}
		return node.bulk(ctx, database, docs)
	})
}

// Each calls f with the numbers from 0 to before n, some at a time.
func Each(ctx context.Context, atATime, n int, f func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(atATime)
	for i := range n {
		all.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return f(ctx, i)
		})
	}
	return all.Wait()
}

// InBatches calls f with the numbers from begin to before end, each time with the next batch of them, some batches at a time.
func InBatches(ctx context.Context, atATime, batch, begin, end int, f func(ctx context.Context, begin, end int) error) error {
	return Each(ctx, atATime, (end-begin+batch-1)/batch, func(ctx context.Context, n int) error {
		return f(ctx, begin+n*batch, min(begin+(n+1)*batch, end))
	})
}

// Choose checks that a value is one of some.
func Choose(what, value string, all ...string) error {
	if slices.Contains(all, value) {
		return nil
	}
	return fmt.Errorf("there is no %s %q", what, value)
}
