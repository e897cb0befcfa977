package worker_test

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/worker"
)

// BenchmarkSmallDocuments copies documents of 1 KiB from and to a server, in a process of its own, that
// answers with prepared bytes. It compares the rate with that of a client which reads the same answers of
// _bulk_get and posts the same bodies of _bulk_docs.
func BenchmarkSmallDocuments(b *testing.B) {
	const docs = 50_000
	server := startPrepared(b)[0]
	source, target := fmt.Sprintf("%s/docs/%d", server, docs), server+"/target/0"
	bare := newBareCopy(source, target, docs, 500)
	defer bare.client.CloseIdleConnections()
	transport := &http.Transport{MaxIdleConnsPerHost: 20}
	defer transport.CloseIdleConnections()
	copied := func() (time.Duration, uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		result := run(b, replication(b, source, target), func(c *worker.Config) {
			c.Transport = func(replicator.Endpoint, *replicator.SocketOptions) http.RoundTripper { return transport }
		})
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		require.EqualValues(b, docs, result.Stats.DocsWritten)
		return took, (after.TotalAlloc - before.TotalAlloc) / docs
	}
	barely := func() time.Duration {
		began := time.Now()
		require.NoError(b, bare.run(b.Context()))
		return time.Since(began)
	}
	// The first of each prepares the server's bytes and opens the connections.
	copied()
	barely()
	var took, bareTook time.Duration
	var allocated uint64
	for b.Loop() {
		t, a := copied()
		took += t
		allocated += a
		bareTook += barely()
	}
	n := float64(b.N)
	b.ReportMetric(docs*n/took.Seconds(), "docs/s")
	b.ReportMetric(docs*n/bareTook.Seconds(), "bare-docs/s")
	b.ReportMetric(bareTook.Seconds()/took.Seconds(), "of-bare")
	b.ReportMetric(float64(allocated)/n, "B/doc")
	b.ReportMetric(0, "ns/op")
}
