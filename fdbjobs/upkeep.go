package fdbjobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"settee/pkg/kv"
)

// UpkeepType is the type of the jobs that keep a store tidy, one for each [Task]. As
// jobs they resume elsewhere when a process dies, and no two processes do the same.
// To have a task run soon, add its job again, by its name.
const UpkeepType = "upkeep"

const (
	// upkeepRetry is how long a task waits that has failed, or that this process does not
	// know, if it would not run sooner anyway.
	upkeepRetry = time.Minute
	// upkeepGoodbye is how long a process that stops takes to put its task back.
	upkeepGoodbye = 5 * time.Second
)

// Task is something that is tidied up again and again.
type Task struct {
	// Name is the id of its job.
	Name string
	// Every is how long it rests between two runs.
	Every time.Duration
	// Run does it, in small transactions, until there is nothing left to do or ctx
	// ends, as it does when the job is not held any more. What it has to remember it
	// writes with [Held.Update], and finds in the job's state, in the next run too.
	// It need not call Update to keep the job: that is done for it.
	Run func(ctx context.Context, h *Held) error
}

// UpkeepOptions are the options of [Layer.RunUpkeep].
type UpkeepOptions struct {
	Tasks []Task
	// Failed, if not nil, is told of a task that failed, and that it will run again; or
	// of an error of the store, with an empty name.
	Failed func(task string, err error)
}

// RunUpkeep runs tasks until ctx ends, one at a time, and shares them with all other
// processes that do. It also is the monitor of their type. It returns ctx's error, or
// ErrClosed.
func (l *Layer) RunUpkeep(ctx context.Context, opts UpkeepOptions) error {
	u := upkeep{typ: l.Type(UpkeepType), opts: opts, tasks: map[string]Task{}}
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
		_ = u.typ.RunMonitor(monitoring, MonitorOptions{Failed: func(err error) { u.failed("", err) }})
	}()
	defer func() { <-monitored }()
	defer cancel()
	for {
		err := u.runOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrClosed):
			return err
		case err != nil:
			u.failed("", err)
			l.pause(ctx, poll)
		}
	}
}

type upkeep struct {
	typ   *Type
	opts  UpkeepOptions
	tasks map[string]Task
}

func (u *upkeep) failed(task string, err error) {
	if u.opts.Failed != nil {
		u.opts.Failed(task, err)
	}
}

// runOnce waits for a task and runs it.
func (u *upkeep) runOnce(ctx context.Context) error {
	if err := u.addMissing(ctx); err != nil {
		return err
	}
	held, err := u.typ.Accept(ctx, AcceptOptions{})
	if err != nil {
		return err
	}
	h := held[0]
	task, known := u.tasks[h.Job().ID]
	rest := task.Every
	if !known {
		rest = upkeepRetry // another version's
	} else if err := u.run(ctx, h, task); err != nil {
		switch {
		case errors.Is(err, ErrHalt), h.Context().Err() != nil:
			return nil // it is queued already, or another's
		case ctx.Err() != nil:
			rest = 0
		default:
			u.failed(task.Name, err)
			rest = min(rest, upkeepRetry)
		}
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), upkeepGoodbye)
	defer cancel()
	if err := h.Resubmit(ending, time.Now().Add(rest), nil, nil); err != nil && !errors.Is(err, ErrHalt) {
		return fmt.Errorf("queueing the task %q: %w", h.Job().ID, err)
	}
	return nil
}

// addMissing adds the jobs of tasks that have none.
func (u *upkeep) addMissing(ctx context.Context) error {
	return u.typ.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		rows := make([]kv.Future[[]byte], len(u.opts.Tasks))
		for i, task := range u.opts.Tasks {
			rows[i] = u.typ.readRow(tx, task.Name)
		}
		for i, task := range u.opts.Tasks {
			row, err := awaitRow(rows[i])
			if err != nil {
				return err
			}
			if row != nil && row.status != Finished {
				continue
			}
			if err := u.typ.Add(tx, Spec{ID: task.Name, Order: uint16(i)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// run runs a task and keeps its job meanwhile.
func (u *upkeep) run(ctx context.Context, h *Held, task Task) error {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// What ends the holding ends the work.
	defer context.AfterFunc(h.Context(), func() { stop(context.Cause(h.Context())) })()
	l, kept := u.typ.layer, make(chan struct{})
	keeping := l.named(working, "keeping "+task.Name)
	go func() {
		defer close(kept)
		l.pass(keeping)
		for l.pause(keeping, h.Heartbeat()) {
			// An error leaves the time that the process has left, and is tried again.
			_ = h.Update(keeping, nil, nil)
		}
	}()
	err := task.Run(working, h)
	stop(nil)
	<-kept
	l.pass(ctx)
	return err
}

// Expiry is the task that removes the type's expired jobs ([Held.FinishFor]).
func (t *Type) Expiry(every time.Duration) Task {
	return Task{Name: "expired " + t.name, Every: every, Run: func(ctx context.Context, _ *Held) error {
		for {
			if _, more, err := t.RemoveExpired(ctx); err != nil || !more {
				return err
			}
		}
	}}
}

// pause waits, and reports whether the time has passed: otherwise ctx has ended.
func (l *Layer) pause(ctx context.Context, d time.Duration) bool {
	l.sleep(ctx, d, nil)
	return ctx.Err() == nil
}
