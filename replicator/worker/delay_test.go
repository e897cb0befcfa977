package worker_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
	"settee/pkg/sockopt"
	"settee/replicator"
	"settee/replicator/worker"
)

const (
	// roundTrip is the delay that a link adds to each round trip.
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
		b.Fatalf("over a link with a delay of %s a run takes %.2f times as long", roundTrip, ratio)
	}
}

// copyVia copies documents over links with a delay, and returns the number of requests.
func copyVia(b *testing.B, databases func() (source, target string), delay time.Duration) (time.Duration, int) {
	b.Helper()
	source, target := databases()
	from, to := startLink(b, source, delay), startLink(b, target, delay)
	defer from.close()
	defer to.close()
	transport := &http.Transport{MaxIdleConnsPerHost: 20}
	defer transport.CloseIdleConnections()
	counting := &requestCounter{RoundTripper: transport}
	began := time.Now()
	result := run(b, replication(b, from.url, to.url), func(c *worker.Config) {
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

// link forwards connections to a database. Data arrives half a delay later in each direction. The amount of data in
// transit is not limited.
type link struct {
	url      string
	listener net.Listener
	to       string
	delay    time.Duration
	copying  sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]bool
	ended bool
}

func startLink(t testing.TB, database string, delay time.Duration) *link {
	t.Helper()
	u, err := url.Parse(database)
	require.NoError(t, err)
	l := &link{to: u.Host, delay: delay, open: map[net.Conn]bool{}}
	l.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u.Host = l.listener.Addr().String()
	l.url = u.String()
	l.copying.Go(func() {
		for {
			client, err := l.listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", l.to)
			if err != nil {
				client.Close()
				continue
			}
			if !l.keep(client, server) {
				return
			}
			l.copying.Go(func() { l.carry(client, server) })
			l.copying.Go(func() { l.carry(server, client) })
		}
	})
	return l
}

// keep records connections for close.
func (l *link) keep(connections ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range connections {
		if l.ended {
			c.Close()
		}
		l.open[c] = true
	}
	return !l.ended
}

func (l *link) close() {
	l.listener.Close()
	l.mu.Lock()
	l.ended = true
	for c := range l.open {
		c.Close()
	}
	l.mu.Unlock()
	l.copying.Wait()
}

// parcel is a piece of data in transit.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry forwards data from one side to the other, and closes both at its end.
func (l *link) carry(from, to net.Conn) {
	var mu sync.Mutex
	var under []parcel
	over := false
	some := sync.NewCond(&mu)
	l.copying.Go(func() {
		defer from.Close()
		defer to.Close()
		for {
			mu.Lock()
			for len(under) == 0 && !over {
				some.Wait()
			}
			if len(under) == 0 {
				mu.Unlock()
				return
			}
			next := under[0]
			under = under[1:]
			mu.Unlock()
			if wait := time.Until(next.due); wait > 0 {
				<-time.After(wait)
			}
			if _, err := to.Write(next.bytes); err != nil {
				return
			}
		}
	})
	for {
		b := make([]byte, 64<<10)
		n, err := from.Read(b)
		mu.Lock()
		if n > 0 {
			under = append(under, parcel{b[:n], time.Now().Add(l.delay / 2)})
		}
		over = over || err != nil
		some.Signal()
		mu.Unlock()
		if err != nil {
			if err != io.EOF {
				to.Close()
			}
			return
		}
	}
}
