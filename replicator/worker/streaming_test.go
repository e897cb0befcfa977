package worker_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/worker"
)

// maxStreaming is how many bytes a run may take, at any moment, to copy an attachment of any size.
const maxStreaming = 16 << 20

// BenchmarkLargeAttachment copies an attachment of 1 GiB.
func BenchmarkLargeAttachment(b *testing.B) {
	const size = 1 << 30
	for b.Loop() {
		took, peak := streamed(b, size)
		b.ReportMetric(size/(1<<20)/took.Seconds(), "MiB/s")
		b.ReportMetric(float64(peak)/(1<<20), "extra-MiB")
		b.ReportMetric(0, "ns/op")
		if peak > maxStreaming {
			b.Fatalf("a large attachment takes %d bytes of memory", peak)
		}
	}
}

func TestAttachmentsAreStreamed(t *testing.T) {
	_, peak := streamed(t, 200<<20)
	t.Logf("%d bytes", peak)
	require.Less(t, peak, uint64(maxStreaming))
}

// streamed copies an attachment, and returns the most that the process had in use meanwhile, with what
// is garbage, beyond what it had before. The target checks the attachment's digest.
func streamed(t testing.TB, size int64) (took time.Duration, peak uint64) {
	t.Helper()
	server := startPrepared(t)[0]
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	runtime.GC()
	before := couchtest.ReadMemory().Total
	s := &sampling{RoundTripper: transport}
	began := time.Now()
	result := run(t, replication(t, fmt.Sprintf("%s/attachment/%d", server, size), server+"/target/0"), func(c *worker.Config) {
		c.Transport = func(replicator.Endpoint, *replicator.SocketOptions) http.RoundTripper { return s }
	})
	took = time.Since(began)
	require.EqualValues(t, 1, result.Stats.DocsWritten)
	require.GreaterOrEqual(t, s.passed, size)
	return took, s.peak - before
}

// sampling measures the memory in use whenever another megabyte of a revision has passed.
type sampling struct {
	http.RoundTripper
	passed int64
	peak   uint64
}

func (s *sampling) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.RoundTripper.RoundTrip(r)
	if err == nil && r.URL.Query().Get("open_revs") != "" {
		answer.Body = &sampledBody{answer.Body, s}
	}
	return answer, err
}

type sampledBody struct {
	io.ReadCloser
	s *sampling
}

func (b *sampledBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if before := b.s.passed >> 20; (b.s.passed+int64(n))>>20 > before {
		b.s.peak = max(b.s.peak, couchtest.ReadMemory().Total)
	}
	b.s.passed += int64(n)
	return n, err
}
