package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/config"
)

// Values of CouchDB that are larger than settee's, or that settee does not have, do not keep a node from starting. A
// warning says what they count as.
func TestValuesThatCountAsOthers(t *testing.T) {
	t.Parallel()
	for data, want := range map[string][]string{ // FILE stands for the file
		"[couchdb]\nmax_document_size = 8000000":                                      nil,
		"[couchdb]\nmax_document_size = 8000001":                                      {"[couchdb] max_document_size, FILE:2: counts as 8000000"},
		"[couchdb]\nmax_document_size = 1\n[couchdb]\nmax_document_size = 4294967296": {"[couchdb] max_document_size, FILE:4: counts as 8000000"},
		"[couchdb]\nmax_document_size = 4294967296\nmax_document_size = 1":            nil,
		"[couchdb]\nmax_attachment_size = 9223372036854775808":                        {"[couchdb] max_attachment_size, FILE:2: counts as 9223372036854775807"},
		"[replicator]\nworker_processes = 500\nworker_batch_size = 20000\nhttp_connections=9999999999999999999999\nretries_per_request=1001": {
			"[replicator] worker_processes, FILE:2: counts as 100", "[replicator] worker_batch_size, FILE:3: counts as 10000",
			"[replicator] http_connections, FILE:4: counts as 1000", "[replicator] retries_per_request, FILE:5: counts as 1000",
		},
		"[replicator]\ninterval = 500\nusage_coeff = 1.5\nconnection_timeout=99999999999": {
			"[replicator] interval, FILE:2: counts as 1000", "[replicator] usage_coeff, FILE:3: counts as 1",
			"[replicator] connection_timeout, FILE:4: counts as 2147483647",
		},
		"[replicator.shares]\na/_replicator = 1001":                            {"[replicator.shares] a/_replicator, FILE:2: counts as 1000"},
		"[chttpd_auth]\nmax_iterations = 1000000000":                           {"[chttpd_auth] max_iterations, FILE:2: counts as 100000000"},
		"[chttpd_auth]\niterations = 2000000":                                  {"[chttpd_auth] iterations, FILE:2: counts as 1000000, which is [chttpd_auth] max_iterations"},
		"[couch_httpd_auth]\ntimeout = 3000000000":                             {"[couch_httpd_auth] timeout, FILE:2: counts as 2147483647"},
		"[couch_httpd_auth]\ntimeout = 3000000000\n[chttpd_auth]\ntimeout = 5": nil,
		"[ssl]\ntls_versions = [tlsv1, 'tlsv1.1', 'tlsv1.2']": {
			`[ssl] tls_versions, FILE:2: ignored, because it is not known or not secure: "tlsv1", "tlsv1.1"`,
		},
		"[ssl]\nciphers = [{ecdhe_rsa, aes_128_cbc, sha256}, \"ECDHE-RSA-AES128-SHA256\", 'a', b, c, d]": {
			`[ssl] ciphers, FILE:2: ignored, because it is not known or not secure: "{ecdhe_rsa, aes_128_cbc, sha256}", "ECDHE-RSA-AES128-SHA256", "a", "b", "c", ...`,
		},
		"[cors]\norigins = *\ncredentials = true": nil,
		"[chttpd]\nenable_cors = true\n[cors]\norigins = *\ncredentials = true": {
			"[cors] credentials, FILE:5: counts as false for the * of [cors] origins (FILE:4), because every page of the web could act as " +
				"its visitor; list the origins instead, such as https://app.example.com",
		},
	} {
		path := file(t, "local.ini", data)
		_, warnings, err := config.Load(config.Options{Files: []string{path}})
		require.NoError(t, err, data)
		_, refused, ignored := config.CheckFiles([]string{path})
		require.Empty(t, refused)
		require.Equal(t, warnings, ignored)
		var got []string
		for _, w := range warnings {
			got = append(got, strings.ReplaceAll(w.String(), path, "FILE"))
		}
		assert.Equal(t, want, got, data)
	}
	cfg := load(t, config.Options{Flags: []string{
		"replicator/worker_processes=500", "replicator/interval=1", "chttpd_auth/timeout=3000000000", "replicator/usage_coeff=7",
	}})
	assert.Equal(t, 100, config.WorkerProcesses.Get(cfg))
	assert.Equal(t, time.Second, config.Interval.Get(cfg))
	assert.Equal(t, 2147483647*time.Second, config.SessionTimeout.Get(cfg))
	assert.InDelta(t, 1, config.UsageCoeff.Get(cfg), 0)
	assert.Equal(t, "500", cfg.Shown()["replicator"]["worker_processes"], "as it was written")
}

// Each layer has the warnings that it brings, and not those of the layers below.
func TestRemarksOnceForEachChange(t *testing.T) {
	t.Parallel()
	cfg := load(t, config.Options{Flags: []string{"chttpd/enable_cors=true", "cors/origins=*", "replicator/max_history=1000"}})
	cfg, warnings, err := cfg.With(config.OriginStore, config.Layer{{Section: "cors", Key: "credentials", Text: "true"}})
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	assert.Equal(t, "credentials", warnings[0].Key)
	_, warnings, err = cfg.With(config.OriginStore, config.Layer{{Section: "cors", Key: "credentials", Text: "true"}})
	require.NoError(t, err)
	assert.Empty(t, warnings)
}
