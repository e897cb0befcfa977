package fdbjobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"sync"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
)

// A program that squares numbers: it adds two jobs, works on them until both have ended, and prints the results.
func Example_worker() {
	ctx, stop := context.WithCancel(context.Background())
	db, err := memkv.Open(memkv.Options{}) // or kv.Open with the URL of a FoundationDB cluster
	if err != nil {
		log.Fatal(err)
	}
	layer := fdbjobs.Open(db, []byte("jobs/"), fdbjobs.Options{})
	squares := layer.Queue("square")

	err = db.Transact(ctx, func(tx kv.Transaction) error {
		for _, n := range []string{"3", "12"} {
			spec := fdbjobs.Spec{ID: n, Owner: "examples", Token: "drawn once for " + n, Args: json.RawMessage(`{"n":` + n + `}`)}
			if err := squares.Add(tx, spec); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = squares.RunMonitor(ctx, nil) }) // for dead processes; it ends with ctx
	running.Go(func() { _ = squares.Work(ctx, 2, square) })

	for _, id := range []string{"3", "12"} {
		job, err := squares.Wait(ctx, id)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.ID, job.Status, string(job.State))
	}
	stop()
	running.Wait()
	layer.Close()
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 3 finished {"square":9}
	// 12 finished {"square":144}
}

// square finishes a job with its result. ctx ends before another process can take the job.
func square(ctx context.Context, job *fdbjobs.Held) error {
	var args struct{ N int }
	if err := json.Unmarshal(job.Job().Args, &args); err != nil {
		return err
	}
	return job.Finish(ctx, fmt.Appendf(nil, `{"square":%d}`, args.N*args.N), nil)
}
