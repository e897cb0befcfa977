package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/config"
)

func TestCheckFiles(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		data             string
		refused, ignored []string
	}{
		"nothing":       {"[replicator]\nmax_jobs = 5\n[admins]\nann = x\n", nil, nil},
		"a value":       {"[replicator]\nmax_jobs = many\ninterval = 1h\n", []string{`[replicator] max_jobs (FILE:2): "many" is refused`, `[replicator] interval (FILE:3): "1h" is refused`}, nil},
		"a transposed":  {"[replicator]\nmax_jbos = 5\n", nil, []string{"[replicator] max_jbos, FILE:2: is not a setting; did you mean [replicator] max_jobs?"}},
		"case and dash": {"[replicator]\nMax-Jobs = 5\n", nil, []string{"[replicator] Max-Jobs, FILE:2: is not a setting; did you mean [replicator] max_jobs?"}},
		"a section":     {"[replikator]\nmax_jobs = 5\n", nil, []string{"[replikator], FILE:2: is neither a section of settee nor one of CouchDB; did you mean [replicator]?"}},
		"elsewhere":     {"[settee]\nmax_jobs = 5\n", nil, []string{"[settee] max_jobs, FILE:2: is not a setting; did you mean [replicator] max_jobs?"}},
		"nothing near":  {"[replicator]\nxyzzy = 5\n[xyzzy]\na = 1\n", nil, []string{"[replicator] xyzzy, FILE:2: is not a setting", "[xyzzy], FILE:4: is neither a section of settee nor one of CouchDB"}},
		"CouchDB's":     {"[couchdb]\ndatabase_dir = /x\n[smoosh]\ndb_channels = a\n", nil, []string{"[couchdb] database_dir, FILE:2: is not used by settee", "[smoosh], FILE:4: is not used by settee"}},
		"of older sections": {"[httpd]\nport = 1\nenable_cors = true\nnodelay = true\nsecure_rewrites = 7\nlog = false\n[couch_httpd_auth]\niterations = 5\nauth_cache_size = 7\n", nil, []string{
			"[httpd] secure_rewrites, FILE:5: is not used by settee",
			"[httpd] port, FILE:2: is not used by settee; did you mean [chttpd] port?", "[httpd] nodelay, FILE:4: is not used by settee",
			"[couch_httpd_auth] auth_cache_size, FILE:9: is not used by settee",
		}},
		"a login for all": {"[httpd]\nrequire_valid_user = true\n", nil, []string{
			"[httpd] require_valid_user, FILE:2: has no effect: CouchDB does not ask for users because of it either: set it in [chttpd]",
		}},
		"of CouchDB 1": {"[oauth_token_users]\na = b\n[update_notification]\nc = d\n", nil, []string{
			"[oauth_token_users], FILE:2: is not used by settee", "[update_notification], FILE:4: is not used by settee",
		}},
		"switches that are off": {"[httpd]\nallow_jsonp = false\nrequire_valid_user = false\n[couchdb]\ndelayed_commits = false\n" +
			"[couch_peruser]\nenable = false\ndelete_dbs = true\n[disk_monitor]\nenable = false\ninteractive_view_indexing_threshold = 90\n" +
			"[chttpd]\nadmin_only_all_dbs = true\n[chttpd_auth]\nauthentication_db = _users\nusers_db_public = false\n", nil, nil},
		"a switch that leaves more": {"[chttpd]\nadmin_only_all_dbs = false\nenable_cros = false\n", nil, []string{
			"[chttpd] admin_only_all_dbs, FILE:2: has no effect: only administrators can use _all_dbs and _dbs_info",
			"[chttpd] enable_cros, FILE:3: is not used by settee; did you mean [chttpd] enable_cors?",
		}},
		"CouchDB's that are near": {"[chttpd_auth]\nmin_iterations = 1\n[couchdb]\nmax_attachment_chunk_size = 4\n", nil, []string{
			"[chttpd_auth] min_iterations, FILE:2: is not used by settee", "[couchdb] max_attachment_chunk_size, FILE:4: is not used by settee",
		}},
		"a near section without it": {"[chttp]\nxyzzy = 1\n[log_]\nx = 1\nlevel = info\n", nil, []string{
			"[chttp], FILE:2: is neither a section of settee nor one of CouchDB",
			"[log_], FILE:4: is neither a section of settee nor one of CouchDB; did you mean [log]?",
		}},
		"ignored lines":  {"a = 1\n", nil, []string{"FILE:1: ignored: it is before the first section"}},
		"contradictions": {"[replicator]\nmin_backoff_penalty_sec = 100\nmax_backoff_penalty_sec = 10\n", []string{"min_backoff_penalty_sec"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := file(t, "local.ini", test.data)
			_, refused, ignored := config.CheckFiles([]string{path})
			require.Len(t, refused, len(test.refused), "%v", refused)
			for i, err := range refused {
				require.Contains(t, strings.ReplaceAll(err.Error(), path, "FILE"), test.refused[i])
			}
			var got []string
			for _, w := range ignored {
				got = append(got, strings.ReplaceAll(w.String(), path, "FILE"))
			}
			require.Equal(t, test.ignored, got)
		})
	}
	cfg, refused, _ := config.CheckFiles([]string{"nowhere.ini", t.TempDir()})
	require.Nil(t, cfg)
	require.Len(t, refused, 1)
	require.ErrorContains(t, refused[0], "nowhere.ini")
}
