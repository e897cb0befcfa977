package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"settee/scripts/internal/lab"
)

const (
	// addBatch is the number of replication documents in a request, and adders the number of requests at a time.
	addBatch, adders = 500, 4
	// spareFiles is how many files a process needs beside the connection of each changes feed.
	spareFiles = 2000
	// closeLimit is how long databases may take to be removed.
	closeLimit = time.Minute
)

// test is a run of this program.
type test struct {
	*options
	progress  io.Writer
	endpoints endpoints
	node      *lab.Node
	databases []string // the replicator databases, escaped
	report    report
}

// load runs a test. There is a report if the node was measured, even if not everything has arrived.
func load(ctx context.Context, o *options, progress io.Writer) (r *report, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if err := o.checkFiles(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "load-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t := &test{options: o, progress: progress}
	if o.settee == "" {
		o.settee = filepath.Join(dir, "settee")
		if err := lab.Build(ctx, o.settee); err != nil {
			return nil, err
		}
	}
	if t.report.Settee, err = lab.Version(ctx, o.settee); err != nil {
		return nil, err
	}
	if t.endpoints, err = openEndpoints(ctx, o, dir, fail); err != nil {
		return nil, err
	}
	closing := context.WithoutCancel(ctx)
	defer func() {
		ctx, cancel := context.WithTimeout(closing, closeLimit)
		defer cancel()
		err = errors.Join(err, t.endpoints.close(ctx))
	}()
	t.node, err = lab.StartNode(ctx, lab.NodeOptions{
		Program: o.settee, Store: o.store, Settings: o.settings, CPUs: o.nodeCPUs,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.node.Close()) }()
	watched, err := t.watch(ctx, fail)
	if err != nil {
		return nil, err
	}
	defer watched.end()
	defer func() {
		if o.store == "" || len(t.databases) == 0 || t.node.Ended() != nil {
			return
		}
		ctx, cancel := context.WithTimeout(closing, closeLimit)
		defer cancel()
		err = errors.Join(err, t.clean(ctx))
	}()
	return t.run(ctx, watched)
}

// checkFiles checks the limit of open files. Go raises the soft limit to the hard one.
func (o *options) checkFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if need := uint64(o.maxJobs) + spareFiles; limit.Max < need {
		return fmt.Errorf("%d jobs at a time need %d open files, and the limit is %d (ulimit -Hn)",
			o.maxJobs, need, limit.Max)
	}
	return nil
}

func (t *test) say(format string, args ...any) { _, _ = fmt.Fprintf(t.progress, format+"\n", args...) }

// within returns a context that ends after the limit, with the cause that something takes too long.
func (t *test) within(ctx context.Context, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, t.limit, fmt.Errorf("%s takes longer than %s", what, t.limit))
}

// run adds the jobs, and measures what the node does.
func (t *test) run(ctx context.Context, watched *watch) (*report, error) {
	if err := t.add(ctx); err != nil {
		return nil, cause(ctx, err)
	}
	t.say("%d jobs added in %.1f s", t.plan().Jobs, t.report.Added)
	measure := t.measureContinuous
	if t.once {
		measure = t.measureOnce
	}
	if err := measure(ctx, watched); err != nil {
		return nil, cause(ctx, err)
	}
	return t.finish(ctx)
}

// cause returns why a context has ended, or the error if it has not.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// add adds all jobs. None runs until setMaxJobs is called.
func (t *test) add(ctx context.Context) error {
	states, err := t.node.Jobs(ctx, func(map[string]int) bool { return true })
	if err != nil {
		return err
	}
	for state, n := range states {
		if n > 0 {
			return fmt.Errorf("the store is not empty: it has %d jobs that are %s", n, state)
		}
	}
	if err := t.setMaxJobs(ctx, 0); err != nil {
		return err
	}
	began := time.Now()
	prefix := "load-" + strings.ToLower(rand.Text())
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(adders)
	for n := range t.options.databases {
		name := url.PathEscape(fmt.Sprintf("%s-%d/_replicator", prefix, n))
		t.databases = append(t.databases, name)
		group.Go(func() error {
			if err := t.node.Ask(ctx, http.MethodPut, name, nil, nil); err != nil {
				return err
			}
			for first := n * t.jobs; first < (n+1)*t.jobs; first += addBatch {
				if err := t.addSome(ctx, name, first, min(first+addBatch, (n+1)*t.jobs)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = group.Wait()
	t.report.Added = time.Since(began).Seconds()
	return err
}

// addSome adds the jobs from first to before last to a replicator database.
func (t *test) addSome(ctx context.Context, name string, first, last int) error {
	var docs []map[string]any
	for job := first; job < last; job++ {
		source, target := t.endpoints.databases(job)
		doc := map[string]any{"_id": fmt.Sprintf("job-%d", job), "source": source, "target": target}
		switch {
		case t.every > 0:
			doc["every"] = t.every.String()
		case !t.once:
			doc["continuous"] = true
		}
		docs = append(docs, doc)
	}
	body, err := json.Marshal(map[string]any{"docs": docs})
	if err != nil {
		return err
	}
	var written []struct{ ID, Error, Reason string }
	if err := t.node.Ask(ctx, http.MethodPost, name+"/_bulk_docs", body, &written); err != nil {
		return err
	}
	for _, one := range written {
		if one.Error != "" {
			return fmt.Errorf("adding %s: %s: %s", one.ID, one.Error, one.Reason)
		}
	}
	return nil
}

const pathMaxJobs = "_node/_local/_config/replicator/max_jobs"

func (t *test) setMaxJobs(ctx context.Context, n int) error {
	return t.node.Ask(ctx, http.MethodPut, pathMaxJobs, fmt.Appendf(nil, `"%d"`, n), nil)
}

// clean removes what the test has left in a store that goes on. The node runs.
func (t *test) clean(ctx context.Context) error {
	err := t.node.Ask(ctx, http.MethodDelete, pathMaxJobs, nil, nil)
	for _, name := range t.databases {
		err = errors.Join(err, t.node.Ask(ctx, http.MethodDelete, name, nil, nil))
	}
	return err
}

// measureContinuous measures jobs that go on, while documents are written.
func (t *test) measureContinuous(ctx context.Context, watched *watch) error {
	began := time.Now()
	if err := t.setMaxJobs(ctx, t.maxJobs); err != nil {
		return err
	}
	starting, cancel := t.within(ctx, "starting the jobs")
	defer cancel()
	if t.every == 0 {
		_, err := t.node.Jobs(starting, func(states map[string]int) bool {
			return states["running"] >= min(t.maxJobs, t.plan().Jobs)
		})
		if err != nil {
			return cause(starting, err)
		}
	}
	if err := t.endpoints.await(starting); err != nil {
		return cause(starting, err)
	}
	t.report.Started = time.Since(began).Seconds()
	t.say("all jobs run, after %.1f s", t.report.Started)
	if err := t.endpoints.start(ctx); err != nil {
		return err
	}
	if err := lab.Pause(ctx, t.warmUp); err != nil {
		return err
	}
	if err := t.endpoints.open(ctx); err != nil {
		return err
	}
	if err := watched.open(ctx); err != nil {
		return err
	}
	if err := lab.Pause(ctx, t.duration); err != nil {
		return err
	}
	if err := watched.close(ctx, &t.report); err != nil {
		return err
	}
	ended := time.Now()
	if err := t.endpoints.end(ctx); err != nil {
		return err
	}
	t.say("measured; waiting for the last documents")
	arriving, cancel := t.within(ctx, "the arrival of the last document")
	defer cancel()
	if err := t.endpoints.await(arriving); err != nil && (arriving.Err() == nil || ctx.Err() != nil) {
		return err
	} // after the limit, finish says what is missing
	t.report.Drained = time.Since(ended).Seconds()
	return nil
}

// measureOnce measures jobs that end.
func (t *test) measureOnce(ctx context.Context, watched *watch) error {
	if err := t.endpoints.start(ctx); err != nil {
		return err
	}
	if err := t.endpoints.open(ctx); err != nil {
		return err
	}
	if err := watched.open(ctx); err != nil {
		return err
	}
	if err := t.setMaxJobs(ctx, t.maxJobs); err != nil {
		return err
	}
	ending, cancel := t.within(ctx, "the end of the last job")
	defer cancel()
	_, err := t.node.Jobs(ending, func(states map[string]int) bool {
		return states["completed"]+states["failed"] == t.plan().Jobs
	})
	if err != nil {
		return cause(ending, err)
	}
	return errors.Join(watched.close(ctx, &t.report), t.endpoints.end(ctx))
}

// finish completes the report. It returns an error, and the report, if something has not arrived.
func (t *test) finish(ctx context.Context) (*report, error) {
	c, err := t.endpoints.count(ctx)
	if err != nil {
		return nil, cause(ctx, err)
	}
	r := &t.report
	if r.Jobs, err = t.node.Jobs(ctx, func(map[string]int) bool { return true }); err != nil {
		return nil, cause(ctx, err)
	}
	r.complete(t.options, t.endpoints.about(), c)
	if len(c.Missing) > 0 {
		return r, fmt.Errorf("%d of %d documents have not arrived within %s, among them %s",
			r.Lost, c.Total.Due, t.limit, strings.Join(c.Missing, ", "))
	}
	return r, nil
}
