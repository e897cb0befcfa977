package scheduler_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/pkg/couch/couchtest"
	"settee/pkg/kv/memkv"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/scheduler"
)

// BenchmarkWaitingJobs measures a node with 10,000 continuous jobs that wait for changes, beside their
// connections: the peers are in memory.
func BenchmarkWaitingJobs(b *testing.B) {
	for b.Loop() {
		waitingJobs(b, 10_000)
	}
}

func waitingJobs(b *testing.B, n int) {
	db, err := memkv.Open(memkv.Options{})
	require.NoError(b, err)
	defer func() { assert.NoError(b, db.Close()) }()
	layer := fdbjobs.Open(db, []byte("jobs"))
	defer layer.Close()
	store, err := jobs.Open(b.Context(), db, layer, jobs.Options{Documents: docsPrefix})
	require.NoError(b, err)
	user := "joe"
	for i := range n {
		request, err := replicator.ParseRequest(fmt.Appendf(nil,
			`{"source": "http://a.example/db%d", "target": "http://b.example/db%d", "continuous": true}`, i, i), replicator.ParseOptions{})
		require.NoError(b, err)
		_, err = store.Replicate(b.Context(), request.Replication, &user)
		require.NoError(b, err)
	}
	goroutines := runtime.NumGoroutine()
	cfg, _, err := config.Load(config.Options{Flags: []string{fmt.Sprintf("replicator/max_jobs=%d", n)}})
	require.NoError(b, err)
	feeds := waitingPeers{opened: new(sync.WaitGroup), peers: &peers{answers: map[string]answer{}}}
	feeds.opened.Add(n)
	server := scheduler.New(scheduler.Options{
		Jobs: store, Config: func() *config.Config { return cfg }, Node: "n", Log: zerolog.Nop(),
		Transport: func(replicator.Endpoint, *replicator.SocketOptions) http.RoundTripper { return feeds },
	})
	ctx, drop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- server.Run(ctx) }()
	feeds.opened.Wait()
	b.ReportMetric(time.Since(began).Seconds(), "s-to-start")
	running := couchtest.SettledMemory()
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/float64(n), "goroutines/job")
	drop()
	require.ErrorIs(b, <-ended, context.Canceled)
	// What is left is the store's: elsewhere that is on a disk.
	left := couchtest.SettledMemory()
	job := (running.Heap + running.Stacks - left.Heap - left.Stacks) / uint64(n)
	b.ReportMetric(float64(job)/1024, "KiB/job")
	b.ReportMetric(float64(running.Total)/(1<<20), "MiB")
	b.ReportMetric(0, "ns/op")
	if job > 64<<10 {
		b.Errorf("a job that waits takes %d bytes beside its connection", job)
	}
	// A connection takes 24 KiB, see package worker.
	if all := running.Total + uint64(n)*24<<10; n == 10_000 && all > 1<<30 {
		b.Errorf("%d jobs that wait take %d bytes", n, all)
	}
}

// waitingPeers counts the feeds that wait. Each database is its own.
type waitingPeers struct {
	opened *sync.WaitGroup
	peers  *peers
}

func (p waitingPeers) RoundTrip(r *http.Request) (*http.Response, error) {
	other := r.Clone(r.Context())
	_, path, below := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if other.URL.Path = "/db"; below {
		other.URL.Path += "/" + path
	}
	answer, err := p.peers.RoundTrip(other)
	if err == nil && path == "_changes" && r.URL.Query().Get("feed") == "continuous" {
		p.opened.Done()
	}
	return answer, err
}
