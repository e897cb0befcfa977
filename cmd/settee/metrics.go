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
		m.requests, m.methods, m.statuses, m.duration, newJobNumbers(lists, crashAlert),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "couchdb_uptime_seconds", Help: "time since this node started"},
			func() float64 { return time.Since(began).Seconds() }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "settee_slow_transactions_total", Help: "transactions with the store that this node still repeated after 30 seconds",
		}, func() float64 { return float64(slow.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "settee_build_info", Help: "always 1; the label is this node's version",
			ConstLabels: prometheus.Labels{"version": currentVersion()},
		}, func() float64 { return 1 }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "settee_store_writable",
			Help: "1 while the store accepts writes of this node; 0 after one has failed, until a restart",
		}, func() float64 { return oneIf(kv.Writable(db).Err() == nil) }),
	)
	return m
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
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "settee_nodes_live", Help: "live nodes with a role, as this node sees them and itself",
			ConstLabels: prometheus.Labels{"role": role},
		}, func() float64 {
			return float64(countNodes(registry, func(n *nodes.Seen) bool { return n.Live && slices.Contains(n.Roles, role) }))
		}))
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "settee_nodes_cordoned", Help: "live nodes that are cordoned or drained, and take no jobs, as this node sees them and itself",
	}, func() float64 {
		return float64(countNodes(registry, func(n *nodes.Seen) bool { return n.Live && n.Cordon != nil }))
	}), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "settee_store_last_write_seconds",
		Help: "time since this node last renewed its row in the store, which it does every 5 seconds",
	}, func() float64 { return secondsSince(registry.Renewed()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "settee_nodes_clock_difference_seconds",
		Help: "largest difference between this node's clock and that of another live node, at least; it may be 10 seconds more",
	}, func() float64 {
		var largest time.Duration
		for _, node := range registry.Nodes() {
			if node.Live {
				largest = max(largest, node.Ahead.Abs())
			}
		}
		return largest.Seconds()
	}))
}

// upgrading adds the metrics of the store's level.
func (m *metrics) upgrading(upgrade *nodes.Upgrade) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "settee_store_level", Help: "level of the store, as this node last read it",
	}, func() float64 { return float64(upgrade.Status().Level) }), &levelWaits{upgrade, prometheus.NewDesc("settee_store_level_waits",
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
	for _, g := range []struct {
		name, help string
		value      func() float64
	}{
		{"settee_replicator_running_jobs", "slots of this node that are in use: replication jobs that it runs, without those that end",
			func() float64 { return float64(server.Running()) }},
		{"settee_replicator_idle_jobs", "replication jobs in slots of this node that have nothing to copy: they make room for due ones",
			func() float64 { return float64(server.Idle()) }},
		{"settee_replicator_max_jobs", "replication jobs that this node may run at a time; 0 while it is cordoned",
			func() float64 { return float64(maxJobs()) }},
		{"settee_scheduler_overdue_seconds", "how late this node's activity monitor or rescheduling is; 0 while both are on time",
			func() float64 { return server.Overdue().Seconds() }},
	} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, g.value))
	}
	for _, c := range []struct {
		name, help string
		of         func(scheduler.Counts) int64
	}{
		{"couchdb_couch_replicator_jobs_starts_total", "runs of replication jobs that began on this node",
			func(c scheduler.Counts) int64 { return c.Starts }},
		{"couchdb_couch_replicator_jobs_stops_total", "runs that this node stopped, to continue later: to make room, to shut down, or for a changed job",
			func(c scheduler.Counts) int64 { return c.Stops }},
		{"couchdb_couch_replicator_jobs_crashes_total", "runs on this node that failed, and whose jobs are tried again",
			func(c scheduler.Counts) int64 { return c.Crashes }},
		{"couchdb_couch_replicator_docs_completed_state_updates_total", "replication jobs that completed on this node",
			func(c scheduler.Counts) int64 { return c.Completed }},
		{"couchdb_couch_replicator_docs_failed_state_updates_total", "replication jobs that failed for good on this node",
			func(c scheduler.Counts) int64 { return c.Failed }},
		{"settee_replicator_parks_total", "runs of continuous jobs on this node that ended because nothing was left to copy",
			func(c scheduler.Counts) int64 { return c.Parks }},
		{"settee_replicator_wakes_total", "runs on this node of jobs that were parked before",
			func(c scheduler.Counts) int64 { return c.Wakes }},
		{"settee_replicator_docs_read_total", "documents that runs on this node have read from sources",
			func(c scheduler.Counts) int64 { return c.Stats.DocsRead }},
		{"settee_replicator_docs_written_total", "documents that runs on this node have written to targets",
			func(c scheduler.Counts) int64 { return c.Stats.DocsWritten }},
		{"settee_replicator_doc_write_failures_total", "documents that targets refused from runs on this node",
			func(c scheduler.Counts) int64 { return c.Stats.DocWriteFailures }},
		{"settee_replicator_bytes_received_total", "bytes that this node received from sources and targets, with what HTTP and TLS add",
			func(c scheduler.Counts) int64 { return c.BytesReceived }},
		{"settee_replicator_bytes_sent_total", "bytes that this node sent to sources and targets, with what HTTP and TLS add",
			func(c scheduler.Counts) int64 { return c.BytesSent }},
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: c.name, Help: c.help},
			func() float64 { return float64(c.of(server.Counts())) }))
	}
}

// claiming adds the numbers of claims of replication jobs by this node.
func (m *metrics) claiming(claims func() (made, empty, jobs int64)) {
	for _, c := range []struct {
		name, help string
		of         func(made, empty, jobs int64) int64
	}{
		{"claims_total", "transactions in which this node looked for due replication jobs to take",
			func(made, _, _ int64) int64 { return made }},
		{"empty_claims_total", "transactions in which this node looked for due replication jobs and took none",
			func(_, empty, _ int64) int64 { return empty }},
		{"claimed_jobs_total", "replication jobs that this node took from the queue",
			func(_, _, jobs int64) int64 { return jobs }},
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "settee_replicator_" + c.name, Help: c.help},
			func() float64 { return float64(c.of(claims())) }))
	}
}

// watching adds the metrics of the watches of this node.
func (m *metrics) watching(w *watch.Watcher) {
	for by, servers := range map[string]func(watch.Counts) int{
		"feed":      func(c watch.Counts) int { return c.Feeds },
		"questions": func(c watch.Counts) int { return c.Questioned },
	} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "settee_watch_servers", ConstLabels: prometheus.Labels{"by": by},
			Help: "servers that this node watches for parked jobs: by the feed _db_updates, or by questions about each job",
		}, func() float64 { return float64(servers(w.Counts())) }))
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "settee_watch_lag_seconds",
		Help: "how far the watch of this node that is furthest behind is: the time without a sign of life of its server, the delay of a question, or the wait of a watch for a place",
	}, func() float64 { return w.Counts().Lag.Seconds() }))
	for cause, jobs := range map[string]func(watch.Counts) int64{
		"feed":        func(c watch.Counts) int64 { return c.WakesFeed },
		"question":    func(c watch.Counts) int64 { return c.WakesQuestion },
		"safety_look": func(c watch.Counts) int64 { return c.WakesSafety },
		"target":      func(c watch.Counts) int64 { return c.WakesTarget },
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "settee_watch_wakes_total", ConstLabels: prometheus.Labels{"cause": cause},
			Help: "parked jobs that watches of this node made due, by what found the change of their source, or that their target has lost what it had",
		}, func() float64 { return float64(jobs(w.Counts())) }))
	}
	for name, of := range map[string]struct {
		help  string
		count func(watch.Counts) int64
	}{
		"questions_total": {"requests of this node that asked whether the source of a parked job has changed",
			func(c watch.Counts) int64 { return c.Questions }},
		"feed_failures_total": {"feeds of database updates that this node could not open, or that broke off",
			func(c watch.Counts) int64 { return c.FeedFailures }},
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "settee_watch_" + name, Help: of.help},
			func() float64 { return float64(of.count(w.Counts())) }))
	}
}

// connecting adds the numbers of requests to endpoints.
func (m *metrics) connecting(c *connections) {
	for name, of := range map[string]struct {
		help  string
		count *atomic.Int64
	}{
		"requests_total":          {"requests of this node to sources and targets", &c.requests},
		"responses_success_total": {"requests to sources and targets that were answered with a status below 400", &c.successes},
		"responses_failure_total": {"requests to sources and targets that were answered with a status from 400 on, or not at all", &c.failures},
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: "couchdb_couch_replicator_" + name, Help: of.help},
			func() float64 { return float64(of.count.Load()) }))
	}
	for name, of := range map[string]struct {
		help  string
		value func() float64
	}{
		"connections":     {"open connections of this node to sources and targets", func() float64 { return float64(c.pool.Connections()) }},
		"max_connections": {"connections to sources and targets that this node may have: half of its limit of open files; 0 for any number", func() float64 { return float64(endpointShare(openFiles())) }},
	} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "settee_replicator_" + name, Help: of.help}, of.value))
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
