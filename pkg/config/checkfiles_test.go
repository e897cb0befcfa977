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
		"nothing":        {"[replicator]\nmax_jobs = 5\n[admins]\nann = x\n", nil, nil},
		"a value":        {"[replicator]\nmax_jobs = many\ninterval = 1h\n", []string{`[replicator] max_jobs (FILE:2): "many" is refused`, `[replicator] interval (FILE:3): "1h" is refused`}, nil},
		"a transposed":   {"[replicator]\nmax_jbos = 5\n", nil, []string{"[replicator] max_jbos, FILE:2: is not a setting; did you mean [replicator] max_jobs?"}},
		"case and dash":  {"[replicator]\nMax-Jobs = 5\n", nil, []string{"[replicator] Max-Jobs, FILE:2: is not a setting; did you mean [replicator] max_jobs?"}},
		"a section":      {"[replikator]\nmax_jobs = 5\n", nil, []string{"[replikator], FILE:2: is neither a section of settee nor one of CouchDB; did you mean [replicator]?"}},
		"elsewhere":      {"[settee]\nmax_jobs = 5\n", nil, []string{"[settee] max_jobs, FILE:2: is not a setting; did you mean [replicator] max_jobs?"}},
		"nothing near":   {"[replicator]\nxyzzy = 5\n[xyzzy]\na = 1\n", nil, []string{"[replicator] xyzzy, FILE:2: is not a setting", "[xyzzy], FILE:4: is neither a section of settee nor one of CouchDB"}},
		"CouchDB's":      {"[couchdb]\ndatabase_dir = /x\n[smoosh]\ndb_channels = a\n", nil, []string{"[couchdb] database_dir, FILE:2: is not used by settee", "[smoosh], FILE:4: is not used by settee"}},
		"ignored lines":  {"a = 1\n", nil, []string{"FILE:1: ignored: it is before the first section"}},
		"contradictions": {"[replicator]\nmin_backoff_penalty_sec = 100\nmax_backoff_penalty_sec = 10\n", []string{"min_backoff_penalty_sec"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := file(t, "local.ini", test.data)
			refused, ignored := config.CheckFiles([]string{path})
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
	refused, _ := config.CheckFiles([]string{"nowhere.ini", t.TempDir()})
	require.Len(t, refused, 1)
	require.ErrorContains(t, refused[0], "nowhere.ini")
}
