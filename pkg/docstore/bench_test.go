package docstore_test

import (
	"crypto/md5"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// turn is how long each of two compared things runs before the other's turn, because the machine may have other users.
const turn = 500 * time.Millisecond

func openDisk(b *testing.B) (kv.Database, *docstore.Database) {
	b.Helper()
	db := enginetest.Disk(b)
	store := docstore.Open(db, prefix, docstore.Options{})
	b.Cleanup(store.Close)
	docs, err := store.Create(b.Context(), "db")
	require.NoError(b, err)
	return db, docs
}

// rate is an amount of work and the time that it took.
type rate struct {
	done int
	took time.Duration
}

func (r *rate) perSecond() float64 { return float64(r.done) / r.took.Seconds() }

// work lets n goroutines repeat step for a turn.
func (r *rate) work(b *testing.B, n int, step func() (done int, err error)) {
	b.Helper()
	var all atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range n {
		wg.Go(func() {
			for time.Since(began) < turn {
				done, err := step()
				if err != nil {
					b.Error(err)
					return
				}
				all.Add(int64(done))
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	r.done += int(all.Load())
	r.took += time.Since(began)
}

// BenchmarkWrite writes new documents of 1 kB, and compares that with plain commits of as many bytes on the same store
// by as many goroutines: writes/commit is documents per second over plain commits per second.
func BenchmarkWrite(b *testing.B) {
	for _, bulk := range []int{1, 100} {
		for _, writers := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("bulk=%d/writers=%d", bulk, writers), func(b *testing.B) {
				db, docs := openDisk(b)
				body := large(1000)
				var numbers atomic.Int64
				write := func() (int, error) {
					edits := make([]docstore.Edit, bulk)
					for i := range edits {
						edits[i] = docstore.Edit{ID: fmt.Sprintf("%012d", numbers.Add(1)), Body: docjson.Must(body)}
					}
					results, err := docs.Write(b.Context(), edits, docstore.WriteOptions{})
					if err == nil {
						err = results[0].Err
					}
					return bulk, err
				}
				plain := func() (int, error) {
					key := fmt.Appendf(nil, "plain/%012d", numbers.Add(1))
					return 1, db.Transact(b.Context(), func(tx kv.Transaction) error {
						tx.Set(key, body)
						return nil
					})
				}
				var writes, commits rate
				for b.Loop() {
					commits.work(b, writers, plain)
					writes.work(b, writers, write)
				}
				b.ReportMetric(0, "ns/op") // it would include both turns
				b.ReportMetric(writes.perSecond(), "docs/s")
				b.ReportMetric(commits.perSecond(), "commits/s")
				b.ReportMetric(writes.perSecond()/commits.perSecond(), "writes/commit")
			})
		}
	}
}

// BenchmarkNewRev computes the revision of a document of many members, and compares that with the MD5 of its body.
func BenchmarkNewRev(b *testing.B) {
	for _, size := range []int{100, 1_000, 100_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			body := []byte("{")
			for len(body) < size {
				body = fmt.Appendf(body, `"member %d":["some text of it",12345,1.25,{"a":null}],`, len(body))
			}
			body = append(body, `"last":true}`...)
			b.ReportAllocs()
			var revs, hashes time.Duration
			for b.Loop() {
				begun := time.Now()
				docstore.NewRev(body)
				made := time.Now()
				md5.Sum(body)
				revs, hashes = revs+made.Sub(begun), hashes+time.Since(made)
			}
			b.ReportMetric(0, "ns/op") // it would include both turns
			b.ReportMetric(float64(revs.Nanoseconds())/float64(b.N), "ns/rev")
			b.ReportMetric(float64(revs)/float64(hashes), "revs/md5")
		})
	}
}

// BenchmarkChanges reads a feed of 20,000 changes, and compares that with reading as many plain rows in pages of the
// same size.
func BenchmarkChanges(b *testing.B) {
	const rows = 20_000
	db, docs := openDisk(b)
	edits := make([]docstore.Edit, rows)
	for i := range edits {
		edits[i] = docstore.Edit{ID: fmt.Sprintf("%012d", i), Body: docjson.Must(large(100))}
	}
	_, err := docs.Write(b.Context(), edits, docstore.WriteOptions{})
	require.NoError(b, err)
	for page := range slices.Chunk(edits, 1000) {
		require.NoError(b, db.Transact(b.Context(), func(tx kv.Transaction) error {
			for _, edit := range page {
				tx.Set([]byte("plain/"+edit.ID), edit.Body.Bytes())
			}
			return nil
		}))
	}
	plain := func() (n int, err error) {
		for r := kv.PrefixRange([]byte("plain/")); err == nil; {
			var pairs []kv.KeyValue
			pairs, err = kv.TransactValue(b.Context(), db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
				return tx.Snapshot().GetRange(r, kv.RangeOptions{Limit: docstore.RowsAtOnce}).Slice()
			})
			if len(pairs) == 0 {
				break
			}
			n += len(pairs)
			r.Begin = kv.KeyAfter(pairs[len(pairs)-1].Key)
		}
		return n, err
	}
	for _, documents := range []bool{false, true} {
		b.Run(fmt.Sprintf("documents=%v", documents), func(b *testing.B) {
			feed := func() (n int, err error) {
				for _, err := range docs.Changes(docstore.ChangesOptions{Documents: documents}).All(b.Context()) {
					if err != nil {
						return n, err
					}
					n++
				}
				return n, nil
			}
			var changes, plainRows rate
			for b.Loop() {
				plainRows.work(b, 1, plain)
				changes.work(b, 1, feed)
			}
			b.ReportMetric(0, "ns/op") // it would include both turns
			b.ReportMetric(changes.perSecond(), "changes/s")
			b.ReportMetric(plainRows.perSecond(), "rows/s")
			b.ReportMetric(changes.perSecond()/plainRows.perSecond(), "changes/row")
		})
	}
}
