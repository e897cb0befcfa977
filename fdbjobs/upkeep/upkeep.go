// Package upkeep runs the repeated tasks that keep a store tidy. Each task is a job of one queue, so it continues
// elsewhere when a process dies, and only one process runs it.
package upkeep

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/retry"
)

// Queue is the name of the queue of the jobs, one for each [Task]. To run a task soon, add its job, named like the task,
// again.
const Queue = "upkeep"

const (
	// retryAfter is the time until a task runs again that has failed, or that this process does not know, if it is not due
	// earlier.
	retryAfter = time.Minute
	// pause is how long Run waits after an error of the store.
	pause = time.Second
	// endingTime is the time limit for queueing a task again after a run.
	endingTime = 5 * time.Second
)

// ErrUnfinished is what [Task].Run returns if it has ended early to let other tasks run. The task is due at once.
var ErrUnfinished = errors.New("the task goes on later")

// Task is a repeated task.
type Task struct {
	// Name is the id of its job.
	Name string
	// Every is the time between two runs.
	Every time.Duration
	// Run does the task in small transactions, until nothing is left to do or ctx ends. ctx also ends when the job is
	// no longer held. Tasks run one at a time, so one that takes long returns [ErrUnfinished] now and then. Run can store
	// what it needs with [fdbjobs.Held.Update]. It is in the job's state in the next run too. Run need not keep the job
	// alive.
	Run func(ctx context.Context, h *fdbjobs.Held) error
}

// Run runs tasks until ctx ends, one at a time. All processes that call it share the tasks. It also runs the monitor of
// their queue. layer keeps its jobs in db. failed is called when a task has failed and will run again, or with an empty
// name for an error of the store. Run returns ctx's error, or fdbjobs.ErrClosed.
func Run(ctx context.Context, db kv.Database, layer *fdbjobs.Layer, tasks []Task, failed func(task string, err error)) error {
	r := runner{db: db, queue: layer.Queue(Queue), failed: failed, tasks: map[string]Task{}}
	for _, task := range tasks {
		r.names, r.tasks[task.Name] = append(r.names, task.Name), task
	}
	ctx, cancel := context.WithCancel(ctx)
	var monitoring sync.WaitGroup
	monitoring.Go(func() {
		_ = r.queue.RunMonitor(ctx, func(_ []string, _ time.Duration, err error) { // ends with ctx
			if err != nil {
				failed("", err)
			}
		})
	})
	defer monitoring.Wait()
	defer cancel()
	for {
		err := r.addMissing(ctx)
		if err == nil {
			err = r.queue.Work(ctx, 1, r.run)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fdbjobs.ErrClosed):
			return err
		}
		failed("", err)
		_ = retry.Wait(ctx, pause)
	}
}

type runner struct {
	db     kv.Database
	queue  *fdbjobs.Queue
	names  []string // of the tasks
	tasks  map[string]Task
	failed func(task string, err error)
}

// run runs a task, and queues it again. It also adds tasks whose jobs were removed meanwhile.
func (r *runner) run(ctx context.Context, h *fdbjobs.Held) error {
	if err := r.addMissing(ctx); err != nil {
		r.failed("", err)
	}
	task, known := r.tasks[h.Job().ID]
	rest := task.Every
	if !known {
		rest = retryAfter // of another version
	} else if err := task.Run(ctx, h); errors.Is(err, ErrUnfinished) {
		rest = 0
	} else if err != nil {
		if ctx.Err() != nil {
			return err
		}
		r.failed(task.Name, err)
		rest = min(rest, retryAfter)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endingTime)
	defer cancel()
	err := h.Resubmit(ending, time.Now().Add(rest), nil, nil)
	if err != nil && !errors.Is(err, fdbjobs.ErrHalt) {
		r.failed("", fmt.Errorf("queueing the task %q: %w", task.Name, err))
	}
	return err
}

// addMissing adds the jobs of tasks that have none, or whose jobs have ended.
func (r *runner) addMissing(ctx context.Context) error {
	return r.db.Transact(ctx, func(tx kv.Transaction) error {
		reads := make([]kv.Future[*fdbjobs.Job], len(r.names))
		for i, name := range r.names {
			reads[i] = r.queue.Read(tx.Snapshot(), name) // Add reads them with conflicts
		}
		jobs, err := kv.All(reads)
		if err != nil {
			return err
		}
		var missing []fdbjobs.Spec
		for i, job := range jobs {
			if job == nil || job.Status == fdbjobs.Finished {
				missing = append(missing, fdbjobs.Spec{ID: r.names[i]})
			}
		}
		return r.queue.Add(tx, missing...)
	})
}
