package fdbjobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
)

// A process adds a job and waits for its end. Another, here a goroutine, takes it and works on it.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db, err := memkv.Open(memkv.Options{})
	if err != nil {
		panic(err)
	}
	defer db.Close()
	layer := fdbjobs.Open(db, []byte("jobs/"), fdbjobs.Options{})
	defer layer.Close()
	mails := layer.Queue("mail")

	// Each process runs a monitor, which queues the jobs of dead processes again.
	monitor := make(chan error)
	go func() { monitor <- mails.RunMonitor(ctx, nil) }()

	// The job is added in a transaction, together with other writes. The token is drawn outside, so that the function
	// can run again.
	token := "a random string"
	err = db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Set([]byte("orders/17"), []byte("paid"))
		return mails.Add(tx, fdbjobs.Spec{
			ID: "order 17", Owner: "shop", Token: token, Args: json.RawMessage(`{"to":"ann@example.org"}`),
		})
	})
	if err != nil {
		panic(err)
	}

	processor := make(chan error)
	go func() { processor <- mails.Work(ctx, 1, send) }()

	job, err := mails.Wait(ctx, "order 17")
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s: %s %s\n", job.ID, job.Status, job.State)

	// A finished job stays until it is removed.
	err = db.Transact(ctx, func(tx kv.Transaction) error {
		_, err := mails.Remove(tx, job.ID)
		return err
	})
	if err != nil {
		panic(err)
	}
	_, err = mails.Wait(ctx, "order 17")
	fmt.Println(errors.Is(err, fdbjobs.ErrNotFound))
	cancel()
	for _, ended := range []chan error{processor, monitor} {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			panic(err)
		}
	}

	// Output:
	// sending with {"to":"ann@example.org"}
	// order 17: finished {"sent":1}
	// true
}

// send sends a mail. Work keeps its job alive, and ends ctx when the job is no longer held.
func send(ctx context.Context, h *fdbjobs.Held) error {
	fmt.Printf("sending with %s\n", h.Job().Args)
	return h.Finish(ctx, json.RawMessage(`{"sent":1}`), func(tx kv.Transaction) error {
		// What is written here exists if and only if the job has ended.
		tx.Set([]byte("orders/17"), []byte("confirmed"))
		return nil
	})
}
