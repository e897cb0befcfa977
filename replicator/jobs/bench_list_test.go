package jobs_test

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
	"settee/pkg/kv/pebblekv"
	"settee/replicator"
	"settee/replicator/jobs"
)

// BenchmarkListings compares what is read of a million jobs with what is read of a thousand:
// times-1000 is how much longer it takes with the million, in the median. Of both as many run,
// crash and have completed.
func BenchmarkListings(b *testing.B) {
	few, many := newListed(b, 1_000), newListed(b, 1_000_000)
	const page = 100
	for _, op := range []struct {
		name string
		read func(ctx context.Context, l *listed) error
	}{
		{"jobs", func(ctx context.Context, l *listed) error {
			list, err := l.store.List(ctx, jobs.ListOptions{Limit: page})
			return l.check(list, page, l.jobs-completedOnes, err)
		}},
		{"jobs-middle", func(ctx context.Context, l *listed) error {
			list, err := l.store.List(ctx, jobs.ListOptions{Limit: page, After: l.middle, Skip: page})
			return l.check(list, page, l.jobs-completedOnes, err)
		}},
		{"jobs-total", func(ctx context.Context, l *listed) error {
			list, err := l.store.List(ctx, jobs.ListOptions{})
			return l.check(list, 0, l.jobs-completedOnes, err)
		}},
		{"docs", func(ctx context.Context, l *listed) error {
			list, err := l.store.ListDocuments(ctx, "", nil, jobs.ListOptions{Limit: page})
			return l.check(list, page, l.documents(), err)
		}},
		{"docs-crashing", func(ctx context.Context, l *listed) error {
			crashing := []replicator.State{replicator.StateCrashing}
			list, err := l.store.ListDocuments(ctx, "", crashing, jobs.ListOptions{Limit: page})
			return l.check(list, crashingOnes, l.documents(), err)
		}},
		{"docs-of-one", func(ctx context.Context, l *listed) error {
			list, err := l.store.ListDocuments(ctx, listedDatabases[0], nil, jobs.ListOptions{Limit: page})
			return l.check(list, page, l.documents()/len(listedDatabases), err)
		}},
		{"docs-of-one-pending", func(ctx context.Context, l *listed) error {
			pending := []replicator.State{replicator.StatePending}
			list, err := l.store.ListDocuments(ctx, listedDatabases[1], pending, jobs.ListOptions{Limit: page})
			return l.check(list, page, l.documents()/len(listedDatabases), err)
		}},
		{"docs-of-one-crashing", func(ctx context.Context, l *listed) error {
			crashing := []replicator.State{replicator.StateCrashing}
			list, err := l.store.ListDocuments(ctx, listedDatabases[0], crashing, jobs.ListOptions{Limit: page})
			return l.check(list, l.crashing, l.documents()/len(listedDatabases), err)
		}},
		{"document", func(ctx context.Context, l *listed) error {
			_, err := l.store.Document(ctx, listedDatabases[2], listedID(l.documents()/len(listedDatabases)/2))
			return err
		}},
		{"job", func(ctx context.Context, l *listed) error {
			_, err := l.store.Get(ctx, l.replicationID)
			return err
		}},
		{"active-tasks", func(ctx context.Context, l *listed) error {
			running := 0
			for _, err := range l.store.Running(ctx) {
				if err != nil {
					return err
				}
				running++
			}
			if running != runningOnes {
				return fmt.Errorf("%d jobs run", running)
			}
			return nil
		}},
	} {
		b.Run(op.name, func(b *testing.B) {
			var short, long []time.Duration
			for b.Loop() {
				short = append(short, few.time(b, op.read))
				long = append(long, many.time(b, op.read))
			}
			b.ReportMetric(0, "ns/op") // it is of both
			b.ReportMetric(float64(median(long).Nanoseconds())/1e3, "µs")
			b.ReportMetric(float64(median(long))/float64(median(short)), "times-1000")
		})
	}
}

const (
	runningOnes   = 100
	crashingOnes  = 20 // of documents
	completedOnes = 20 // transient
)

// listedDatabases have as many documents each, and together four jobs of five.
var listedDatabases = []string{"_replicator", "a/_replicator", "b/_replicator", "c/_replicator"}

// listed is a store full of jobs.
type listed struct {
	*bundle
	jobs          int
	crashing      int    // of the first database
	middle        string // the id of a job among the others
	replicationID string // of some job
}

func (l *listed) documents() int { return l.jobs / 5 * 4 }

func listedID(n int) string { return fmt.Sprintf("doc-%07d", n) }

func newListed(b *testing.B, many int) *listed {
	b.Helper()
	db, err := pebblekv.Open(b.TempDir(), pebblekv.Options{})
	require.NoError(b, err)
	l := &listed{bundle: setupOn(b, db), jobs: many}
	// What is prepared is not measured, and takes minutes.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	began := time.Now()
	var adding sync.WaitGroup
	each := l.documents() / len(listedDatabases)
	for _, name := range listedDatabases {
		database := l.create(name)
		adding.Go(func() { l.fill(database, each) })
	}
	adding.Go(func() { l.fill(nil, many-l.documents()) })
	adding.Wait()
	if b.Failed() {
		b.FailNow()
	}
	b.Logf("%d jobs were added in %v", many, time.Since(began).Round(time.Millisecond))
	l.process()
	l.middle = l.jobID(listedDatabases[1], listedID(each/3))
	job, err := l.store.Document(b.Context(), listedDatabases[3], listedID(each/2))
	require.NoError(b, err)
	l.replicationID = job.ReplicationID()
	return l
}

// fill adds the jobs of so many documents of a database, or transient ones.
func (l *listed) fill(database *docstore.Database, jobs int) {
	name := ""
	if database != nil {
		name = database.Name()
	}
	for begin := 0; begin < jobs; begin += 500 {
		ids := make([]string, min(500, jobs-begin))
		for i := range ids {
			ids[i] = listedID(begin + i)
		}
		err := l.store.AddMany(l.Context(), database, ids, func(id string) *replicator.Replication {
			return l.definition(fmt.Sprintf(`"continuous": true, "doc_ids": [%q]`, name+id))
		})
		if err != nil {
			l.Errorf("filling: %v", err)
			return
		}
	}
}

// process takes jobs until enough of them run, crash and have completed.
func (l *listed) process() {
	require.NoError(l, l.store.SetTimeout(l.Context(), time.Hour))
	var running, crashing, completed int
	var rest []*jobs.Run
	for running < runningOnes || crashing < crashingOnes || completed < completedOnes {
		run := l.accept()
		switch transient := run.Job().Transient(); {
		case !transient && crashing < crashingOnes:
			require.NoError(l, run.Crash(l.Context(), time.Now().Add(time.Hour), 1, "error", "the source is gone"))
			crashing++
			if *run.Job().Args.Database == listedDatabases[0] {
				l.crashing++
			}
		case transient && completed < completedOnes:
			require.NoError(l, run.Complete(l.Context(), nil))
			completed++
		case running < runningOnes:
			running++
		default:
			rest = append(rest, run)
		}
	}
	for _, run := range rest {
		require.NoError(l, run.Stop(l.Context(), nil))
	}
}

func (l *listed) time(b *testing.B, read func(context.Context, *listed) error) time.Duration {
	began := time.Now()
	err := read(b.Context(), l)
	took := time.Since(began)
	require.NoError(b, err)
	return took
}

func (l *listed) check(list jobs.List, rows, total int, err error) error {
	if err == nil && (len(list.Jobs) != rows || list.Total != int64(total)) {
		err = fmt.Errorf("%d jobs of %d are listed", len(list.Jobs), list.Total)
	}
	return err
}
