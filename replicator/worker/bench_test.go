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
	// A third is what an idle machine is to show. Where others want the processors, too, it is less.
	if ratio < 1./4 {
		b.Fatalf("documents are copied at %.2f of the rate at which they are read and written", ratio)
	}
}
