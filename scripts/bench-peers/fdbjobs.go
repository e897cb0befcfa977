package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"settee/fdbjobs"
	"settee/internal/servers"
	"settee/pkg/kv"
	_ "settee/pkg/kv/pebblekv" // the embedded store
)

// fdbjobsQueue is fdbjobs on a store.
type fdbjobsQueue struct {
	progress *progress
	workers  int
	db       kv.Database
	stop     func() // ends the server
	layer    *fdbjobs.Layer
	jobs     *fdbjobs.Queue
}

// findStores returns fdbjobs on the embedded store, and on FoundationDB if its engine is in the binary.
func findStores() ([]system, error) {
	found := []system{{
		name:  "fdbjobs, embedded",
		about: "fdbjobs on Pebble",
		open: func(ctx context.Context, dir string, workers int, p *progress) (queue, error) {
			return openFdbjobs(ctx, url.URL{Scheme: "pebble", Path: dir}, workers, p, func() {})
		},
	}}
	if !slices.Contains(kv.Engines(), "fdb") {
		return found, nil
	}
	_, _, err := servers.FindFoundationDB()
	return append(found, system{
		name:  "fdbjobs on FoundationDB",
		about: "FoundationDB of one process with the engine memory",
		open: func(ctx context.Context, dir string, workers int, p *progress) (queue, error) {
			cluster, err := servers.StartFoundationDB(ctx, servers.FoundationDBOptions{Dir: dir})
			if err != nil {
				return nil, err
			}
			return openFdbjobs(ctx, url.URL{Scheme: "fdb", Path: cluster.ClusterFile}, workers, p, cluster.Stop)
		},
	}), err
}

func openFdbjobs(ctx context.Context, store url.URL, workers int, p *progress, stop func()) (queue, error) {
	db, err := kv.Open(ctx, store.String(), kv.Options{})
	if err != nil {
		stop()
		return nil, err
	}
	layer := fdbjobs.Open(db, []byte("jobs/"), fdbjobs.Options{})
	return &fdbjobsQueue{progress: p, workers: workers, db: db, stop: stop, layer: layer, jobs: layer.Queue("bench")}, nil
}

func (q *fdbjobsQueue) add(ctx context.Context, begin, end int) error {
	specs := make([]fdbjobs.Spec, 0, end-begin)
	for n := begin; n < end; n++ {
		specs = append(specs, fdbjobs.Spec{
			ID: strconv.Itoa(n), Owner: "bench", Args: fmt.Appendf(nil, `{"number":%d}`, n), Token: rand.Text(),
		})
	}
	return q.db.Transact(ctx, func(tx kv.Transaction) error { return q.jobs.Add(tx, specs...) })
}

func (q *fdbjobsQueue) work(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		_ = q.jobs.RunMonitor(ctx, func(_ []string, _ time.Duration, err error) { // ends with ctx
			if err != nil {
				q.progress.fail(err)
			}
		})
	})
	for range q.workers {
		running.Go(func() {
			for ctx.Err() == nil {
				if err := q.runNext(ctx); err != nil && ctx.Err() == nil {
					q.progress.fail(err)
				}
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}, nil
}

// runNext waits for a job and runs it.
func (q *fdbjobsQueue) runNext(ctx context.Context) error {
	held, err := q.jobs.Accept(ctx, fdbjobs.AcceptOptions{})
	if err != nil {
		return err
	}
	job := held[0]
	number, err := strconv.Atoi(job.Job().ID)
	if err != nil {
		return err
	}
	q.progress.jobStarted(number)
	var last json.RawMessage
	if q.progress.update {
		if err := job.Update(ctx, json.RawMessage(`{"s":1}`), nil); err != nil {
			return err
		}
		last = json.RawMessage(`{"s":2}`)
	}
	if err := job.Finish(ctx, last, nil); err != nil {
		return err
	}
	q.progress.jobFinished()
	return nil
}

func (q *fdbjobsQueue) finished(ctx context.Context) (int, error) {
	ended := fdbjobs.Part{Status: fdbjobs.Finished}
	n, err := kv.TransactValue(ctx, q.db, func(tx kv.Transaction) (int64, error) {
		counts, _, err := q.jobs.Index().Counts(tx, ended)
		return counts[ended], err
	})
	return int(n), err
}

// commit implements committer.
func (q *fdbjobsQueue) commit(ctx context.Context, number int) error {
	key := fmt.Appendf(nil, "plain/%d", number)
	return q.db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Set(key, key)
		return nil
	})
}

func (q *fdbjobsQueue) close() error {
	q.layer.Close()
	err := q.db.Close()
	q.stop()
	return err
}
