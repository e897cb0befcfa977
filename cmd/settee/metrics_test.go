package main

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
