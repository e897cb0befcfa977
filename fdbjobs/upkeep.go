package fdbjobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"settee/pkg/kv"
)

// UpkeepQueue is the name of the queue of the jobs that keep a store tidy, one for each [Task]. As jobs they continue
// elsewhere when a process dies, and only one process runs each. To run a task soon, add its job, named like the task,
// again.
const UpkeepQueue = "upkeep"

const (
	// upkeepRetry is the time until a task runs again that has failed, or that this process does not know, if it is not
	// due earlier.
	upkeepRetry = time.Minute
	// upkeepPause is how long RunUpkeep waits after an error of the store.
	upkeepPause = time.Second
)

// Task is a repeated task of upkeep.
type Task struct {
	// Name is the id of its job.
	Name string
	// Every is the time between two runs.
	Every time.Duration
	// Run does the task in small transactions, until nothing is left to do or ctx ends. ctx also ends when the job is
	// no longer held. Run can store what it needs with [Held.Update]. It is in the job's state in the next run too. Run
	// need not keep the job alive.
	Run func(ctx context.Context, h *Held) error
}

// UpkeepOptions are the options of [Layer.RunUpkeep].
type UpkeepOptions struct {
	Tasks []Task
	// Failed, if not nil, is called when a task failed and will run again, or with an empty name for an error of the
	// store.
	Failed func(task string, err error)
}

// RunUpkeep runs tasks until ctx ends, one at a time. All processes that call it share the tasks. It also runs the
// monitor of their queue. It returns ctx's error, or ErrClosed.
func (l *Layer) RunUpkeep(ctx context.Context, opts UpkeepOptions) error {
	u := upkeep{queue: l.Queue(UpkeepQueue), opts: opts, tasks: map[string]Task{}}
	for _, task := range opts.Tasks {
		u.tasks[task.Name] = task
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	monitored := make(chan struct{})
	monitoring := l.named(ctx, "upkeep monitor")
	go func() {
		defer close(monitored)
		l.pass(monitoring)
		_ = u.queue.RunMonitor(monitoring, MonitorOptions{Failed: func(err error) { u.failed("", err) }})
	}()
	defer func() { <-monitored }()
	defer cancel()
	for {
		err := u.addMissing(ctx)
		if err == nil {
			err = u.queue.Work(ctx, 1, u.run)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrClosed):
			return err
		}
		u.failed("", err)
		l.pause(ctx, upkeepPause)
	}
}

type upkeep struct {
	queue *Queue
	opts  UpkeepOptions
	tasks map[string]Task
}

func (u *upkeep) failed(task string, err error) {
	if u.opts.Failed != nil {
		u.opts.Failed(task, err)
	}
}

// run runs a task, and queues it again. It also adds tasks whose jobs were removed meanwhile.
func (u *upkeep) run(ctx context.Context, h *Held) error {
	if err := u.addMissing(ctx); err != nil {
		u.failed("", err)
	}
	task, known := u.tasks[h.Job().ID]
	rest := task.Every
	if !known {
		rest = upkeepRetry // of another version
	} else if err := task.Run(ctx, h); err != nil {
		if ctx.Err() != nil {
			return err
		}
		u.failed(task.Name, err)
		rest = min(rest, upkeepRetry)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), workGoodbye)
	defer cancel()
	err := h.Resubmit(ending, u.queue.layer.now().Add(rest), nil, nil)
	if err != nil && !errors.Is(err, ErrHalt) {
		u.failed("", fmt.Errorf("queueing the task %q: %w", task.Name, err))
	}
	return err
}

func (u *upkeep) addMissing(ctx context.Context) error {
	return u.queue.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		names := make([]string, len(u.opts.Tasks))
		for i, task := range u.opts.Tasks {
			names[i] = task.Name
		}
		found, err := u.queue.readRows(tx, names)
		if err != nil {
			return err
		}
		var missing []Spec
		for i, row := range found {
			if row == nil || row.status == Finished {
				missing = append(missing, Spec{ID: names[i]})
			}
		}
		return u.queue.Add(tx, missing...)
	})
}
