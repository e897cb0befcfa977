package jobs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/replicator"
	"settee/replicator/jobs"
)

// BenchmarkSearch compares a search for the one job with a host, among 100,000, with and without the index: µs is the
// median time until the job is found with the index, and times-scan that over the time of a look at all jobs. all-times-scan is
// the same for the whole search with the index, which looks at the other jobs, too.
func BenchmarkSearch(b *testing.B) {
	const count = 100_000
	s := setupLevel(b, enginetest.Disk(b), jobs.NamesLevel)
	for i := 0; i < count; i += 500 {
		require.NoError(b, s.levels.Transact(b.Context(), func(tx kv.Transaction) error {
			specs := make([]fdbjobs.Spec, 500)
			for j := range specs {
				n := i + j
				specs[j] = fdbjobs.Spec{
					ID: fmt.Sprintf("%032x", n), Owner: fmt.Sprint("user:", n%100), Label: "transient", Order: uint16(j),
					State:  []byte(`{"state":"pending"}`),
					Listed: fmt.Appendf(nil, `{"replication": {"source": {"url": "http://source%d.example/db%d"}, "target": {"url": "http://target.example/db%d"}}}`, n, n, n),
				}
			}
			return s.store.Jobs().Add(tx, specs...)
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
	scan := all()
	began := time.Now()
	s.raise()
	require.NoError(b, s.convert(100, count))
	b.Logf("the conversion took %v", time.Since(began).Round(time.Millisecond))
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

// BenchmarkNames compares writes of jobs with and without the index: times-without is the median time with it over that
// without.
func BenchmarkNames(b *testing.B) {
	for engine, open := range map[string]func(testing.TB) kv.Database{"memkv": enginetest.Memory, "pebblekv": enginetest.Disk} {
		with, without := setupLevel(b, open(b), jobs.NamesLevel), setupLevel(b, open(b), jobs.NamesLevel)
		with.raise()
		require.NoError(b, with.convert(1, 1))
		compare := func(name string, op func(s *bundle, i int) error) {
			b.Run(engine+"/"+name, func(b *testing.B) {
				var took [2][]time.Duration
				for i := 0; b.Loop(); i++ {
					for j := range 2 {
						k := (i + j) % 2
						began := time.Now()
						err := op([]*bundle{without, with}[k], i)
						took[k] = append(took[k], time.Since(began))
						require.NoError(b, err)
					}
				}
				b.ReportMetric(0, "ns/op") // it would include both
				b.ReportMetric(float64(median(took[1]).Nanoseconds())/1e3, "µs")
				b.ReportMetric(float64(median(took[1]))/float64(median(took[0])), "times-without")
			})
		}
		parse := func(i int) *replicator.Replication {
			request, err := replicator.ParseRequest(between(fmt.Sprintf("http://source%d.example/db%d", i%100, i), fmt.Sprintf("http://target.example/db%d", i)), replicator.ParseOptions{})
			require.NoError(b, err)
			return request.Replication
		}
		n := 0
		compare("Replicate", func(s *bundle, _ int) error {
			n++
			_, err := s.store.Requests.Replicate(b.Context(), parse(n), nil)
			return err
		})
		for _, s := range []*bundle{with, without} {
			s.create(repdb)
		}
		compare("document", func(s *bundle, _ int) error {
			n++
			_, err := s.write(repdb, fmt.Sprint(n), "", between(fmt.Sprintf("http://source%d.example/db%d", n%100, n), fmt.Sprintf("http://target.example/db%d", n)))
			return err
		})
		revs := map[*bundle]string{}
		compare("edit", func(s *bundle, _ int) (err error) {
			n++
			revs[s], err = s.write(repdb, "edited", revs[s], between(fmt.Sprintf("http://source%d.example/db%d", n%100, n), fmt.Sprintf("http://target.example/db%d", n)))
			return err
		})
	}
}
