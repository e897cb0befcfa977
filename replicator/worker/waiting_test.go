package worker_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/worker"
)

// maxWaiting is how many bytes a continuous replication may take that waits for changes, beside its
// connection.
const maxWaiting = 64 << 10

// BenchmarkWaitingJobs measures 10,000 continuous replications that wait for changes.
func BenchmarkWaitingJobs(b *testing.B) {
	const jobs = 10_000
	if limit := raiseFileLimit(); limit < jobs+1000 {
		b.Skipf("only %d files may be open", limit)
	}
	for b.Loop() {
		connections, all := waiting(b, jobs)
		b.ReportMetric(float64(all.Total)/jobs/1024, "KiB/job")
		b.ReportMetric(float64(connections.Total)/jobs/1024, "of-which-connections")
		b.ReportMetric(float64(all.Heap)/jobs/1024, "heap-KiB/job")
		b.ReportMetric(float64(all.Stacks)/jobs/1024, "stack-KiB/job")
		b.ReportMetric(float64(all.goroutines)/jobs, "goroutines/job")
		b.ReportMetric(float64(all.Total)/(1<<20), "MiB")
		b.ReportMetric(0, "ns/op")
		if all.Total > 1<<30 || all.Total-connections.Total > maxWaiting*jobs {
			b.Fatalf("%d jobs that wait take %d bytes, their connections %d of them", jobs, all.Total, connections.Total)
		}
	}
}

// A replication that waits has given back what it needed to copy.
func TestReplicationsThatWaitAreSmall(t *testing.T) {
	const jobs = 500
	connections, all := waiting(t, jobs)
	t.Logf("bytes per job: heap %d, stacks %d, all %d, of which connections %d; goroutines %d",
		all.Heap/jobs, all.Stacks/jobs, all.Total/jobs, connections.Total/jobs, all.goroutines/jobs)
	if !raceEnabled { // which makes stacks and objects larger
		require.Less(t, all.Total-connections.Total, uint64(jobs*maxWaiting))
	}
	require.LessOrEqual(t, all.goroutines, 6*jobs, "three of a run, one of them the caller's, and those of its connections")
}

// usage is what a process has in use, or what it has more of than before.
type usage struct {
	couchtest.Memory
	goroutines int
}

func used() usage { return usage{couchtest.SettledMemory(), runtime.NumGoroutine()} }

// feedCounter counts the feeds that wait, and lets another run start when one does.
type feedCounter struct {
	http.RoundTripper
	feeds    *sync.WaitGroup
	starting <-chan struct{}
}

func (o feedCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := o.RoundTripper.RoundTrip(r)
	if err == nil && strings.Contains(r.URL.RawQuery, "feed=continuous") {
		o.feeds.Done()
		<-o.starting
	}
	return answer, err
}

// waiting opens continuous feeds and returns what their connections take, and then starts as many
// replications, between databases that have no changes, and returns what they take when all of them wait.
func waiting(t testing.TB, jobs int) (connections, all usage) {
	t.Helper()
	servers := startPrepared(t)
	transport := &http.Transport{MaxIdleConnsPerHost: 20}
	defer transport.CloseIdleConnections()
	open := func(i int) io.Closer {
		answer, err := transport.RoundTrip(httpGet(t, fmt.Sprintf("%s/waiting/0/_changes?feed=continuous&heartbeat=10000", servers[i%len(servers)])))
		require.NoError(t, err)
		return answer.Body
	}
	open(0).Close() // what is needed once is nobody's

	before := used()
	feeds := make([]io.Closer, jobs)
	for i := range feeds {
		feeds[i] = open(i)
	}
	connections = used().beyond(before)
	for _, feed := range feeds {
		feed.Close()
	}

	before = used()
	end := startWaiting(t, jobs, servers, transport)
	all = used().beyond(before)
	end()
	return connections, all
}

func (u usage) beyond(before usage) usage {
	return usage{
		couchtest.Memory{
			Heap: u.Heap - before.Heap, Live: u.Live - before.Live, Stacks: u.Stacks - before.Stacks, Total: u.Total - before.Total,
		},
		u.goroutines - before.goroutines,
	}
}

// startWaiting starts replications and returns when all of them wait. end ends them.
func startWaiting(t testing.TB, jobs int, servers []string, transport http.RoundTripper) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var feeds, runs sync.WaitGroup
	feeds.Add(jobs)
	failed := make(chan error, jobs)
	starting := make(chan struct{}, 20)
	for i := range jobs {
		starting <- struct{}{}
		server := servers[i%len(servers)]
		rep := replication(t, fmt.Sprintf("%s/waiting/%d", server, i), fmt.Sprintf("%s/target/%d", server, i), `"continuous":true`)
		cfg := worker.Config{ServerUUID: serverUUID, Transport: func(replicator.Endpoint, *replicator.SocketOptions) http.RoundTripper {
			return feedCounter{transport, &feeds, starting}
		}}
		runs.Go(func() {
			_, err := worker.Run(ctx, worker.Job{Replication: rep}, cfg, idler{})
			if ctx.Err() == nil {
				failed <- err
			}
		})
	}
	all := make(chan struct{})
	go func() {
		feeds.Wait()
		close(all)
	}()
	select {
	case <-all:
	case err := <-failed:
		require.NoError(t, err)
	case <-time.After(5 * time.Minute):
		require.Fail(t, "the feeds are not all open")
	}
	return func() {
		cancel()
		runs.Wait()
	}
}

func httpGet(t testing.TB, url string) *http.Request {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	require.NoError(t, err)
	return request
}

// idler is a Reporter that remembers nothing.
type idler struct{}

func (idler) Identify(context.Context, replicator.ID) error { return nil }

func (idler) Report(context.Context, worker.Progress) error { return nil }
