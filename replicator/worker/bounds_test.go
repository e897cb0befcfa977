package worker_test

import (
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
	"settee/replicator/worker"
)

// liveHeap collects garbage all the time and notes how much the process holds.
type liveHeap struct {
	start, peak uint64
	stop, done  chan struct{}
}

func watchLiveHeap() *liveHeap {
	h := &liveHeap{stop: make(chan struct{}), done: make(chan struct{})}
	live := func() uint64 {
		runtime.GC()
		return couchtest.ReadMemory().Live
	}
	h.start = live()
	go func() {
		defer close(h.done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			h.peak = max(h.peak, live())
			select {
			case <-h.stop:
				return
			case <-tick.C:
			}
		}
	}()
	return h
}

func (h *liveHeap) end() uint64 {
	close(h.stop)
	<-h.done
	return max(h.peak, h.start) - h.start
}

// mostMemory is the formula of the package's comment, in bytes.
func mostMemory(workers, connections, document int) uint64 {
	return uint64(4*workers+1+6*workers+2*connections)<<20 + 2*3*uint64(document)
}

// However large documents and attachments are, what a run holds of them is bounded. The peers of this test
// hold nothing.
func TestMemoryIsBounded(t *testing.T) {
	quietly(t)
	const largest = 8 << 20
	for name, test := range map[string]struct {
		fields     string
		workers    int
		attachment int64
	}{
		"in bulk":    {`"worker_processes":4`, 4, 200 << 20},
		"singly":     {`"worker_processes":1,"use_bulk_get":false`, 1, 1 << 20},
		"in a hurry": {`"worker_processes":16,"worker_batch_size":4`, 16, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			p := &hostilePair{source: couchtest.NewHostile(1), target: couchtest.NewHostile(2)}
			documents := 120
			if raceEnabled { // which is slow, and not about memory
				documents, test.attachment = 24, min(test.attachment, 10<<20)
			}
			for i := range documents {
				switch i % 4 {
				case 0, 1:
					p.source.Add(fmt.Sprintf("d%d", i), 1<<10)
				case 2:
					p.source.Add(fmt.Sprintf("d%d", i), 900<<10)
				case 3:
					p.source.Add(fmt.Sprintf("d%d", i), largest-1000-i*20_000) // down to some megabytes
				}
				if i%40 == 20 {
					p.source.Add(fmt.Sprintf("m%d", i), 2<<20, 3<<20)
				}
			}
			p.source.Add("att", 100, test.attachment, 10)
			p.to(t, p.target)
			heap := watchLiveHeap()
			_, err := p.run(t, func(_ *worker.Config, job *worker.Job) {
				job.Replication = replication(t, "http://a.example/db", "http://b.example/db", test.fields)
			})
			peak := heap.end()
			require.NoError(t, err)
			p.complete(t)
			most := mostMemory(test.workers, 20, largest)
			t.Logf("%d MiB of at most %d", peak>>20, most>>20)
			require.Less(t, peak, most)
		})
	}
}

// Rows may be large, too: a batch has fewer of them then.
func TestLargeRows(t *testing.T) {
	quietly(t)
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	p := &hostilePair{source: couchtest.NewHostile(1), target: couchtest.NewHostile(2)}
	p.guard()
	rows := 300
	if raceEnabled {
		rows = 60
	}
	for i := range rows {
		p.source.Add(strings.Repeat("i", 50_000)+fmt.Sprint(i), 10)
	}
	p.to(t, p.target)
	_, err := p.run(t)
	require.NoError(t, err)
	p.complete(t)
	// Each has 50 kB, and what a batch has of them is half a megabyte, or one more.
	require.Greater(t, p.target.Requests(couchtest.RevsDiff), rows*50_000/600_000)
}

// One large attachment on a slow source holds up nothing else: neither what is in its own batch, nor what is
// in others.
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
			time.Sleep(5 * time.Second) // of the bubble's
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
