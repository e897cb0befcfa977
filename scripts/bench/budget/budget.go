// Package budget measures how much of the budget of a server replications use, and whether they ever ask for more. Jobs read
// documents one by one from databases behind a relay, which notes when each request arrives.
package budget

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"

	"settee/internal/testkit"
	"settee/pkg/retry"
	"settee/scripts/bench/lab"
)

// Scenario measures the budget of a server.
var Scenario = lab.Scenario{Name: "budget", New: func(r *lab.Run) lab.Measurement { return &bench{Run: r} }}

const (
	// settled is how long nodes may take to divide the budget anew, and dead how long the part of a killed node stays unused.
	settled, dead = 15 * time.Second, 25 * time.Second
	// batch is the number of documents that are written at once.
	batch = 500
)

// bench is the flags, and when requests have arrived.
type bench struct {
	jobs, rate, nodes int
	duration          time.Duration
	kill              bool

	*lab.Run

	mu    sync.Mutex
	times []time.Time
}

// Register implements lab.Measurement.
func (b *bench) Register(f *flag.FlagSet) {
	f.IntVar(&b.jobs, "jobs", 40, "jobs")
	f.IntVar(&b.rate, "rate", 100, "requests a second that the server may be asked for")
	f.IntVar(&b.nodes, "nodes", 1, "nodes that run jobs; more than one use a FoundationDB")
	f.DurationVar(&b.duration, "duration", time.Minute, "how long requests are counted")
	f.BoolVar(&b.kill, "kill", false, "kill a node after a third of that, and count on for as long")
}

// Check implements lab.Measurement.
func (b *bench) Check() error {
	if b.jobs < 1 || b.rate < 1 || b.nodes < 1 || b.kill && b.nodes < 2 {
		return errors.New("-jobs, -rate and -nodes must be at least 1, and -nodes at least 2 with -kill")
	}
	return nil
}

// Measure implements lab.Measurement.
func (b *bench) Measure(ctx context.Context) error {
	endpoints, err := b.StartEndpoints(ctx, lab.OnSettee)
	if err != nil {
		return err
	}
	relay := b.relay(endpoints)
	nodes, err := b.start(ctx, relay)
	if err != nil {
		return err
	}
	if err := b.add(ctx, endpoints, nodes[0], relay); err != nil {
		return err
	}
	b.Report.Targets("%s: %d jobs on %d nodes, a budget of %d requests a second", b.Version, b.jobs, b.nodes, b.rate)
	if err := retry.Wait(ctx, settled); err != nil {
		return err
	}
	if err := b.during(ctx, "all nodes run", b.duration, 95); err != nil || !b.kill {
		return err
	}
	nodes[len(nodes)-1].Close()
	if err := b.during(ctx, "after a node was killed, until its part is used again", dead, 0); err != nil {
		return err
	}
	return b.during(ctx, "the other nodes run", b.duration, 95)
}

// relay starts the relay before the endpoints, and returns its address.
func (b *bench) relay(endpoints *lab.Server) (address string) {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: endpoints.Host()})
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 1000}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := receivedAt(r.Context())
		b.mu.Lock()
		b.times = append(b.times, at)
		b.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	server.Listener = receivedListener{server.Listener}
	server.Config.ConnContext = withConn
	server.Start()
	b.AtEnd(server.Close)
	return server.Listener.Addr().String()
}

// start starts the nodes. The first one takes documents.
func (b *bench) start(ctx context.Context, relay string) (nodes []*lab.Node, err error) {
	o := lab.NodeOptions{Settings: []string{
		"replicator/use_bulk_get=false", fmt.Sprintf("replicator.budgets/%s=%d requests/s", relay, b.rate),
	}}
	if b.nodes > 1 {
		if o.Store, _, err = b.StartFoundationDB(ctx); err != nil {
			return nil, err
		}
	}
	for range b.nodes {
		node, err := b.StartNode(ctx, o)
		if err != nil {
			return nil, err
		}
		nodes, o.Replication = append(nodes, node), true
	}
	return nodes, nil
}

// add fills the sources with more documents than the budget allows to read, and adds the jobs.
func (b *bench) add(ctx context.Context, endpoints *lab.Server, node *lab.Node, relay string) error {
	seconds := int((3*b.duration + settled + dead) / time.Second)
	docs := b.rate*seconds/b.jobs + batch
	err := lab.Each(ctx, 4, b.jobs, func(ctx context.Context, i int) error {
		name := "s" + strconv.Itoa(i)
		if err := endpoints.Ask(ctx, http.MethodPut, name, nil, nil); err != nil {
			return err
		}
		return endpoints.Fill(ctx, name, docs, batch, func(n int) map[string]any { return map[string]any{"_id": strconv.Itoa(n)} })
	})
	if err != nil {
		return err
	}
	b.Say("%d databases with %d documents made", b.jobs, docs)
	return lab.Each(ctx, 1, b.jobs, func(ctx context.Context, i int) error {
		return node.Ask(ctx, http.MethodPut, "_replicator/job-"+strconv.Itoa(i), map[string]any{
			"source": endpoints.URL("s"+strconv.Itoa(i), relay), "target": endpoints.URL("t"+strconv.Itoa(i), ""), "create_target": true, "continuous": true,
		}, nil)
	})
}

// during counts requests for a time, and reports how much of the budget was used, and the most in any second.
func (b *bench) during(ctx context.Context, what string, d time.Duration, least int) error {
	b.mu.Lock()
	b.times = nil
	b.mu.Unlock()
	if err := retry.Wait(ctx, d); err != nil {
		return err
	}
	b.mu.Lock()
	times := b.times
	b.mu.Unlock()
	b.Report.Measured(what, fmt.Sprintf("%d to 100 %%", least), "%.1f %% of the budget in %s", 100*float64(len(times))/(float64(b.rate)*d.Seconds()), d)
	b.Report.Measured("  most in any second", strconv.Itoa(b.rate), "%d", testkit.MostInASecond(times))
	return nil
}
