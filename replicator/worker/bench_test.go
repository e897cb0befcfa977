package worker_test

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/sockopt"
	"settee/replicator"
	"settee/replicator/worker"
)

// BenchmarkSmallDocuments copies documents of 1 KiB from and to a server in another process that answers with prepared
// bytes. It compares the rate with that of a client which reads the same _bulk_get answers and posts the same
// _bulk_docs bodies.
func BenchmarkSmallDocuments(b *testing.B) {
	const docs = 50_000
	server := startPrepared(b)
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
			c.Transport = func(replicator.Endpoint, *sockopt.Options) http.RoundTripper { return transport }
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
	// The first copy of each kind prepares the server's bytes and opens the connections.
	copied()
	barely()
	const rounds = 10
	var copying, bareCopying time.Duration
	var allocated uint64
	n := 0
	for ; n < rounds || b.Loop(); n++ {
		took, bytes := copied()
		copying, bareCopying = copying+took, bareCopying+barely()
		allocated += bytes
	}
	ratio := bareCopying.Seconds() / copying.Seconds()
	b.ReportMetric(float64(n)*docs/copying.Seconds(), "docs/s")
	b.ReportMetric(float64(n)*docs/bareCopying.Seconds(), "bare-docs/s")
	b.ReportMetric(ratio, "of-bare")
	b.ReportMetric(float64(allocated)/float64(n), "B/doc")
	b.ReportMetric(0, "ns/op")
	if allocated/uint64(n) > 2<<10 {
		b.Fatalf("%d bytes are allocated per document", allocated/uint64(n))
	}
	// An idle machine should reach a third. A busy one reaches less.
	if ratio < 1./4 {
		b.Fatalf("documents are copied at %.2f of the rate at which they are read and written", ratio)
	}
}
