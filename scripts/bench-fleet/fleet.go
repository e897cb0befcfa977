package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"settee/scripts/internal/lab"
)

const (
	// makers is the number of databases that are made at a time, and writers the number of documents that are written.
	makers, writers = 16, 64
	// addBatch is the number of replication documents in a request, and adders the number of requests at a time.
	addBatch, adders = 100, 2
	// fewJobs is the number of jobs in the case few.
	fewJobs = 10
)

// endpoints have the databases.
type endpoints interface {
	Ask(ctx context.Context, method, path string, body []byte, into any) error
	Follow(ctx context.Context, name string, row func(id string)) error
	URL(path, address string) string
	Processor() (time.Duration, error)
	Close() error
}

// couchDBShards is the number of shards of a database, CouchDB's default.
const couchDBShards = 2

// openEndpoints starts what has the databases.
func openEndpoints(ctx context.Context, o *options) (endpoints, error) {
	if o.endpoints == setteeName {
		return lab.StartNode(ctx, lab.NodeOptions{
			Program: o.settee, Settings: []string{getsDocuments, quietLog},
		})
	}
	db, err := lab.OpenCouchDB(ctx, "", couchDBShards)
	if err != nil {
		return nil, err
	}
	switch o.endpoints {
	case couchDBName:
		err = db.Ask(ctx, http.MethodPut, "_global_changes", nil, nil)
	case couchDBAlone:
		err = ownReplicator(ctx, db)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// fleet is the databases, the node with the jobs, and what is known of both.
type fleet struct {
	*options
	progress  io.Writer
	dir       string
	endpoints endpoints
	node      *lab.Node   // gets the documents, and runs the jobs if there are no others
	others    []*lab.Node // with -nodes: the other frontend, and the nodes that run the jobs
	random    *rand.Rand
	numbers   []int // of documents written, by source
	arrivals  arrivals
	feeds     errgroup.Group
	fail      context.CancelCauseFunc
	report    report
}

// measure runs the cases. The report has those that were run, even with an error.
func measure(ctx context.Context, o *options, progress io.Writer) (r *report, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	dir, err := os.MkdirTemp("", "bench-fleet-")
	if err != nil {
		return nil, err
	}
	f := &fleet{
		options: o, progress: progress, dir: dir, random: rand.New(rand.NewPCG(o.seed, 0)), fail: fail,
		numbers: make([]int, max(o.jobs, fewJobs)), report: report{Endpoints: o.endpoints, Jobs: o.jobs, Slots: o.slots, Nodes: o.nodes},
	}
	feeding, endFeeds := context.WithCancel(ctx)
	defer func() {
		endFeeds()
		err = errors.Join(err, f.feeds.Wait(), f.stop(), os.RemoveAll(dir))
	}()
	if o.settee == "" {
		o.settee = filepath.Join(dir, "settee")
		if err := lab.Build(ctx, o.settee); err != nil {
			return nil, err
		}
	}
	if f.report.Settee, err = lab.Version(ctx, o.settee); err != nil {
		return nil, err
	}
	err = f.run(ctx, feeding)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return &f.report, err
}

func (f *fleet) stop() (err error) {
	for _, node := range f.running() {
		err = errors.Join(err, node.Close())
	}
	if f.endpoints != nil {
		err = errors.Join(err, f.endpoints.Close())
	}
	return err
}

func (f *fleet) say(format string, args ...any) {
	_, _ = fmt.Fprintf(f.progress, format+"\n", args...)
}

// within returns a context that ends after the limit, with the cause that something takes too long.
func (f *fleet) within(ctx context.Context, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, f.limit, fmt.Errorf("%s takes longer than %s", what, f.limit))
}

// run runs the cases.
func (f *fleet) run(ctx, feeding context.Context) error {
	opened, err := openEndpoints(ctx, f.options)
	if err != nil {
		return err
	}
	f.endpoints = opened
	alone := f.options.endpoints == couchDBAlone
	if f.has(caseFew) && !alone {
		if err := f.few(ctx, feeding); err != nil {
			return err
		}
	}
	if f.cases == caseFew {
		return nil
	}
	if f.store == "" {
		f.store = "pebble:" + filepath.Join(f.dir, "store")
	}
	if err := f.makeDatabases(ctx, feeding, f.jobs, f.targets, ""); err != nil {
		return err
	}
	if alone {
		return f.alone(ctx)
	}
	if err := f.startNodes(ctx); err != nil {
		return err
	}
	for _, one := range []struct {
		name string
		run  func(context.Context) error
	}{
		{caseFirst, f.first}, {caseParked, f.parked}, {caseChanges, f.changes}, {caseBurst, f.atOnce}, {caseRoll, f.roll}, {caseRestart, f.restart},
	} {
		if one.name != caseFirst && !f.has(one.name) {
			continue
		}
		if err := one.run(ctx); err != nil {
			return fmt.Errorf("the case %s: %w", one.name, err)
		}
	}
	return nil
}

const quietLog = "log/level=warning"

// running returns the nodes that run.
func (f *fleet) running() []*lab.Node {
	if f.node == nil {
		return f.others
	}
	return append([]*lab.Node{f.node}, f.others...)
}

// startNodes starts the nodes.
func (f *fleet) startNodes(ctx context.Context) error {
	if err := f.startNode(ctx); err != nil || f.nodes == 0 {
		return err
	}
	o := f.nodeOptions()
	o.Settings = append(o.Settings, getsDocuments)
	frontend, err := lab.StartNode(ctx, o)
	if err != nil {
		return err
	}
	f.others = append(f.others, frontend)
	for range f.nodes {
		node, err := f.startReplication(ctx)
		if err != nil {
			return err
		}
		f.others = append(f.others, node)
	}
	f.say("%d nodes started", len(f.others)+1)
	return nil
}

// getsDocuments is the setting of a node that runs no jobs.
const getsDocuments = "node_types/replication=false"

func (f *fleet) nodeOptions() lab.NodeOptions {
	return lab.NodeOptions{Program: f.settee, Store: f.store, Settings: []string{
		fmt.Sprintf("settee/memory_limit_bytes=%d", f.memory<<20),
		fmt.Sprintf("replicator/max_jobs=%d", f.slots),
		fmt.Sprintf("replicator/idle_timeout_sec=%d", int(f.idle.Seconds())),
		fmt.Sprintf("replicator/max_idle_sec=%d", int(f.look.Seconds())),
		quietLog,
	}}
}

// startReplication starts a node that only runs jobs.
func (f *fleet) startReplication(ctx context.Context) (*lab.Node, error) {
	o := f.nodeOptions()
	o.Replication = true
	return lab.StartNode(ctx, o)
}

// startNode starts the node that gets the documents.
func (f *fleet) startNode(ctx context.Context) (err error) {
	o := f.nodeOptions()
	if f.nodes > 0 {
		o.Settings = append(o.Settings, getsDocuments)
	}
	f.node, err = lab.StartNode(ctx, o)
	return err
}

// sourceName and targetName return the names of databases. Those of the case few have a prefix.
func sourceName(prefix string, job int) string { return fmt.Sprintf("%ss%d", prefix, job) }

func targetName(prefix string, target int) string { return fmt.Sprintf("%st%d", prefix, target) }

// makeDatabases makes sources and targets, and follows the targets.
func (f *fleet) makeDatabases(ctx, feeding context.Context, sources, targets int, prefix string) error {
	began := time.Now()
	making, working := errgroup.WithContext(ctx)
	making.SetLimit(makers)
	for n := range sources + targets {
		name := sourceName(prefix, n)
		if n >= sources {
			name = targetName(prefix, n-sources)
		}
		making.Go(func() error { return f.endpoints.Ask(working, http.MethodPut, name, nil, nil) })
	}
	if err := making.Wait(); err != nil {
		return err
	}
	for n := range targets {
		f.feeds.Go(func() error {
			if err := f.endpoints.Follow(feeding, targetName(prefix, n), f.arrivals.arrive); err != nil {
				f.fail(err)
			}
			return nil
		})
	}
	f.say("%d databases made in %.1f s", sources+targets, time.Since(began).Seconds())
	return nil
}

// login makes a request to the databases. A node remembers a login for a minute, and refuses many at a time that it does
// not remember.
func (f *fleet) login(ctx context.Context) error {
	return f.endpoints.Ask(ctx, http.MethodGet, "_session", nil, nil)
}

// write makes a new document of a source due, and returns a function that writes it.
func (f *fleet) write(prefix string, source int) func(context.Context) error {
	id := fmt.Sprintf("%s%d-%d", prefix, source, f.numbers[source])
	f.numbers[source]++
	f.arrivals.expect(id)
	return func(ctx context.Context) error {
		err := f.endpoints.Ask(ctx, http.MethodPut, sourceName(prefix, source)+"/"+id, []byte(`{"text":"changed"}`), nil)
		if err == nil {
			f.arrivals.wrote(id)
		}
		return err
	}
}

// writeAll writes a document to each source.
func (f *fleet) writeAll(ctx context.Context, prefix string, sources []int) error {
	if err := f.login(ctx); err != nil {
		return err
	}
	writing, ctx := errgroup.WithContext(ctx)
	writing.SetLimit(writers)
	for _, source := range sources {
		put := f.write(prefix, source)
		writing.Go(func() error { return put(ctx) })
	}
	return writing.Wait()
}

// numbersTo returns the numbers from 0 to before n.
func numbersTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// addJobs adds replication documents to a node.
func (f *fleet) addJobs(ctx context.Context, node endpoints, prefix string, jobs, targets int) error {
	adding, ctx := errgroup.WithContext(ctx)
	adding.SetLimit(adders)
	for first := 0; first < jobs; first += addBatch {
		adding.Go(func() error {
			var docs []map[string]any
			for job := first; job < min(first+addBatch, jobs); job++ {
				docs = append(docs, map[string]any{
					"_id": fmt.Sprintf("job-%d", job), "continuous": true,
					"source": f.endpoints.URL(sourceName(prefix, job), ""),
					"target": f.endpoints.URL(targetName(prefix, job%targets), ""),
				})
			}
			body, err := json.Marshal(map[string]any{"docs": docs})
			if err != nil {
				return err
			}
			var written []struct{ ID, Error, Reason string }
			if err := node.Ask(ctx, http.MethodPost, "_replicator/_bulk_docs", body, &written); err != nil {
				return err
			}
			for _, one := range written {
				if one.Error != "" {
					return fmt.Errorf("adding %s: %s: %s", one.ID, one.Error, one.Reason)
				}
			}
			return nil
		})
	}
	return adding.Wait()
}
