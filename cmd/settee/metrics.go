package main

import (
	"context"
	"crypto/tls"
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
	"settee/pkg/certs"
	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/nodes"
	"settee/pkg/redact"
	"settee/replicator/jobs"
	"settee/replicator/scheduler"
	"settee/replicator/watch"
)

const (
	// countTimeout is the time limit for reading what jobNumbers collects from the store.
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

// newMetrics returns the metrics of every node. slow is the number of its slow transactions. crashAlert returns how long jobs
// crash that are counted apart.
func newMetrics(db kv.Database, lists *jobs.Lists, slow *atomic.Int64, crashAlert func() time.Duration) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "couchdb_httpd_requests_total", Help: "number of HTTP requests",
		}),
		methods: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "couchdb_httpd_request_methods", Help: "HTTP requests by method; a counter, although CouchDB's name does not say so",
		}, []string{"method"}),
		statuses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "couchdb_httpd_status_codes",
			Help: "HTTP responses by status code; a counter, although CouchDB's name does not say so",
		}, []string{"code"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "couchdb_request_time_seconds", Help: "duration of HTTP requests; it includes waits, as for changes or for the end of a replication",
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
		m.requests, m.methods, m.statuses, m.duration, newJobNumbers(lists, crashAlert))
	m.counter("couchdb_uptime_seconds", "time since this node started", nil, func() float64 { return time.Since(began).Seconds() })
	m.counter("settee_slow_transactions_total", "transactions with the store that this node still repeated after 30 seconds", nil,
		func() float64 { return float64(slow.Load()) })
	m.gauge("settee_build_info", "always 1; the label is this node's version", prometheus.Labels{"version": currentVersion()},
		func() float64 { return 1 })
	m.gauge("settee_store_writable", "1 while the store accepts writes of this node; 0 after one has failed, until a restart", nil,
		func() float64 { return oneIf(kv.Writable(db).Err() == nil) })
	return m
}

// gauge adds a metric that is read when the metrics are, and counter one that only grows.
func (m *metrics) gauge(name, help string, labels prometheus.Labels, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
}

func (m *metrics) counter(name, help string, labels prometheus.Labels, value func() float64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, value))
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}

// roles are the roles that nodes have in the registry.
var roles = []string{config.Roles{APIFrontend: true}.String(), config.Roles{Replication: true}.String()}

// knowing adds what this node knows of all nodes.
func (m *metrics) knowing(registry *nodes.Registry) {
	for _, role := range roles {
		m.gauge("settee_nodes_live", "live nodes with a role, as this node sees them and itself", prometheus.Labels{"role": role}, func() float64 {
			return float64(countNodes(registry, func(n *nodes.Seen) bool { return n.Live && slices.Contains(n.Roles, role) }))
		})
	}
	m.gauge("settee_nodes_cordoned", "live nodes that are cordoned or drained, and take no jobs, as this node sees them and itself", nil, func() float64 {
		return float64(countNodes(registry, func(n *nodes.Seen) bool { return n.Live && n.Cordon != nil }))
	})
	m.gauge("settee_store_last_write_seconds", "time since this node last renewed its row in the store, which it does every 5 seconds", nil,
		func() float64 { return secondsSince(registry.Renewed()) })
	m.gauge("settee_nodes_clock_difference_seconds",
		"largest difference between this node's clock and that of another live node, at least; it may be 10 seconds more", nil, func() float64 {
			var largest time.Duration
			for _, node := range registry.Nodes() {
				if node.Live {
					largest = max(largest, node.Ahead.Abs())
				}
			}
			return largest.Seconds()
		})
}

// upgrading adds the metrics of the store's level.
func (m *metrics) upgrading(upgrade *nodes.Upgrade) {
	m.gauge("settee_store_level", "level of the store, as this node last read it", nil, func() float64 { return float64(upgrade.Status().Level) })
	m.registry.MustRegister(&levelWaits{upgrade, prometheus.NewDesc("settee_store_level_waits",
		"1 for each live node that does not know the level that this node could raise the store to", []string{"node", "version"}, nil)})
}

// levelWaits are the nodes that the next level of the store waits for.
type levelWaits struct {
	upgrade *nodes.Upgrade
	desc    *prometheus.Desc
}

func (l *levelWaits) Describe(to chan<- *prometheus.Desc) { to <- l.desc }

func (l *levelWaits) Collect(to chan<- prometheus.Metric) {
	behind := map[[2]string]bool{} // several nodes may have a name
	for _, n := range l.upgrade.Status().Behind {
		behind[[2]string{n.Name, n.Version}] = true
	}
	for labels := range behind {
		to <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, 1, labels[:]...)
	}
}

// replicating adds the metrics of a replication node. maxJobs returns the number of its slots.
func (m *metrics) replicating(server *scheduler.Server, maxJobs func() int) {
	m.gauge("settee_replicator_running_jobs", "slots of this node that are in use: replication jobs that it runs, without those that end", nil,
		func() float64 { return float64(server.Running()) })
	m.gauge("settee_replicator_idle_jobs", "replication jobs in slots of this node that have nothing to copy: they make room for due ones", nil,
		func() float64 { return float64(server.Idle()) })
	m.gauge("settee_replicator_max_jobs", "replication jobs that this node may run at a time; 0 while it is cordoned", nil,
		func() float64 { return float64(maxJobs()) })
	m.gauge("settee_scheduler_overdue_seconds", "how late this node's activity monitor or rescheduling is; 0 while both are on time", nil,
		func() float64 { return server.Overdue().Seconds() })
	count := func(name, help string, of func(scheduler.Counts) int64) {
		m.counter(name, help, nil, func() float64 { return float64(of(server.Counts())) })
	}
	count("couchdb_couch_replicator_jobs_starts_total", "runs of replication jobs that began on this node",
		func(c scheduler.Counts) int64 { return c.Starts })
	count("couchdb_couch_replicator_jobs_stops_total", "runs that this node stopped, to continue later: to make room, to shut down, or for a changed job",
		func(c scheduler.Counts) int64 { return c.Stops })
	count("couchdb_couch_replicator_jobs_crashes_total", "runs on this node that failed, and whose jobs are tried again",
		func(c scheduler.Counts) int64 { return c.Crashes })
	count("couchdb_couch_replicator_docs_completed_state_updates_total", "replication jobs that completed on this node",
		func(c scheduler.Counts) int64 { return c.Completed })
	count("couchdb_couch_replicator_docs_failed_state_updates_total", "replication jobs that failed for good on this node",
		func(c scheduler.Counts) int64 { return c.Failed })
	count("settee_replicator_parks_total", "runs of continuous jobs on this node that ended because nothing was left to copy",
		func(c scheduler.Counts) int64 { return c.Parks })
	count("settee_replicator_wakes_total", "runs on this node of jobs that were parked before",
		func(c scheduler.Counts) int64 { return c.Wakes })
	count("settee_replicator_docs_read_total", "documents that runs on this node have read from sources",
		func(c scheduler.Counts) int64 { return c.Stats.DocsRead })
	count("settee_replicator_docs_written_total", "documents that runs on this node have written to targets",
		func(c scheduler.Counts) int64 { return c.Stats.DocsWritten })
	count("settee_replicator_doc_write_failures_total", "documents that targets refused from runs on this node",
		func(c scheduler.Counts) int64 { return c.Stats.DocWriteFailures })
	count("settee_replicator_bytes_received_total", "bytes that this node received from sources and targets, with what HTTP and TLS add",
		func(c scheduler.Counts) int64 { return c.BytesReceived })
	count("settee_replicator_bytes_sent_total", "bytes that this node sent to sources and targets, with what HTTP and TLS add",
		func(c scheduler.Counts) int64 { return c.BytesSent })
}

// claiming adds the numbers of claims of replication jobs by this node.
func (m *metrics) claiming(claims func() (made, empty, jobs int64)) {
	count := func(name, help string, of func(made, empty, jobs int64) int64) {
		m.counter(name, help, nil, func() float64 { return float64(of(claims())) })
	}
	count("settee_replicator_claims_total", "transactions in which this node looked for due replication jobs to take",
		func(made, _, _ int64) int64 { return made })
	count("settee_replicator_empty_claims_total", "transactions in which this node looked for due replication jobs and took none",
		func(_, empty, _ int64) int64 { return empty })
	count("settee_replicator_claimed_jobs_total", "replication jobs that this node took from the queue",
		func(_, _, jobs int64) int64 { return jobs })
}

// watching adds the metrics of the watches of this node.
func (m *metrics) watching(w *watch.Watcher) {
	for by, servers := range map[string]func(watch.Counts) int{
		"feed":      func(c watch.Counts) int { return c.Feeds },
		"questions": func(c watch.Counts) int { return c.Questioned },
	} {
		m.gauge("settee_watch_servers", "servers that this node watches for parked jobs: by the feed _db_updates, or by questions about each job",
			prometheus.Labels{"by": by}, func() float64 { return float64(servers(w.Counts())) })
	}
	m.gauge("settee_watch_lag_seconds", "how far the watch of this node that is furthest behind is: the time without a sign of life of its server, "+
		"the delay of a question, or the wait of a watch for a place", nil, func() float64 { return w.Counts().Lag.Seconds() })
	count := func(name, help string, labels prometheus.Labels, of func(watch.Counts) int64) {
		m.counter(name, help, labels, func() float64 { return float64(of(w.Counts())) })
	}
	for cause, jobs := range map[string]func(watch.Counts) int64{
		"feed":        func(c watch.Counts) int64 { return c.WakesFeed },
		"question":    func(c watch.Counts) int64 { return c.WakesQuestion },
		"safety_look": func(c watch.Counts) int64 { return c.WakesSafety },
		"target":      func(c watch.Counts) int64 { return c.WakesTarget },
	} {
		count("settee_watch_wakes_total", "parked jobs that watches of this node made due, by what found the change of their source, or that "+
			"their target has lost what it had", prometheus.Labels{"cause": cause}, jobs)
	}
	count("settee_watch_questions_total", "requests of this node that asked whether the source of a parked job has changed", nil,
		func(c watch.Counts) int64 { return c.Questions })
	count("settee_watch_feed_failures_total", "feeds of database updates that this node could not open, or that broke off", nil,
		func(c watch.Counts) int64 { return c.FeedFailures })
}

// connecting adds the numbers of requests to endpoints.
func (m *metrics) connecting(c *connections) {
	m.counter("couchdb_couch_replicator_requests_total", "requests of this node to sources and targets", nil,
		func() float64 { return float64(c.requests.Load()) })
	m.counter("couchdb_couch_replicator_responses_success_total", "requests to sources and targets that were answered with a status below 400", nil,
		func() float64 { return float64(c.successes.Load()) })
	m.counter("couchdb_couch_replicator_responses_failure_total",
		"requests to sources and targets that were answered with a status from 400 on, or not at all", nil,
		func() float64 { return float64(c.failures.Load()) })
	m.gauge("settee_replicator_connections", "open connections of this node to sources and targets", nil,
		func() float64 { return float64(c.pool.Connections()) })
	m.gauge("settee_replicator_max_connections",
		"connections to sources and targets that this node may have: half of its limit of open files; 0 for any number", nil,
		func() float64 { return float64(endpointShare(openFiles())) })
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

// certificate adds the end of a certificate. use says what it is for, and current returns it, or nil if there is none.
func (m *metrics) certificate(use string, current func() (*tls.Certificate, error)) {
	m.registry.MustRegister(certificateEnd{current, prometheus.NewDesc("settee_certificate_expiry_timestamp_seconds",
		"when a certificate of this node or an intermediate one sent with it ends: server is shown to clients of the frontend, "+
			"client to sources and targets", nil, prometheus.Labels{"use": use})})
}

// certificateEnd collects the end of a certificate.
type certificateEnd struct {
	current func() (*tls.Certificate, error)
	desc    *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c certificateEnd) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c certificateEnd) Collect(out chan<- prometheus.Metric) {
	current, err := c.current()
	if current == nil && err == nil {
		return
	}
	var end time.Time
	if err == nil {
		end, err = certs.NotAfter(current)
	}
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.desc, fmt.Errorf("reading a certificate: %w", err))
		return
	}
	out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(end.Unix()))
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
