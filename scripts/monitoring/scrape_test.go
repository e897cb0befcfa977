package monitoring_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The scrape configuration is valid, and with its paths and credentials a node answers with metrics.
func TestScrapes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, file := range []string{"prometheus.yml", "alerts.yml"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), text, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "settee-password"), []byte("secret\n"), 0o600))
	cfg, err := config.LoadFile(filepath.Join(dir, "prometheus.yml"), false, promslog.NewNopLogger())
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "alerts.yml")}, cfg.RuleFiles)

	put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, node.url+"/_users/org.couchdb.user:prometheus",
		strings.NewReader(`{"name":"prometheus","type":"user","roles":["_metrics"],"password":"secret"}`))
	require.NoError(t, err)
	put.SetBasicAuth(admin, admin)
	created, err := http.DefaultClient.Do(put)
	require.NoError(t, err)
	require.NoError(t, created.Body.Close())
	require.Equal(t, http.StatusCreated, created.StatusCode)

	ports := map[string]string{"settee-frontend": node.url, "settee-replication": strings.TrimSuffix(node.metrics, metricsPath)}
	scrapes, err := cfg.GetScrapeConfigs()
	require.NoError(t, err)
	require.Len(t, scrapes, len(ports))
	for _, scrape := range scrapes {
		client, err := promconfig.NewClientFromConfig(scrape.HTTPClientConfig, scrape.JobName)
		require.NoError(t, err)
		require.Len(t, scrape.ServiceDiscoveryConfigs, 1)
		assert.IsType(t, discovery.StaticConfig{}, scrape.ServiceDiscoveryConfigs[0])
		at := ports[scrape.JobName] + scrape.MetricsPath
		response, err := client.Get(at)
		require.NoError(t, err)
		answer, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode, "%s: %s", scrape.JobName, answer)
		assert.NotEmpty(t, scraped(t, answer, response.Header.Get("Content-Type")))
	}
	anonymous, err := http.Get(node.url + metricsPath)
	require.NoError(t, err)
	require.NoError(t, anonymous.Body.Close())
	assert.Equal(t, http.StatusUnauthorized, anonymous.StatusCode)
}
