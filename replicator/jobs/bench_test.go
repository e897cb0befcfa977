package jobs_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
	"settee/pkg/kv/pebblekv"
)

// BenchmarkDeleteDatabase deletes a replicator database with 100,000 documents, each of
// which has a job, and creates another one by its name. It says how much longer that takes than
// with an empty database, and how much longer a document and its job take, from the write until
// the job is taken, while upkeep removes the old ones.
func BenchmarkDeleteDatabase(b *testing.B) {
	const documents = 100_000
	for range b.N {
		db, err := pebblekv.Open(b.TempDir(), pebblekv.Options{})
		require.NoError(b, err)
		s := setupOn(b, db)
		replace := func(name string) time.Duration {
			began := time.Now()
			require.NoError(b, s.database(name).Delete(b.Context()))
			s.create(name)
			return time.Since(began)
		}
		life := func(n int) time.Duration {
			began := time.Now()
			s.put(repdb, fmt.Sprint("new", n), "", fmt.Sprintf(`"doc_ids": ["new %d"]`, n))
			run := s.accept()
			took := time.Since(began)
			require.Equal(b, fmt.Sprint("new", n), *run.Job().Args.DocID)
			require.NoError(b, run.Complete(b.Context(), nil))
			return took
		}
		s.create(repdb)
		s.create("x/_replicator")
		var empty, alone, among []time.Duration
		for i := range 20 {
			alone = append(alone, life(i))
		}
		replace(repdb)
		s.upkeep()

		began := time.Now()
		fill(b, s, documents)
		filled := time.Since(began)
		for range 20 {
			empty = append(empty, replace("x/_replicator"))
		}
		full := replace(repdb)
		require.Zero(b, s.total())
		require.EqualValues(b, documents, s.stored())
		began = time.Now()
		tidied := make(chan time.Duration)
		go func() {
			s.upkeep()
			tidied <- time.Since(began)
		}()
		var upkeep time.Duration
		for n := 0; upkeep == 0; n++ {
			among = append(among, life(n))
			select {
			case upkeep = <-tidied:
			default:
			}
		}
		require.Empty(b, s.deletions())
		require.EqualValues(b, len(among), s.stored(), "those of the new database")
		require.Len(b, s.claims(), len(among))

		b.ReportMetric(0, "ns/op") // it is of all this
		b.ReportMetric(documents/filled.Seconds(), "added/s")
		b.ReportMetric(documents/upkeep.Seconds(), "removed/s")
		b.ReportMetric(full.Seconds()/median(empty).Seconds(), "full/empty")
		b.ReportMetric(median(among).Seconds()/median(alone).Seconds(), "among/alone")
	}
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

func fill(b *testing.B, s *bundle, documents int) {
	for begin := 0; begin < documents; begin += 1_000 {
		edits := make([]docstore.Edit, 1_000)
		for i := range edits {
			id := fmt.Sprintf("%06d", begin+i)
			edits[i] = docstore.Edit{ID: id, Body: definitionText(fmt.Sprintf(`"doc_ids": [%q], "continuous": true`, id))}
		}
		results, err := s.database(repdb).Write(b.Context(), edits, docstore.WriteOptions{})
		require.NoError(b, err)
		for _, r := range results {
			require.NoError(b, r.Err)
		}
	}
}
