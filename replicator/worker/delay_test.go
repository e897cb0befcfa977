package worker_test

import (
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/servers"
	"settee/pkg/couch/couchtest"
	"settee/pkg/sockopt"
	"settee/replicator"
	"settee/replicator/worker"
)

const (
	// roundTrip is the delay that a relay adds to each round trip.
	roundTrip = 50 * time.Millisecond
	// delayedDocs is the number of documents copied over it.
	delayedDocs = 10_000
)

// BenchmarkDelay copies 10,000 documents between two PouchDB Servers, with and without delay.
func BenchmarkDelay(b *testing.B) {
	source, target := couchtest.Start(b), couchtest.Start(b)
	from := source.DB(b, "source")
	couchtest.Populate(b, from, couchtest.Population{Seed: 1, Docs: delayedDocs})
	compareDelayed(b, func() (string, string) { return from, target.DB(b, "target") }, 2)
}

// BenchmarkDelayPrepared is BenchmarkDelay with databases that answer at once with prepared bytes. It shows the round
// trips before the first document, after the last one, and those that do not overlap others.
func BenchmarkDelayPrepared(b *testing.B) {
	server := startPrepared(b)
	compareDelayed(b, func() (string, string) {
		return fmt.Sprintf("%s/docs/%d", server, delayedDocs), server + "/target/0"
	}, 0)
}

// compareDelayed fails if a copy with delay takes more than most times as long as one without. 0 is no limit.
func compareDelayed(b *testing.B, databases func() (source, target string), most float64) {
	near, far := time.Hour, time.Hour
	var trips float64
	for n := 0; n < 2 || b.Loop(); n++ {
		took, _ := copyVia(b, databases, 0)
		near = min(near, took)
		took, requests := copyVia(b, databases, roundTrip)
		far = min(far, took)
		trips = float64(requests)
	}
	b.ReportMetric(near.Seconds()*1e3, "near-ms")
	b.ReportMetric(far.Seconds()*1e3, "far-ms")
	b.ReportMetric(far.Seconds()/near.Seconds(), "far/near")
	b.ReportMetric((far-near).Seconds()/roundTrip.Seconds(), "round-trips-waited-for")
	b.ReportMetric(trips, "requests")
	b.ReportMetric(0, "ns/op")
	if ratio := far.Seconds() / near.Seconds(); most > 0 && ratio > most {
		b.Fatalf("through relays with a delay of %s a run takes %.2f times as long", roundTrip, ratio)
	}
}

// copyVia copies documents through relays with a delay, and returns the number of requests.
func copyVia(b *testing.B, databases func() (source, target string), delay time.Duration) (time.Duration, int) {
	b.Helper()
	source, target := databases()
	from, endFrom := farther(b, source, delay)
	defer endFrom()
	to, endTo := farther(b, target, delay)
	defer endTo()
	transport := &http.Transport{MaxIdleConnsPerHost: 20}
	defer transport.CloseIdleConnections()
	counting := &requestCounter{RoundTripper: transport}
	began := time.Now()
	result := run(b, replication(b, from, to), func(c *worker.Config) {
		c.Transport = func(replicator.Endpoint, *sockopt.Options) http.RoundTripper { return counting }
	})
	took := time.Since(began)
	require.EqualValues(b, delayedDocs, result.Stats.DocsWritten)
	return took, counting.n
}

type requestCounter struct {
	http.RoundTripper
	mu sync.Mutex
	n  int
}

func (c *requestCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	return c.RoundTripper.RoundTrip(r)
}

// farther starts a relay to the server of a database, and returns the URL of the database through it.
func farther(b *testing.B, database string, delay time.Duration) (through string, end func()) {
	b.Helper()
	u, err := url.Parse(database)
	require.NoError(b, err)
	relay, err := servers.StartRelay(b.Context(), u.Host, delay)
	require.NoError(b, err)
	u.Host = relay.Address()
	return u.String(), relay.Close
}
