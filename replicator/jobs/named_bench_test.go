package jobs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/replicator/jobs"
)

// BenchmarkSearch compares a search for the one job with a host, among 100,000, with and without the index: µs is the
// median time until the job is found with the index, and times-scan that over the time of a look at all jobs. all-times-scan is
// the same for the whole search with the index, which looks at the other jobs, too.
func BenchmarkSearch(b *testing.B) {
	const count = 100_000
	s := setupOn(b, enginetest.Disk(b))
	for i := 0; i < count; i += 500 {
		require.NoError(b, s.db.Transact(b.Context(), func(tx kv.Transaction) error {
			specs := make([]fdbjobs.Spec, 500)
			for j := range specs {
				n := i + j
				specs[j] = fdbjobs.Spec{
					ID: fmt.Sprintf("%032x", n), Owner: fmt.Sprint("user:", n%100), Label: "transient",
					State:  []byte(`{"state":"pending"}`),
					Listed: fmt.Appendf(nil, `{"replication": {"source": {"url": "http://source%d.example/db%d"}, "target": {"url": "http://target.example/db%d"}}}`, n, n, n),
				}
			}
			return s.store.Jobs.Add(tx, specs...)
		}))
	}
	const query = "source77777.example"
	all := func() time.Duration {
		began := time.Now()
		found, _ := s.search(query, 25)
		took := time.Since(began)
		require.Len(b, found, 1)
		return took
	}
	began := time.Now()
	require.Len(b, s.scan(query), 1)
	scan := time.Since(began)
	var first, whole []time.Duration
	for b.Loop() {
		began := time.Now()
		page, err := s.store.Lists.List(b.Context(), jobs.Filter{}, jobs.ListOptions{Limit: 25, Query: query})
		first = append(first, time.Since(began))
		require.NoError(b, err)
		require.Len(b, page.Jobs, 1)
		if len(whole) < 3 {
			whole = append(whole, all())
		}
	}
	b.ReportMetric(0, "ns/op") // it would include both
	b.ReportMetric(float64(median(first).Nanoseconds())/1e3, "µs")
	b.ReportMetric(scan.Seconds(), "scan-s")
	b.ReportMetric(float64(median(first))/float64(scan), "times-scan")
	b.ReportMetric(float64(median(whole))/float64(scan), "all-times-scan")
}
