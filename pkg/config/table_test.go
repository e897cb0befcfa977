package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every key of [replicator] in CouchDB 3.5, from its default.ini, its documentation or its code,
// and in RFC 016.
var replicatorKeys = []string{
	"auth_plugins", "cacert_reload_interval_hours", "cert_file", "checkpoint_interval", "cluster_start_period",
	"connect_to", "connection_close_interval", "connection_timeout", "health_threshold", "http_connections",
	"ibrowse_options", "interval", "key_file", "max_churn", "max_document_id_length", "max_history", "max_jobs",
	"missing_doc_retry_msec", "password", "priority_coeff", "request_timeout", "retries_per_request",
	"session_min_update_interval", "session_refresh_interval_sec", "socket_options",
	"ssl_certificate_max_depth", "ssl_trusted_certificates_file", "startup_jitter", "update_docs",
	"usage_coeff", "use_bulk_get", "use_checkpoints", "valid_endpoint_protocols",
	"valid_endpoint_protocols_log", "valid_ibrowse_options", "valid_proxy_protocols", "valid_socket_options",
	"verify_ssl_certificates", "verify_ssl_certificates_log", "worker_batch_size", "worker_processes",

	"accept_jitter", "compress_requests", "denied_networks", "max_document_size", "health_threshold_sec", "interval_sec", "max_acceptors", "max_backoff_penalty_sec",
	"min_backoff_penalty_sec", "min_run_time_sec", "transient_job_max_age_sec", "user_agent",

	"create_replicator_db", "stats_update_interval_sec",
}

func TestEveryReplicatorKeyIsSupportedOrIneffective(t *testing.T) {
	t.Parallel()
	for _, key := range replicatorKeys {
		n := name{"replicator", key}
		_, _, honoured := lookup(n)
		_, named := ineffective[n]
		require.True(t, honoured != named, "%v: honoured %v, named in a warning %v", n, honoured, named)
	}
}

func TestTableIsConsistent(t *testing.T) {
	t.Parallel()
	for _, d := range table.settings {
		require.NotEmpty(t, d.comment, d.name())
		require.LessOrEqual(t, strings.Count(d.comment, "\n"), 1, "%v: a comment has one or two lines", d.name())
		require.True(t, strings.HasSuffix(d.comment, "."), d.name())
		require.False(t, secret(d.name()) && d.byDefault.text != "", "%v: a secret has a default", d.name())
		for _, s := range d.spellings {
			require.NotContains(t, ineffective, name{d.section, s.key})
			require.NotEmpty(t, s.want)
		}
		require.False(t, ofCouchDB(d.section), "%v: its section counts as one without settings", d.name())
		if !strings.Contains(strings.Join(whollyKnown, " "), d.section) {
			require.Contains(t, partlyUsed, d.section)
		}
	}
	for _, f := range table.families {
		require.NotEmpty(t, f.comment, f.section)
		require.NotEmpty(t, f.want, f.section)
		_, ok := f.member("").parse(f.absent)
		require.True(t, ok || f.absent == "none", "[%s]: the default is not %s", f.section, f.want)
		require.False(t, ofCouchDB(f.section), "[%s] counts as a section without settings", f.section)
	}
	for n, why := range ineffective {
		require.NotEmpty(t, why, n)
		_, warned := warningOf(OriginFile, Value{Section: n.section, Key: n.key, Text: "x"})
		require.True(t, warned, "%v would be passed over in silence", n)
	}
}
