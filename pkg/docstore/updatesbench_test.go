package docstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/costtest"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv/enginetest"
)

// BenchmarkUpdates writes 10,000 documents of 1 kB with rows in updates and without them, in turns of 500 documents,
// each kind into a database of its own in one store: with/without is the processor time that they take, which other
// programs on the machine hardly change, and elapsed-with/without the elapsed time. followed=true has a follower.
func BenchmarkUpdates(b *testing.B) {
	const docs, atOnce = 10_000, 500
	for _, c := range []struct {
		bulk, writers int
		followed      bool
	}{{1, 1, false}, {1, 16, false}, {1, 16, true}, {100, 4, false}, {100, 4, true}} {
		b.Run(fmt.Sprintf("bulk=%d/writers=%d/followed=%v", c.bulk, c.writers, c.followed), func(b *testing.B) {
			db := enginetest.ClusterOr(b, enginetest.Disk)
			open := func(name string) (*docstore.Store, *docstore.Database) {
				store := docstore.Open(db, prefix, docstore.Options{})
				b.Cleanup(store.Close)
				docs, err := store.Create(b.Context(), name)
				require.NoError(b, err)
				return store, docs
			}
			loud, with := open("with")
			silent, without := open("without")
			silent.Silence()
			if c.followed {
				go func() {
					for last := (docstore.Sequence{}); loud.WaitUpdate(b.Context(), last) == nil; {
						pass := loud.Updates(docstore.UpdatesOptions{Since: last})
						for _, err := range pass.All(b.Context()) {
							if err != nil {
								return // the benchmark is over
							}
						}
						last = pass.Last()
					}
				}()
			}
			body, numbers := docjson.Must(large(1000)), new(atomic.Int64)
			write := func(to *docstore.Database) {
				left := new(atomic.Int64)
				left.Store(atOnce)
				var wg sync.WaitGroup
				for range c.writers {
					wg.Go(func() {
						for left.Add(int64(-c.bulk)) >= 0 {
							edits := make([]docstore.Edit, c.bulk)
							for i := range edits {
								edits[i] = docstore.Edit{ID: fmt.Sprintf("%012d", numbers.Add(1)), Body: body}
							}
							if _, err := to.Write(b.Context(), edits, docstore.WriteOptions{}); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			}
			var took, elapsed [2]time.Duration
			for b.Loop() {
				for turn := range docs / atOnce {
					for i := range took { // either is first every other time
						i = (i + turn) % len(took)
						begun := time.Now()
						took[i] += costtest.Of(func() { write([]*docstore.Database{with, without}[i]) }).Processor
						elapsed[i] += time.Since(begun)
					}
				}
			}
			b.ReportMetric(0, "ns/op") // it would include both turns
			b.ReportMetric(float64(took[1].Microseconds())/float64(b.N)/docs, "processor-µs/doc")
			b.ReportMetric(float64(took[0])/float64(took[1]), "with/without")
			b.ReportMetric(float64(elapsed[0])/float64(elapsed[1]), "elapsed-with/without")
		})
	}
}
