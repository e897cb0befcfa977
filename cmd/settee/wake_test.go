package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/outbound"
	"settee/pkg/sockopt"
	"settee/replicator"
	"settee/replicator/worker"
)

// tapped notes the requests through a transport, without those for one change: the look before a run parks, and the
// question how many changes are left, which a run asks if it takes longer than a second.
type tapped struct {
	inner http.RoundTripper
	mu    sync.Mutex
	all   []string
}

// RoundTrip implements http.RoundTripper.
func (c *tapped) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("limit") != "1" {
		c.mu.Lock()
		c.all = append(c.all, r.Method+" "+r.URL.Path)
		c.mu.Unlock()
	}
	return c.inner.RoundTrip(r)
}

// told is a worker.Reporter that does nothing.
type told struct{}

// Identify implements worker.Reporter.
func (told) Identify(context.Context, replicator.ID) error { return nil }

// Report implements worker.Reporter.
func (told) Report(context.Context, worker.Progress) error { return nil }

// One new document of a parked job costs ten requests to settee's databases, and no login while the session is good.
func TestAWakeCostsTenRequests(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	node.ask(http.StatusCreated, http.MethodPut, "source", "")
	node.ask(http.StatusCreated, http.MethodPut, "target", "")
	request, err := replicator.ParseRequest(
		fmt.Appendf(nil, `{"source":%q,"target":%q,"continuous":true}`, node.url+"source", node.url+"target"), replicator.ParseOptions{})
	require.NoError(t, err)

	pool := outbound.NewPool(outbound.PoolOptions{})
	defer pool.Close()
	transport, err := pool.Transport(outbound.TransportOptions{})
	require.NoError(t, err)
	requests := &tapped{inner: transport}
	cfg := worker.DefaultConfig()
	cfg.Shared = new(worker.Shared)
	cfg.Transport = func(replicator.Endpoint, *sockopt.Options) http.RoundTripper { return requests }
	var state replicator.JobState
	for n := range 4 {
		node.ask(http.StatusCreated, http.MethodPut, fmt.Sprint("source/", n), `{}`)
		requests.all = nil
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		parker := new(worker.Parker)
		result, err := worker.Run(ctx, worker.Job{
			Replication: request.Replication, ReplicationID: state.ReplicationID, Stats: state.Stats,
			Woken: n > 0, Lacking: state.Lacking, Park: parker,
			Idle: func(idle bool) {
				if idle {
					parker.Ask()
				}
			},
			Parking: func(context.Context, replicator.Parked) error { return nil },
		}, cfg, told{})
		cancel()
		require.NoError(t, err)
		require.True(t, result.Parked)
		result.CopyTo(&state)
		assert.EqualValues(t, n+1, state.Stats.DocsWritten)
		if list := strings.Join(requests.all, "\n"); n > 0 {
			assert.LessOrEqual(t, len(requests.all), 9, list)
			assert.NotContains(t, list, "_session")
		}
	}
	require.Zero(t, node.end(syscall.SIGTERM))
}
