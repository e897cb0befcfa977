package fdbjobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
)

// mailer is a program with a queue of mails, as each example here begins and ends it.
type mailer struct {
	db    kv.Database
	layer *fdbjobs.Layer
	mails *fdbjobs.Queue
}

func openMailer() *mailer {
	db := must(memkv.Open(memkv.Options{}))
	layer := fdbjobs.Open(db, []byte("jobs/"), fdbjobs.Options{})
	return &mailer{db, layer, layer.Queue("mail")}
}

func (m *mailer) close() {
	m.layer.Close()
	_ = m.db.Close() // a store in memory
}

func (m *mailer) add(specs ...fdbjobs.Spec) {
	panicOn(m.db.Transact(context.Background(), func(tx kv.Transaction) error { return m.mails.Add(tx, specs...) }))
}

// accept takes the next job.
func (m *mailer) accept() *fdbjobs.Held {
	return must(m.mails.Accept(context.Background(), fdbjobs.AcceptOptions{}))[0]
}

func panicOn(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](v T, err error) T {
	panicOn(err)
	return v
}

// The job of a process that dies is queued again by the monitor of another one. Each process that works runs one.
func ExampleQueue_Work() {
	m := openMailer()
	defer m.close()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = m.mails.RunMonitor(ctx, nil) }) // it ends with ctx
	running.Go(func() {
		_ = m.mails.Work(ctx, 4, func(ctx context.Context, job *fdbjobs.Held) error {
			// ctx ends before another process can take the job.
			return job.Finish(ctx, json.RawMessage(`{"sent":true}`), func(tx kv.Transaction) error {
				tx.Set([]byte("orders/17"), []byte("confirmed")) // it exists if and only if the job has ended
				return nil
			})
		})
	})
	m.add(fdbjobs.Spec{ID: "order 17"})
	job := must(m.mails.Wait(ctx, "order 17", nil))
	fmt.Println(job.Status, string(job.State))
	stop()
	running.Wait()
	// Output: finished {"sent":true}
}

// Another process, or the caller of an interface, waits for the result of a job.
func ExampleQueue_Wait() {
	m := openMailer()
	defer m.close()
	m.add(fdbjobs.Spec{ID: "order 17"})
	go func() { panicOn(m.accept().Finish(context.Background(), json.RawMessage(`{"sent":1}`), nil)) }()

	job := must(m.mails.Wait(context.Background(), "order 17", nil))
	fmt.Println(job.ID, job.Status, string(job.State))
	// Output: order 17 finished {"sent":1}
}

// A job runs at a time, and again an hour later.
func ExampleHeld_Resubmit() {
	m := openMailer()
	defer m.close()
	m.add(fdbjobs.Spec{ID: "reminder", Scheduled: time.Now().Add(time.Second)})
	job := m.accept() // after a second
	panicOn(job.Resubmit(context.Background(), time.Now().Add(time.Hour), json.RawMessage(`{"sent":1}`), nil))

	none := must(m.mails.Accept(context.Background(), fdbjobs.AcceptOptions{Wait: -1}))
	fmt.Println(len(none), "jobs are due")
	// Output: 0 jobs are due
}

// A processor that works without Work keeps its job alive with its progress, from which the next holder continues.
func ExampleHeld_Update() {
	m := openMailer()
	defer m.close()
	m.add(fdbjobs.Spec{ID: "newsletter", State: json.RawMessage(`{"sent":0}`)})
	job := m.accept()
	var progress struct {
		Sent int `json:"sent"`
	}
	panicOn(json.Unmarshal(job.Job().State, &progress))
	for ; progress.Sent < 3; progress.Sent++ {
		select {
		case <-job.Context().Done(): // another process may have the job
			return
		case <-time.After(min(job.Heartbeat(), time.Millisecond)): // sends a mail
		}
		panicOn(job.Update(context.Background(), must(json.Marshal(progress)), nil))
	}
	panicOn(job.Finish(context.Background(), must(json.Marshal(progress)), nil))

	fmt.Println(string(must(m.mails.Wait(context.Background(), "newsletter", nil)).State))
	// Output: {"sent":3}
}

// Two owners share the work by what they have used: the shop has a weight of 2, so it may use twice as much.
func ExampleQueue_SetWeight() {
	m := openMailer()
	defer m.close()
	panicOn(m.db.Transact(context.Background(), func(tx kv.Transaction) error {
		return m.mails.SetWeight(tx, "shop", 2)
	}))
	for n := range 4 {
		m.add(fdbjobs.Spec{ID: fmt.Sprint("blog ", n), Owner: "blog"}, fdbjobs.Spec{ID: fmt.Sprint("shop ", n), Owner: "shop"})
	}
	served := map[string]int{}
	for range 6 {
		job := m.accept()
		owner := job.Job().Owner
		served[owner]++
		panicOn(job.Finish(context.Background(), nil, func(tx kv.Transaction) error {
			m.mails.Charge(tx, owner, 1_000) // for example milliseconds
			return nil
		}))
	}
	fmt.Println(served)
	// Output: map[blog:2 shop:4]
}
