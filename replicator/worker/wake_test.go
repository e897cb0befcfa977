package worker_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"
	"settee/pkg/outbound"
	"settee/pkg/sockopt"
	"settee/replicator"
	"settee/replicator/worker"
)

// maxWake is the largest number of requests from the wake of a parked job with one new document to its being parked again.
const maxWake = 10

// parkedLot is a lot whose job is parked after a few changes were copied.
func parkedLot(t *testing.T, fields ...string) *lot {
	l := newLot(t, fields...)
	for i := range 5 {
		l.source.change(fmt.Sprint("d", i))
	}
	r := l.begin(false)
	l.patiently(r)
	l.source.reset()
	l.target.reset()
	return l
}

func TestAWakeIsCheap(t *testing.T) {
	for name, warm := range map[string]time.Duration{"at once": 0, "after ten minutes": 10 * time.Minute} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			l := parkedLot(t)
			l.source.change("new")
			r := l.begin(true)
			require.Equal(t, []bool{true}, l.told())
			time.Sleep(warm)
			require.Empty(t, l.told())
			l.parker.Ask()
			require.True(t, l.parked(r))
			require.True(t, l.copied("new"))
			require.Equal(t, []string{
				"GET /_local", "GET /_changes continuous", "POST /_bulk_get", "GET ", "PUT /_local", "GET /_changes normal1",
			}, l.source.asked())
			require.Equal(t, []string{
				"GET /_local", "POST /_bulk_docs", "POST /_ensure_full_commit", "PUT /_local",
			}, l.target.asked())
			require.EqualValues(t, 6, l.state.Stats.DocsWritten)
			require.Equal(t, `"6-x"`, l.parking[1].UpdateSeq)
		})
	}
}

// A target that had what the run copied is asked from then on.
func TestAWokenRunAsksATargetThatHasItAll(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l := parkedLot(t)
		l.state.Lacking.Unasked = 0
		l.target.on("POST /_revs_diff", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			_, err := w.Write([]byte("{}"))
			return err == nil
		})
		for i := range 3 {
			l.source.change(fmt.Sprint("echo", i))
			l.target.reset()
			r := l.begin(true)
			l.patiently(r)
			require.Equal(t, []string{
				"GET /_local", "POST /_revs_diff", "POST /_ensure_full_commit", "PUT /_local",
			}, l.target.asked())
			require.Negative(t, l.state.Lacking.Lacked)
		}
	})
}

// A run that was woken for nothing parks again, after it has looked at both databases.
func TestAWakeForNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l := parkedLot(t)
		r := l.begin(true)
		require.Empty(t, l.told(), "what woke it may be about to come")
		time.Sleep(2 * time.Second)
		require.Equal(t, []bool{true}, l.told())
		l.parker.Ask()
		require.True(t, l.parked(r))
		require.Equal(t, []string{
			"GET /_local", "GET /_changes continuous", "GET /_changes normal1", "GET ", "GET /_changes normal1",
		}, l.source.asked())
		require.Equal(t, []string{"GET /_local", "GET "}, l.target.asked())
	})
}

// A filter does not tell a live feed how far it has got, so such a run reads a feed that ends before and after.
func TestAFilteredWake(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l := parkedLot(t, `"doc_ids":["d1","new"]`)
		for _, id := range []string{"other", "new"} {
			l.source.change(id)
			r := l.begin(true)
			l.patiently(r)
		}
		require.True(t, l.copied("new"))
		require.False(t, l.copied("other"))
		require.Equal(t, `"7-x"`, string(l.state.CheckpointedSourceSeq))
	})
}

// What a woken run does not ask at its start, it finds out in another way.
func TestAWokenRunNoticesADatabaseThatWasCreatedAnew(t *testing.T) {
	forget := func(c *changing) {
		c.anew()
		c.stub.mu.Lock()
		defer c.stub.mu.Unlock()
		clear(c.locals)
	}
	// The checkpoint was written just after the database had been created anew.
	misled := func(c *changing) { c.anew() }
	for _, side := range []string{"source", "target"} {
		for how, happens := range map[string]func(*changing){"while it was parked": forget, "at its checkpoint": misled} {
			for _, changes := range []int{0, 1} {
				testkit.RunBubble(t, fmt.Sprint(side, " ", how, " ", changes), func(t *testing.T) {
					l := parkedLot(t)
					happens(map[string]*changing{"source": l.source, "target": l.target}[side])
					for range changes {
						l.source.change("new")
					}
					l.target.stub.mu.Lock()
					l.target.written = nil
					l.target.stub.mu.Unlock()
					r := l.begin(true)
					for range 3 {
						time.Sleep(2 * time.Second)
						l.parker.Ask()
						synctest.Wait()
					}
					if how == "at its checkpoint" {
						require.ErrorContains(t, r.ended(), "the "+side+" database http")
						require.ErrorContains(t, r.err, "was created anew")
						l.patiently(l.begin(false))
					} else {
						require.True(t, l.parked(r))
					}
					require.True(t, l.copied("d0"))
					require.Equal(t, changes > 0, l.copied("new"))
				})
			}
		}
	}
}

// wireCounter counts the requests and the connections of runs.
type wireCounter struct {
	inner    http.RoundTripper
	mu       sync.Mutex
	requests []string
	looks    map[string]int // where in requests the latest look at the changes of a source is
	dialled  map[string]int // connections by host
}

// counting makes a Config whose runs use one pool of connections, as those of a node do.
func counting(t *testing.T) (*wireCounter, worker.Config) {
	pool := outbound.NewPool(outbound.PoolOptions{})
	t.Cleanup(pool.Close)
	c := &wireCounter{looks: map[string]int{}, dialled: map[string]int{}}
	cfg := testConfig()
	cfg.Transport = func(e replicator.Endpoint, options *sockopt.Options) http.RoundTripper {
		transport, err := pool.Transport(outbound.TransportOptions{Proxy: e.Proxy, Sockets: options})
		require.NoError(t, err)
		c.inner = transport
		return c
	}
	return c, cfg
}

// RoundTrip implements http.RoundTripper.
func (c *wireCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	if isQuestion(r) { // the last one is the look before the run parks
		if before, ok := c.looks[r.URL.Path]; ok {
			c.requests[before] = ""
		}
		c.looks[r.URL.Path] = len(c.requests)
	}
	c.requests = append(c.requests, r.Method+" "+r.URL.Path+" "+r.URL.Query().Get("feed"))
	inner := c.inner
	c.mu.Unlock()
	return inner.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		ConnectDone: func(_, address string, err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.dialled[address]++
		},
	})))
}

func (c *wireCounter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = nil
	clear(c.looks)
	clear(c.dialled)
}

// all returns the requests since the latest reset, without questions.
func (c *wireCounter) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.requests), func(request string) bool { return request == "" })
}

// parkable is a run of a job that parks as soon as it is idle. It says when.
type parkable struct {
	*running
	idle   chan struct{}
	parker worker.Parker
}

func startParkable(t *testing.T, rep *replicator.Replication, state *replicator.JobState, cfg worker.Config) *parkable {
	p := &parkable{idle: make(chan struct{}, 100)}
	p.running = start(t, worker.Job{
		Replication: rep, ReplicationID: state.ReplicationID, Stats: state.Stats,
		Woken: state.ReplicationID != "", Lacking: state.Lacking, Security: state.Security, Target: state.Target, Park: &p.parker,
		Idle: func(idle bool) {
			if idle {
				p.idle <- struct{}{}
				p.parker.Ask()
			}
		},
		Parking: func(context.Context, replicator.Parked) error { return nil },
	}, cfg)
	return p
}

// parks waits until a run parks.
func (p *parkable) parks(t *testing.T, state *replicator.JobState) {
	t.Helper()
	require.NoError(t, p.end(t))
	require.True(t, p.result.Parked)
	p.result.CopyTo(state)
}

// One new document of a parked job costs at most ten requests, and no login while the session is good. PouchDB Server does
// not say when a database was created, and so costs more. A test of cmd/settee does the same with settee.
func TestAWakeCostsTenRequests(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		source, target := pair(t, peer, couchtest.Population{Seed: 1, Docs: 10})
		rep := replication(t, source, target, `"continuous":true`)
		c, cfg := counting(t)
		var state replicator.JobState
		startParkable(t, rep, &state, cfg).parks(t, &state)
		most := maxWake
		if _, ok := peer.(*couchtest.Server); ok {
			most = 20
		}
		for i := range 3 {
			c.reset()
			post(t, source, fmt.Sprintf(`{"_id":"new%d"}`, i))
			startParkable(t, rep, &state, cfg).parks(t, &state)
			asked := c.all()
			require.LessOrEqual(t, len(asked), most, strings.Join(asked, "\n"))
			require.NotContains(t, strings.Join(asked, "\n"), "_session")
			require.EqualValues(t, 11+i, state.Stats.DocsWritten)
		}
		couchtest.SameTrees(t, source, target)
	})
}

// Jobs that wake have their databases on the same two servers, and share connections. Only the live feed of each has one
// for itself, which ends with it.
func TestWokenJobsShareConnections(t *testing.T) {
	t.Parallel()
	const jobs = 20
	databases := map[string]*changing{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, rest, _ := strings.Cut(r.URL.Path[1:], "/")
		if name == "" { // which server it is
			_, _ = io.WriteString(w, `{"uuid":"abc"}`)
			return
		}
		r.URL.Path = strings.TrimSuffix("/db/"+rest, "/")
		databases[name].ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	names, reps := make([]string, jobs), make([]*replicator.Replication, jobs)
	for i := range jobs {
		names[i] = fmt.Sprint("source", i)
		target := fmt.Sprint("target", i)
		databases[names[i]], databases[target] = newChanging(t), newChanging(t)
		reps[i] = replication(t, server.URL+"/"+names[i], server.URL+"/"+target, `"continuous":true`)
	}
	c, cfg := counting(t)
	cfg.Shared = new(worker.Shared)
	states := make([]replicator.JobState, jobs)
	wake := func(i int, id string) {
		databases[names[i]].change(id)
		startParkable(t, reps[i], &states[i], cfg).parks(t, &states[i])
	}
	for i := range jobs {
		wake(i, "a")
	}
	c.reset()
	for i := range jobs {
		wake(i, "b")
	}
	require.Len(t, c.all(), jobs*maxWake)
	c.mu.Lock() // a connection may be opened that no request needs any more
	defer c.mu.Unlock()
	require.LessOrEqual(t, c.dialled[server.Listener.Addr().String()], jobs+3)
}

// Changes, wakes and parks at random, with every kind of server.
func TestParkingAndWakingCopiesEverything(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		for _, fields := range [][]string{{`"continuous":true`}, {`"continuous":true`, `"winning_revs_only":true`}} {
			source, target := pair(t, peer, couchtest.Population{Seed: 7, Docs: 20, Conflicted: 3, Deleted: 2})
			rep := replication(t, source, target, fields...)
			_, cfg := counting(t)
			var state replicator.JobState
			n := 0
			for range 4 {
				p := startParkable(t, rep, &state, cfg)
				for range 5 {
					post(t, source, fmt.Sprintf(`{"_id":"new%d"}`, n))
					n++
				}
				p.parks(t, &state)
				for range n % 3 { // whatever is written while it is parked
					post(t, source, fmt.Sprintf(`{"_id":"late%d"}`, n))
					n++
				}
			}
			startParkable(t, rep, &state, cfg).parks(t, &state)
			changed, err := worker.Changed(t.Context(), rep, state.CheckpointedSourceSeq, cfg)
			require.NoError(t, err)
			require.False(t, changed)
			if len(fields) == 1 {
				couchtest.SameTrees(t, source, target)
			}
		}
	})
}
