package peers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	_ "settee/pkg/kv/pebblekv" // the embedded store
	"settee/scripts/bench/lab"
)

// fdbjobsQueue is fdbjobs on a store.
type fdbjobsQueue struct {
	progress *progress
	workers  int
	stop     func() // ends the server
	db       kv.Database
	layer    *fdbjobs.Layer
	jobs     *fdbjobs.Queue
}

// systems returns River, fdbjobs on the embedded store, and fdbjobs on FoundationDB if its engine is in the binary.
func systems() []system {
	all := []system{{"River", openRiver}, {"fdbjobs, embedded", func(ctx context.Context, r *lab.Run, workers int, p *progress) (queue, error) {
		dir, err := os.MkdirTemp(r.Dir, "store-")
		if err != nil {
			return nil, err
		}
		return openFdbjobs(ctx, "pebble:"+dir, workers, p, func() {})
	}}}
	if !slices.Contains(kv.Engines(), "fdb") {
		return all
	}
	return append(all, system{"fdbjobs on FoundationDB", func(ctx context.Context, r *lab.Run, workers int, p *progress) (queue, error) {
		store, stop, err := r.StartFoundationDB(ctx)
		if err != nil {
			return nil, err
		}
		return openFdbjobs(ctx, store, workers, p, stop)
	}})
}

func openFdbjobs(ctx context.Context, store string, workers int, p *progress, stop func()) (queue, error) {
	db, err := kv.Open(ctx, store, kv.Options{})
	if err != nil {
		return nil, err
	}
	layer := fdbjobs.Open(db, []byte("jobs/"), fdbjobs.Options{})
	return &fdbjobsQueue{progress: p, workers: workers, stop: stop, db: db, layer: layer, jobs: layer.Queue("bench")}, nil
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
		counts, _, err := q.jobs.Counts(tx, fdbjobs.Selection{Parts: []fdbjobs.Part{ended}})
		return counts[ended], err
	})
	return int(n), err
}

func (q *fdbjobsQueue) close() {
	q.layer.Close()
	if err := q.db.Close(); err != nil {
		q.progress.fail(err)
	}
	q.stop()
}
