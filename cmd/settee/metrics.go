package main

import (
	"context"
	"fmt"
	stdlog "log"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"settee/cmd/settee/internal/lifecycle"
	"settee/frontend"
	"settee/pkg/config"
	"settee/pkg/redact"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/scheduler"
)

const (
	// countTimeout is the time limit for reading the numbers of jobs from the store.
	countTimeout = 5 * time.Second
	// scrapes is the number of requests for metrics that are answered at the same time.
	scrapes = 4
	// metricsTimeout is the time limit of the metrics' own port for reading a request, for writing
	// a response, and for an idle connection.
	metricsTimeout = 30 * time.Second
)

// metrics are the metrics of a node. A metric that CouchDB has too is named couchdb_ and CouchDB's name of the
// statistic.
type metrics struct {
	registry *prometheus.Registry
	requests prometheus.Counter
	methods  *prometheus.CounterVec
	statuses *prometheus.CounterVec
	duration prometheus.Histogram
}

// The methods and statuses that CouchDB counts. They are there from the start.
var (
	countedMethods  = []string{"COPY", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"}
	countedStatuses = []int{
		200, 201, 202, 204, 206, 301, 302, 304, 400, 401, 403, 404, 405, 406, 409, 412, 413, 414, 415, 416, 417, 500, 501, 503, 507,
	}
)

// newMetrics returns the metrics of every node. slow is the number of its slow transactions.
func newMetrics(store *jobs.Store, slow *atomic.Int64) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "couchdb_httpd_requests_total", Help: "number of HTTP requests",
		}),
		methods: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "couchdb_httpd_request_methods", Help: "number of HTTP requests by method",
		}, []string{"method"}),
		statuses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "couchdb_httpd_status_codes", Help: "number of HTTP responses by status code",
		}, []string{"code"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "couchdb_request_time_seconds", Help: "duration of a request, including its waits",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 60},
		}),
	}
	for _, method := range countedMethods {
		m.methods.WithLabelValues(method)
	}
	for _, status := range countedStatuses {
		m.statuses.WithLabelValues(strconv.Itoa(status))
	}
	began := time.Now()
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.requests, m.methods, m.statuses, m.duration, newJobNumbers(store),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "couchdb_uptime_seconds", Help: "how long this node has run"},
			func() float64 { return time.Since(began).Seconds() }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "settee_slow_transactions_total", Help: "transactions with the store that this node was repeating after 30 seconds",
		}, func() float64 { return float64(slow.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "settee_build_info", Help: "always 1; the label is the version of this node",
			ConstLabels: prometheus.Labels{"version": currentVersion()},
		}, func() float64 { return 1 }),
	)
	return m
}

// replicating adds the metrics of a replication node. counts returns their values.
func (m *metrics) replicating(counts func() scheduler.Counts) {
	for _, c := range []struct {
		name, help string
		of         func(scheduler.Counts) int64
	}{
		{"couchdb_couch_replicator_jobs_starts_total", "runs of replication jobs that began on this node",
			func(c scheduler.Counts) int64 { return c.Starts }},
		{"couchdb_couch_replicator_jobs_stops_total", "runs that were stopped, to go on later",
			func(c scheduler.Counts) int64 { return c.Stops }},
		{"couchdb_couch_replicator_jobs_crashes_total", "runs that failed, and are tried again",
			func(c scheduler.Counts) int64 { return c.Crashes }},
		{"couchdb_couch_replicator_docs_completed_state_updates_total", "replication jobs that completed on this node",
			func(c scheduler.Counts) int64 { return c.Completed }},
		{"couchdb_couch_replicator_docs_failed_state_updates_total", "replication jobs that failed for good on this node",
			func(c scheduler.Counts) int64 { return c.Failed }},
		{"settee_replicator_docs_read_total", "documents that this node read from sources",
			func(c scheduler.Counts) int64 { return c.Stats.DocsRead }},
		{"settee_replicator_docs_written_total", "documents that this node wrote to targets",
			func(c scheduler.Counts) int64 { return c.Stats.DocsWritten }},
		{"settee_replicator_doc_write_failures_total", "documents that targets refused",
			func(c scheduler.Counts) int64 { return c.Stats.DocWriteFailures }},
		{"settee_replicator_bytes_received_total", "bytes that this node received from endpoints, with what HTTP and TLS add",
			func(c scheduler.Counts) int64 { return c.BytesReceived }},
		{"settee_replicator_bytes_sent_total", "bytes that this node sent to endpoints, with what HTTP and TLS add",
			func(c scheduler.Counts) int64 { return c.BytesSent }},
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: c.name, Help: c.help},
			func() float64 { return float64(c.of(counts())) }))
	}
}

// connecting adds the numbers of requests to endpoints.
func (m *metrics) connecting(c *connections) {
	for name, of := range map[string]struct {
		help  string
		count *atomic.Int64
	}{
		"requests_total":          {"requests to endpoints", &c.requests},
		"responses_success_total": {"requests to endpoints that were answered, with a status below 400", &c.successes},
		"responses_failure_total": {"requests to endpoints that failed, or were answered with another status", &c.failures},
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: "couchdb_couch_replicator_" + name, Help: of.help},
			func() float64 { return float64(of.count.Load()) }))
	}
}

// request counts a request. The status is 0 if there was no response.
func (m *metrics) request(method string, status int, took time.Duration) {
	if !slices.Contains(countedMethods, method) {
		method = "other" // a client must not choose the values of a label
	}
	m.requests.Inc()
	m.methods.WithLabelValues(method).Inc()
	if status != 0 {
		m.statuses.WithLabelValues(strconv.Itoa(status)).Inc()
	}
	m.duration.Observe(took.Seconds())
}

// handler returns the handler that responds with all metrics. It leaves out those that cannot be collected.
func (m *metrics) handler(log zerolog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: stdlog.New(errorLines{log}, "", 0), ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapes,
	})
}

// errorLines logs each line as an error.
type errorLines struct{ log zerolog.Logger }

func (l errorLines) Write(line []byte) (int, error) {
	l.log.Error().Str("reason", redact.Text(string(line))).Msg("a metric could not be collected")
	return len(line), nil
}

// jobNumbers collects the numbers of jobs by state. It reads them from the store, so they count
// the jobs of all nodes and are the same on every node.
type jobNumbers struct {
	store  *jobs.Store
	states map[replicator.State]*prometheus.Desc
	total  *prometheus.Desc
}

func newJobNumbers(store *jobs.Store) *jobNumbers {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("couchdb_couch_replicator_jobs_"+name, help+", of all nodes together", nil, nil)
	}
	return &jobNumbers{store: store, total: desc("total", "replication jobs that have not ended"),
		states: map[replicator.State]*prometheus.Desc{
			replicator.StateRunning:  desc("running", "replication jobs that run"),
			replicator.StatePending:  desc("pending", "replication jobs that wait for their turn or for their next time"),
			replicator.StateCrashing: desc("crashed", "replication jobs that have crashed and wait to be tried again"),
		},
	}
}

// Describe implements prometheus.Collector.
func (n *jobNumbers) Describe(out chan<- *prometheus.Desc) {
	out <- n.total
	for _, desc := range n.states {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (n *jobNumbers) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	counts, err := n.store.Counts(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(n.total, fmt.Errorf("counting the replication jobs: %w", err))
		return
	}
	total := 0.0
	for state, desc := range n.states {
		count := float64(counts.Jobs[state])
		total += count
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, count)
	}
	out <- prometheus.MustNewConstMetric(n.total, prometheus.GaugeValue, total)
}

// unsniffed tells browsers to use the Content-Type of a response, and not to guess another one.
func unsniffed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// metricsPart serves the metrics and /_up on a port of their own. A replication node has no other port.
func (n *node) metricsPart() lifecycle.Part {
	return lifecycle.Part{
		Start: n.listenForScrapes,
		Drain: func() { n.scrapes.refuse() },
		Stop:  func(ctx context.Context) error { return n.scrapes.stop(ctx) },
	}
}

// metricsAddress returns the address of the metrics' own port.
func metricsAddress(cfg *config.Config) netip.AddrPort {
	return netip.AddrPortFrom(config.MetricsAddress.Get(cfg), uint16(config.MetricsPort.Get(cfg))) // checked when it is read
}

func (n *node) listenForScrapes(ctx context.Context) error {
	address := metricsAddress(n.cfg)
	if !address.Addr().IsLoopback() {
		return fmt.Errorf("%v is %s, which other hosts can reach. This port has no authentication, so it needs a loopback "+
			"address. Administrators can also read the metrics at /_node/_local/_prometheus of the frontend", config.MetricsAddress, address.Addr())
	}
	paths := http.NewServeMux()
	paths.Handle("GET /_node/_local/_prometheus", n.metrics.handler(n.log))
	paths.HandleFunc("GET /_up", n.up)
	n.scrapes = &server{Server: &http.Server{
		Handler: unsniffed(frontend.OnlyLocalNames(paths)), ReadTimeout: metricsTimeout, WriteTimeout: metricsTimeout, IdleTimeout: metricsTimeout,
		ErrorLog: stdlog.New(errorLines{n.log}, "", 0),
	}}
	failed := func(err error) { n.fail(fmt.Errorf("accepting requests for metrics: %w", err)) }
	bound, err := n.scrapes.listen(ctx, address, n.scrapes.Serve, failed)
	if err != nil {
		return fmt.Errorf("listening for requests for metrics: %w", err)
	}
	n.log.Info().Str("metrics", "http://"+bound+"/_node/_local/_prometheus").Msg("settee serves metrics")
	return nil
}
