package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/config"
)

// written returns what WriteINI writes.
func written(t *testing.T, cfg *config.Config) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, cfg.WriteINI(&b))
	return b.String()
}

// bare returns the lines of an ini file without comments and empty lines.
func bare(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(" "+strings.TrimSpace(line), " ;")
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestWriteINIGolden(t *testing.T) {
	t.Parallel()
	cfg := load(t, config.Options{
		Files:   []string{"testdata/local.ini"},
		Environ: []string{"COUCHDB_NODE_TYPE_API_FRONTEND=false"},
		Flags:   []string{"replicator/worker_processes=8"},
		Store:   "mem:",
	})
	cfg, _, err := cfg.With(config.OriginStore, config.Layer{{Section: "log", Key: "level", Text: "debug"}})
	require.NoError(t, err)
	got := written(t, cfg)
	const golden = "testdata/effective.ini"
	if *config.Update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
	require.NotContains(t, got, "hunter2")
	require.NotContains(t, got, "\x1b")
}

func TestWriteDefaults(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, config.WriteDefaults(&b))
	for _, want := range []string{"\n[replicator]\n", "\n;max_jobs = 500\n", "; max_jobs: a whole number", "\n[admins]\n"} {
		require.Contains(t, b.String(), want)
	}
	for _, line := range bare(b.String()) {
		require.Regexp(t, `^\[[a-z_.]+\]$`, line, "only the sections are no comments")
	}

	// With all ; before keys removed, each setting has its default.
	set := regexp.MustCompile(`(?m)^;([^ K])`).ReplaceAllString(b.String(), "$1")
	cfg := load(t, config.Options{Files: []string{file(t, "defaults.ini", set)}})
	require.Equal(t, bare(written(t, &config.Config{})), bare(written(t, cfg)))
}

func TestWriteINIReadsBack(t *testing.T) {
	t.Parallel()
	for _, cfg := range []*config.Config{
		{},
		load(t, config.Options{Files: []string{"testdata/local.ini"}}),
		load(t, config.Options{Files: []string{"testdata/local.ini"}, Flags: []string{"replicator/interval_sec=7", "couchdb/uuid=;a"}}),
	} {
		text := written(t, cfg)
		again, warnings, err := config.Load(config.Options{Files: []string{file(t, "effective.ini", text)}})
		require.NoError(t, err)
		require.Empty(t, warnings)
		require.Equal(t, bare(text), bare(written(t, again)))
		require.Equal(t, config.Interval.Get(cfg), config.Interval.Get(again))
		require.Equal(t, config.UUID.Get(cfg), config.UUID.Get(again))
		require.Equal(t, config.Store.Get(cfg), config.Store.Get(again))
	}
}

func TestWriteINIMasksSecrets(t *testing.T) {
	t.Parallel()
	tests := []struct{ set, want string }{
		{"admins/root=hunter2", "; root = **** ; --set"},
		{"chttpd_auth/secret=hunter2", "; secret = **** ; --set"},
		{"jwt_keys/hmac:a= = hunter22", "; hmac:a= = **** ; --set"},
		{"replicator/password=hunter2", "; password = **** ; --set"},
		{"replicator.watches/https://a.example/=ann:hunter2", "; https://a.example/ = **** ; --set"},
		{"other/api_Token=hunter2", ";   api_Token = **** ; --set"},
		{"nouveau/url=http://user:hunter2@host/x", ";   url = http://****@host/x ; --set"},
		{"nouveau/url=http://user:hun/t@hunter2@host", ";   url = http://****@host ; --set"},
		{"nouveau/url=file:///a@b, http://u:hunter2@host", ";   url = file:///a@b, http://****@host ; --set"},
		{"settee/store=fdb://u:hunter2@host", "; store = fdb://****@host ; --set"},
		{"settee/store=pebble:///data@host", "store = pebble:///data@host ; --set"},
	}
	for _, tt := range tests {
		t.Run(tt.set, func(t *testing.T) {
			t.Parallel()
			got := written(t, load(t, config.Options{Flags: []string{tt.set}}))
			require.Contains(t, strings.Split(got, "\n"), tt.want)
			require.NotContains(t, got, "hunter2")
		})
	}
}

func TestWriteINIWritesOneLinePerValue(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a\nb = c")
	require.NoError(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "x.ini")
	require.NoError(t, os.WriteFile(path, []byte("[replicator]\nmax_jobs = 7\n[odd]\nk = \x1b[31m"), 0o600))
	cfg := load(t, config.Options{Files: []string{path}, Flags: []string{"odd]\n[log/k=a\nlevel = debug"}})
	got := written(t, cfg)
	again, _, err := config.Load(config.Options{Files: []string{file(t, "effective.ini", got)}})
	require.NoError(t, err)
	require.Equal(t, 7, config.MaxJobs.Get(again))
	require.Equal(t, config.LogLevel.Get(new(config.Config)), config.LogLevel.Get(again))
	require.NotContains(t, got, "\x1b")
}

type brokenPipe struct{}

var errBroken = errors.New("broken pipe")

func (brokenPipe) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteINIReturnsTheWritersError(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, new(config.Config).WriteINI(brokenPipe{}), errBroken)
}
