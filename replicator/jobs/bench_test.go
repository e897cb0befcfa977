package jobs_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/jobs"
)

// BenchmarkPark compares parking a job beside a million parked jobs with parking one beside ten thousand: times-10000 is
// the median time of Parking and Park with a million over that with ten thousand.
func BenchmarkPark(b *testing.B) {
	compareParked(b, func(p *parkedStore) time.Duration {
		took := p.park()
		p.wake(p.database)
		return took
	})
}

// BenchmarkWake compares waking a job in the same way.
func BenchmarkWake(b *testing.B) {
	compareParked(b, func(p *parkedStore) time.Duration {
		p.park()
		began := time.Now()
		require.Equal(b, 1, p.wake("none", p.database))
		return time.Since(began)
	})
}

func compareParked(b *testing.B, op func(*parkedStore) time.Duration) {
	few, many := newParkedStore(b, 10_000), newParkedStore(b, 1_000_000)
	var fewTook, manyTook []time.Duration
	for b.Loop() {
		fewTook, manyTook = append(fewTook, op(few)), append(manyTook, op(many))
	}
	b.ReportMetric(0, "ns/op") // it would include both
	b.ReportMetric(float64(median(manyTook).Nanoseconds())/1e3, "µs")
	b.ReportMetric(float64(median(manyTook))/float64(median(fewTook)), "times-10000")
}

func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)/2]
}

// parkedStore is a store with parked jobs, and one that is to be parked.
type parkedStore struct {
	*bundle
	database string // of that one, in the middle of the others
}

func newParkedStore(b *testing.B, n int) *parkedStore {
	b.Helper()
	db := enginetest.Disk(b)
	p := &parkedStore{database: fmt.Sprintf("db%07d-", n/2)}
	p.bundle = &bundle{TB: b, db: newStore(db), layer: fdbjobs.Open(db, []byte("jobs"), fdbjobs.Options{Derive: jobs.Derivations()})}
	b.Cleanup(p.layer.Close)
	p.reopen(jobs.Options{})
	began := time.Now()
	const atOnce = 500
	for i := 0; i < n; i += atOnce {
		require.NoError(b, p.db.Transact(b.Context(), func(tx kv.Transaction) error { return p.add(tx, i, atOnce) }))
	}
	b.Logf("%d parked jobs were added in %v", n, time.Since(began).Round(time.Millisecond))
	p.replicate(`"continuous": true`)
	return p
}

// add adds parked jobs, each with a database of its own.
func (p *parkedStore) add(tx kv.Transaction, from, n int) error {
	specs, space := make([]fdbjobs.Spec, n), tuple.NewSubspace("replicator")
	for i := range specs {
		id, database := fmt.Sprintf("%032x", from+i), fmt.Sprintf("db%07d", from+i)
		at := time.Now().Add(time.Hour + time.Duration(from+i)*time.Millisecond)
		specs[i] = fdbjobs.Spec{
			ID: id, Owner: fmt.Sprint("user:", (from+i)%100), Scheduled: at, Label: "transient", Tag: "parked",
			State: fmt.Appendf(nil, `{"state":"pending","parked":{"server":%q,"database":%q}}`, sourceServer, database),
		}
		tx.Set(space.Pack("parked", sourceServer, database, id), tuple.Tuple{at.Unix(), false, `"7-x"`}.Pack())
		tx.Set(space.Pack("asks", sourceServer, at.Unix(), id), []byte(database))
	}
	return p.store.Jobs.Add(tx, specs...)
}

// park accepts and starts the job, and parks it. It returns how long the latter took.
func (p *parkedStore) park() time.Duration {
	p.Helper()
	run, began := p.accept(), time.Now()
	require.NoError(p, run.Parking(p.Context(), replicator.Parked{Server: sourceServer, Database: p.database, UpdateSeq: `"7-x"`}))
	woken, err := run.Park(p.Context(), nil)
	require.NoError(p, err)
	require.False(p, woken)
	return time.Since(began)
}

// BenchmarkFirstList measures how long a mirror takes to know the 10,000 databases of its first list, and what each costs the
// store: the keys and the bytes that are written.
func BenchmarkFirstList(b *testing.B) {
	const databases = 10_000
	names := make([]string, databases)
	for i := range names {
		names[i] = fmt.Sprintf("customer-%05d", i)
	}
	for b.Loop() {
		b.StopTimer()
		db := enginetest.Control(enginetest.ClusterOr(b, enginetest.Disk))
		mirror, _ := setupOn(b, db).mirrorOne("films")
		keys, size := db.KeysWritten.Load(), db.SizeWritten.Load()
		b.StartTimer()
		require.NoError(b, asMirror(mirror).AddDatabases(b.Context(), names, 1))
		b.StopTimer()
		b.ReportMetric(float64(db.KeysWritten.Load()-keys)/databases, "keys/database")
		b.ReportMetric(float64(db.SizeWritten.Load()-size)/databases, "B/database")
		ranges, gets := db.Ranges.Load(), db.Gets.Load()
		began := time.Now()
		summary, err := asMirror(mirror).Summary(b.Context())
		require.NoError(b, err)
		require.EqualValues(b, databases+1, summary.Known)
		b.ReportMetric(float64(time.Since(began).Microseconds()), "µs/summary")
		b.ReportMetric(float64(db.Ranges.Load()-ranges+db.Gets.Load()-gets), "reads/summary")
		b.StartTimer()
	}
}
