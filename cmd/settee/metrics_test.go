package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// metricsURL returns the URL of the metrics on a port of their own.
func (p *process) metricsURL() string {
	p.t.Helper()
	found := regexp.MustCompile(`"metrics":"([^"]+)"`).FindStringSubmatch(p.logged())
	require.Len(p.t, found, 2)
	return found[1]
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:", "replicator/max_jobs=0", "prometheus/additional_port=true", "prometheus/port=0")
	for i := range 3 {
		status, answer := node.request(http.MethodPost, "_replicate",
			fmt.Sprintf(`{"source":"http://a.invalid/%d","target":"http://b.invalid/db","continuous":true}`, i))
		require.Equal(t, http.StatusAccepted, status, answer)
	}
	node.request(http.MethodGet, "nothing", "")
	node.request("BREW", "nothing", "")
	for _, url := range []string{node.url + "_node/_local/_prometheus", node.metricsURL()} {
		text := ask(t, http.StatusOK, http.MethodGet, url, "")
		for _, line := range []string{
			"couchdb_couch_replicator_jobs_pending 3",
			"couchdb_couch_replicator_jobs_running 0",
			"couchdb_couch_replicator_jobs_crashed 0",
			"couchdb_couch_replicator_jobs_total 3",
			"couchdb_couch_replicator_jobs_starts_total 0",
			"couchdb_couch_replicator_requests_total 0",
			"settee_slow_transactions_total 0",
			`settee_nodes_live{role="api_frontend"} 1`,
			`settee_nodes_live{role="replication"} 1`,
			"settee_nodes_clock_difference_seconds 0",
			"settee_replicator_longest_crashing_job_seconds 0",
			"settee_replicator_lag_seconds 0",
			"settee_replicator_long_crashing_jobs 0",
			"settee_replicator_longest_stuck_job_seconds 0",
			"settee_replicator_stuck_jobs 0",
			"settee_replicator_max_jobs 0",
			`settee_replicator_jobs{state="parked"} 0`,
			`settee_replicator_jobs{state="pending"} 3`,
			`settee_replicator_endpoint_problem_jobs{host="other"} 0`,
			"settee_replicator_parks_total 0",
			"settee_replicator_wakes_total 0",
			"settee_replicator_running_jobs 0",
			"settee_scheduler_overdue_seconds 0",
			"settee_store_readable 1",
			"settee_store_writable 1",
			`couchdb_httpd_request_methods{method="POST"} 3`,
			`couchdb_httpd_request_methods{method="other"} 1`,
			`couchdb_httpd_status_codes{code="202"} 3`,
			`couchdb_httpd_status_codes{code="404"} 1`,
			"# TYPE couchdb_httpd_requests_total counter",
			"# TYPE couchdb_couch_replicator_jobs_running gauge",
			"# TYPE couchdb_request_time_seconds histogram",
			"# TYPE couchdb_uptime_seconds counter",
			"# TYPE go_goroutines gauge",
		} {
			assert.Contains(t, strings.Split(text, "\n"), line)
		}
		assert.NotContains(t, text, "BREW")
		assert.NotContains(t, text, "settee_certificate")
	}
	ask(t, http.StatusNotFound, http.MethodGet, strings.TrimSuffix(node.metricsURL(), "_node/_local/_prometheus"), "")
	r, err := http.NewRequest(http.MethodGet, node.metricsURL(), nil)
	require.NoError(t, err)
	r.Host = "evil.example.com"
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusForbidden, response.StatusCode, "a web page whose host name resolves to this address")
	assert.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"))
	assert.Zero(t, node.end(syscall.SIGTERM))
}

// A replication node serves its metrics only on that port.
func TestMetricsOfAReplicationNode(t *testing.T) {
	t.Parallel()
	node := begin(t, "settee is running", []string{"COUCHDB_NODE_TYPE_API_FRONTEND=false"},
		"serve", "--store", "mem:", "--set", "prometheus/additional_port=true", "--set", "prometheus/port=0")
	assert.Empty(t, node.url)
	text := ask(t, http.StatusOK, http.MethodGet, node.metricsURL(), "")
	assert.Contains(t, text, "couchdb_couch_replicator_jobs_total 0\n")
	assert.Zero(t, node.end(syscall.SIGTERM))

	_, errs, status := settee(t, "serve", "--store", "mem:", "--set", "chttpd/port=0",
		"--set", "prometheus/additional_port=true", "--set", "prometheus/bind_address=any")
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, errs, "[prometheus] bind_address is ::, which other hosts can reach")
}

// countedJobs collects only numbers of jobs by state.
type countedJobs struct {
	*jobNumbers
	counts jobs.Counts
}

func (c countedJobs) Collect(out chan<- prometheus.Metric) { c.count(c.counts, out) }

// A job that is due after a failed run is pending for people, and has crashed for CouchDB.
func TestMetricsOfJobsByState(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(countedJobs{newJobNumbers(nil, nil), jobs.Counts{Again: 4, Jobs: map[replicator.ShownState]int64{
		"running": 1, "pending": 9, "scheduled": 20, "parked": 300, "paused": 500, "crashing": 7, "completed": 1000,
	}}}))
	families, err := registry.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), "couchdb_couch_replicator_")
			for _, label := range metric.GetLabel() {
				name = label.GetValue()
			}
			got[name] = metric.GetGauge().GetValue()
		}
	}
	assert.Equal(t, map[string]float64{
		"running": 1, "pending": 9, "scheduled": 20, "parked": 300, "paused": 500, "crashing": 7, "completed": 1000, "failed": 0,
		"jobs_running": 1, "jobs_pending": 25, "jobs_crashed": 11, "jobs_total": 837,
	}, got)
}

var update = flag.Bool("update", false, "write docs/metrics.md")

// The part of docs/metrics.md below this line is generated.
const metricsFrom = "<!-- Generated by go test ./cmd/settee -run TestMetricsDocument -update -->\n"

// The document has all metrics of a node that has both roles and certificates, and the names follow Prometheus's rules.
func TestMetricsDocument(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	issued := issue(t, 1, nil)
	issued.write(t, certFile, keyFile)
	node := tlsNode(t, certFile, keyFile, "replicator/cert_file="+certFile, "replicator/key_file="+keyFile,
		"replicator.budgets/localhost=100 requests/s")
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/backup", `{"source":"http://localhost:1/","target":"http://localhost:1/","continuous":true,"mirror":{"prefix":"p-","verify":"24h"}}`)
	text := ""
	require.Eventually(t, func() bool { // the mirror fails soon
		text = node.ask(http.StatusOK, http.MethodGet, "_node/_local/_prometheus", "")
		return strings.Contains(text, "settee_replicator_problem_jobs{") && strings.Contains(text, "settee_budget_part{")
	}, limit, 50*time.Millisecond)
	for _, use := range []string{"client", "server"} {
		assert.Contains(t, text, fmt.Sprintf("settee_certificate_expiry_timestamp_seconds{use=%q} %v\n", use, float64(issued.NotAfter.Unix())))
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	for _, p := range problems {
		assert.NotRegexp(t, "^settee_", p.Metric, p.Text)
	}

	const path = "../../docs/metrics.md"
	document, err := os.ReadFile(path)
	require.NoError(t, err)
	written, _, found := strings.Cut(string(document), metricsFrom)
	require.True(t, found, "%s has no line %s", path, metricsFrom)
	want := written + metricsFrom + metricsTable(text)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(document), "stale: run go test ./cmd/settee -run TestMetricsDocument -update")
}

var (
	metricHead  = regexp.MustCompile(`(?m)^# HELP (\S+) (.*)\n# TYPE \S+ (\S+)\n(.*)`)
	metricLabel = regexp.MustCompile(`[{,](\w+)="`)
)

// metricsTable returns the metrics of an answer as Markdown. Those of the Go runtime are one row.
func metricsTable(text string) string {
	var b strings.Builder
	b.WriteString("\n| metric | type | labels | unit | meaning |\n| --- | --- | --- | --- | --- |\n")
	for _, m := range metricHead.FindAllStringSubmatch(text, -1) {
		name, help, kind, sample := m[1], m[2], m[3], m[4]
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		var labels []string
		for _, l := range metricLabel.FindAllStringSubmatch(sample, -1) {
			if l[1] != "le" {
				labels = append(labels, "`"+l[1]+"`")
			}
		}
		unit := ""
		switch {
		case strings.Contains(name, "_timestamp_seconds"):
			unit = "seconds since the Unix epoch"
		case strings.HasSuffix(name, "_seconds"):
			unit = "seconds"
		case strings.Contains(name, "_bytes_"):
			unit = "bytes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, kind, strings.Join(labels, ", "), unit, strings.ReplaceAll(help, "|", `\|`))
	}
	b.WriteString("| `go_…`, `process_…` | | | | memory, goroutines and garbage collection of the Go runtime, and processor time, " +
		"memory and open files of the process, under the names that Prometheus's Go client gives them |\n")
	return b.String()
}
