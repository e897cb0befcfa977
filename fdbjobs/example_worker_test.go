package fdbjobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
)

// Example_worker adds a job in a transaction of its own, and works on it.
func Example_worker() {
	db, err := memkv.Open(memkv.Options{}) // or kv.Open with the URL of a store
	if err != nil {
		log.Fatal(err)
	}
	layer := fdbjobs.Open(db, []byte("jobs/"), fdbjobs.Options{})
	mails, token := layer.Queue("mail"), "a random string"
	ctx, stop := context.WithCancel(context.Background())
	err = db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Set([]byte("orders/17"), []byte("paid"))
		return mails.Add(tx, fdbjobs.Spec{ID: "order 17", Token: token, Args: json.RawMessage(`{"to":"ann@example.org"}`)})
	})
	if err != nil {
		log.Fatal(err)
	}
	err = mails.Work(ctx, 1, func(_ context.Context, job *fdbjobs.Held) error {
		fmt.Println(job.Job().ID, string(job.Job().Args))
		stop() // only here: otherwise Work waits for the next job
		return nil
	})
	layer.Close()
	fmt.Println(err, db.Close())
	// Output:
	// order 17 {"to":"ann@example.org"}
	// context canceled <nil>
}
