package peers

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"settee/scripts/bench/lab"
)

// The settings of River's own benchmark (cmd/river/riverbench), whose comment says that they do much better than the
// defaults.
const (
	fetchCooldown     = 2 * time.Millisecond
	fetchPollInterval = 20 * time.Millisecond
)

// connections is the size of the pool: one for each client and some for River. PostgreSQL's default is to accept 100.
const connections = clients + 16

// riverQueue is River on a PostgreSQL of its own.
type riverQueue struct {
	progress *progress
	server   *postgres
	pool     *pgxpool.Pool
	client   *river.Client[pgx.Tx]
}

func openRiver(ctx context.Context, r *lab.Run, workers int, p *progress) (queue, error) {
	server, err := startPostgres(ctx, r)
	if err != nil {
		return nil, err
	}
	q := &riverQueue{progress: p, server: server}
	if err := q.connect(ctx, workers); err != nil {
		q.close()
		return nil, err
	}
	return q, nil
}

// connect creates River's tables and the client.
func (q *riverQueue) connect(ctx context.Context, workers int) error {
	config, err := pgxpool.ParseConfig(q.server.url)
	if err != nil {
		return err
	}
	config.MaxConns = connections
	if q.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	driver := riverpgxv5.New(q.pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	known := river.NewWorkers()
	river.AddWorker(known, &riverWorker{progress: q.progress})
	q.client, err = river.NewClient(driver, &river.Config{
		FetchCooldown:     fetchCooldown,
		FetchPollInterval: fetchPollInterval,
		Logger:            slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		Workers:           known,
	})
	return err
}

// riverJob is the args of a job.
type riverJob struct {
	Number int `json:"number"`
}

// Kind implements river.JobArgs.
func (riverJob) Kind() string { return "bench" }

// riverState is the output of a job.
type riverState struct {
	S int `json:"s"`
}

// riverWorker works on jobs.
type riverWorker struct {
	river.WorkerDefaults[riverJob]
	progress *progress
}

// Work implements river.Worker. River finishes the job afterwards.
func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverJob]) error {
	w.progress.jobStarted(job.Args.Number)
	if !w.progress.update {
		return nil
	}
	client := river.ClientFromContext[pgx.Tx](ctx)
	if _, err := client.JobUpdate(ctx, job.ID, &river.JobUpdateParams{Output: riverState{1}}); err != nil {
		return err
	}
	return river.RecordOutput(ctx, riverState{2})
}

func (q *riverQueue) add(ctx context.Context, begin, end int) error {
	if end == begin+1 {
		_, err := q.client.Insert(ctx, riverJob{begin}, nil)
		return err
	}
	params := make([]river.InsertManyParams, 0, end-begin)
	for n := begin; n < end; n++ {
		params = append(params, river.InsertManyParams{Args: riverJob{n}})
	}
	_, err := q.client.InsertMany(ctx, params)
	return err
}

func (q *riverQueue) work(ctx context.Context) (stop func(), err error) {
	// An event follows the commit that finishes its job. Those that the channel has no room for are lost.
	events, unsubscribe := q.client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: int(q.progress.left.Load()),
		Kinds:    []river.EventKind{river.EventKindJobCompleted, river.EventKindJobCancelled, river.EventKindJobFailed},
	})
	ctx, cancel := context.WithCancel(ctx)
	if err := q.client.Start(ctx); err != nil {
		cancel()
		unsubscribe()
		return nil, err
	}
	var counting sync.WaitGroup
	counting.Go(func() { q.count(events) })
	return func() {
		cancel()
		<-q.client.Stopped()
		unsubscribe()
		counting.Wait()
	}, nil
}

// count tells progress about the jobs that have finished, until the channel is closed.
func (q *riverQueue) count(events <-chan *river.Event) {
	for event := range events {
		if event.Kind == river.EventKindJobCompleted {
			q.progress.jobFinished()
		} else {
			q.progress.fail(fmt.Errorf("job %d: %s", event.Job.ID, event.Kind))
		}
	}
}

func (q *riverQueue) finished(ctx context.Context) (n int, err error) {
	err = q.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed'").Scan(&n)
	return n, err
}

func (q *riverQueue) close() {
	if q.pool != nil {
		q.pool.Close()
	}
	q.server.stop()
}
