package worker_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"
	"settee/pkg/sockopt"
	"settee/replicator"
	"settee/replicator/worker"
)

// counted counts what a run holds from the servers behind a transport: the bytes of documents read and not yet written,
// and the responses not closed.
type counted struct {
	http.RoundTripper
	mu         sync.Mutex
	held, most int // bytes of documents; most is the maximum of held
	read       int // total bytes of documents
	open       int // responses
}

func (c *counted) add(bytes, responses int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held += bytes
	c.read += max(bytes, 0)
	c.most = max(c.most, c.held)
	c.open += responses
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	writes := strings.HasSuffix(r.URL.Path, "/_bulk_docs") || r.Method == http.MethodPut && !strings.Contains(r.URL.Path, "/_local/")
	if writes && r.Body != nil {
		r = r.Clone(r.Context())
		r.Body = &countedBody{r.Body, func(n int) { c.add(-n, 0) }, func() {}}
	}
	answer, err := c.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	read := func(int) {}
	if strings.HasSuffix(r.URL.Path, "/_bulk_get") || r.URL.Query().Has("open_revs") {
		read = func(n int) { c.add(n, 0) }
	}
	c.add(0, 1)
	answer.Body = &countedBody{answer.Body, read, sync.OnceFunc(func() { c.add(0, -1) })}
	return answer, nil
}

type countedBody struct {
	io.ReadCloser
	read   func(int)
	closed func()
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read(n)
	return n, err
}

func (b *countedBody) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}

func (p *hostilePair) count(t *testing.T) *counted {
	p.to(t, p.target)
	c := &counted{RoundTripper: p.transport}
	p.transport = c
	return c
}

// mostMemory is the formula in the package comment, in bytes.
func mostMemory(workers, connections, document int) int {
	return (4*workers+1+6*workers+2*connections)<<20 + 2*3*document
}

// The memory of a run is bounded for documents and attachments of any size. The peers of this test hold nothing.
func TestMemoryIsBounded(t *testing.T) {
	testkit.SkipShort(t)
	quietly(t)
	documents, largest := 80, 8<<20
	if testkit.Race { // slow, and pointless for memory
		documents, largest = 24, 1<<20
	}
	for name, test := range map[string]struct {
		fields     string
		workers    int
		attachment int64
	}{
		"in bulk":    {`"worker_processes":4`, 4, 80 << 20},
		"singly":     {`"worker_processes":1,"use_bulk_get":false`, 1, 1 << 20},
		"in a hurry": {`"worker_processes":6,"worker_batch_size":4`, 6, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			p := &hostilePair{source: couchtest.NewHostile(1), target: couchtest.NewHostile(2)}
			if testkit.Race {
				test.attachment = min(test.attachment, 10<<20)
			}
			for i := range documents {
				switch i % 4 {
				case 0, 1:
					p.source.Add(fmt.Sprintf("d%d", i), 1<<10)
				case 2:
					p.source.Add(fmt.Sprintf("d%d", i), 900<<10)
				case 3:
					p.source.Add(fmt.Sprintf("d%d", i), largest-1000-i*largest/500) // down to five sixths
				}
				if i%40 == 20 {
					p.source.Add(fmt.Sprintf("m%d", i), 2<<20, 3<<20)
				}
			}
			p.source.Add("att", 100, test.attachment, 10)
			counts := p.count(t)
			_, err := p.run(t, func(cfg *worker.Config, job *worker.Job) {
				cfg.NoCompression = true // so that as many bytes are written as read
				job.Replication = replication(t, "http://a.example/db", "http://b.example/db", test.fields)
			})
			require.NoError(t, err)
			p.complete(t)
			t.Logf("%d MiB of at most %d, of %d", counts.most>>20, mostMemory(test.workers, 20, largest)>>20, counts.read>>20)
			require.Greater(t, counts.read, int(test.attachment))
			require.Less(t, counts.most, mostMemory(test.workers, 20, largest))
			if !testkit.Race {
				require.Greater(t, counts.read, mostMemory(test.workers, 20, largest), "the bound is less than the whole")
			}
		})
	}
}

// Batches that are read with several requests at a time have as much memory as others.
func TestMemoryOfRequestsSideBySideIsBounded(t *testing.T) {
	testkit.SkipShort(t)
	testkit.SkipRace(t)
	quietly(t)
	const documents, size = 800, 500 << 10
	p := &hostilePair{source: couchtest.NewHostile(1), target: couchtest.NewHostile(2)}
	for i := range documents {
		if i%3 == 0 {
			p.source.Add(fmt.Sprintf("d%d", i), size)
		} else {
			p.source.Add(fmt.Sprintf("d%d", i), 1<<10)
		}
	}
	counts := p.count(t)
	_, err := p.run(t, func(cfg *worker.Config, job *worker.Job) {
		cfg.NoCompression = true // so that as many bytes are written as read
		job.Replication = replication(t, "http://a.example/db", "http://b.example/db", `"worker_batch_size":400`)
	})
	require.NoError(t, err)
	p.complete(t)
	require.Equal(t, 8, p.source.Requests(couchtest.BulkGet), "four for each batch")
	t.Logf("%d MiB of at most %d, of %d", counts.most>>20, mostMemory(4, 20, size)>>20, counts.read>>20)
	require.Less(t, counts.most, mostMemory(4, 20, size))
	require.Greater(t, counts.read, mostMemory(4, 20, size), "the bound is less than the whole")
}

// An attachment is streamed: a run never holds more of it than some buffers.
func TestAttachmentsAreStreamed(t *testing.T) {
	t.Parallel()
	p := &hostilePair{source: couchtest.NewHostile(1), target: couchtest.NewHostile(2)}
	p.guard()
	p.source.Add("att", 100, 50<<20)
	counts := p.count(t)
	_, err := p.run(t)
	require.NoError(t, err)
	p.complete(t)
	require.Greater(t, counts.read, 50<<20)
	require.Less(t, counts.most, 1<<20)
}

// A replication that waits for changes holds only its feed's connection.
func TestAReplicationThatWaitsHoldsItsFeedOnly(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, target := bareStub(t), bareStub(t)
		source.add("d0", "1-a", `{"_id":"d0","_rev":"1-a"}`)
		live(source)
		c := &counted{RoundTripper: couchtest.Pipe(t, map[string]http.Handler{"a.example": source, "b.example": target})}
		cfg := worker.DefaultConfig()
		cfg.ServerUUID = serverUUID
		cfg.Transport = func(replicator.Endpoint, *sockopt.Options) http.RoundTripper { return c }
		rep := replication(t, "http://a.example/db", "http://b.example/db", `"continuous":true`)
		r := start(t, worker.Job{Replication: rep}, cfg)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, target.bodies(), 1)
		c.mu.Lock()
		require.Equal(t, 1, c.open)
		c.mu.Unlock()
		r.stop()
		require.ErrorIs(t, r.end(t), worker.ErrStopped)
		require.Zero(t, c.open)
	})
}

// A batch has fewer rows if they are large.
func TestLargeRows(t *testing.T) {
	testkit.SkipShort(t)
	quietly(t)
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	p := &hostilePair{source: couchtest.NewHostile(1), target: couchtest.NewHostile(2)}
	p.guard()
	rows := 300
	if testkit.Race {
		rows = 60
	}
	for i := range rows {
		p.source.Add(strings.Repeat("i", 50_000)+fmt.Sprint(i), 10)
	}
	p.to(t, p.target)
	_, err := p.run(t)
	require.NoError(t, err)
	p.complete(t)
	// Each row has 50 kB, and a batch has at most half a megabyte of rows and one more.
	require.Greater(t, p.source.Requests(couchtest.BulkGet), rows*50_000/600_000)
}

// A large attachment on a slow source delays neither the rest of its batch nor other batches.
func TestLargeAttachmentsHoldUpNothing(t *testing.T) {
	t.Parallel()
	for _, fields := range []string{`"worker_processes":2,"worker_batch_size":10`, `"worker_processes":2,"worker_batch_size":10,"use_bulk_get":false`} {
		synctest.Test(t, func(t *testing.T) {
			p := &hostilePair{source: couchtest.NewHostile(1), target: couchtest.NewHostile(2)}
			for i := range 100 {
				if i == 5 {
					p.source.Add("big", 10, 10<<20)
				}
				p.source.Add(fmt.Sprintf("d%d", i), 100)
			}
			release := make(chan struct{})
			var once sync.Once
			held := make(chan struct{})
			p.source.Stream(func(_ string, sent int64) {
				if sent > 1<<20 {
					once.Do(func() { close(held) })
					<-release
				}
			})
			p.transport = couchtest.Pipe(t, map[string]http.Handler{"a.example": p.source, "b.example": p.target})
			job := worker.Job{Replication: replication(t, "http://a.example/db", "http://b.example/db", fields)}
			r := start(t, job, p.config())
			<-held
			time.Sleep(5 * time.Second) // in the bubble
			synctest.Wait()
			lacking, err := p.target.Lacks(p.source, nil)
			require.NoError(t, err)
			require.Equal(t, []string{"big"}, lacking)
			p.claimsNothingElse(t)
			close(release)
			require.NoError(t, r.end(t))
			p.complete(t)
		})
	}
}
