package config_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"settee/pkg/config"
)

// file writes an ini file and returns its path.
func file(t *testing.T, name, data string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(data), 0o600))
	return path
}

// load loads a valid configuration.
func load(t *testing.T, o config.Options) *config.Config {
	t.Helper()
	cfg, _, err := config.Load(o)
	require.NoError(t, err)
	return cfg
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	loaded := load(t, config.Options{})
	for name, c := range map[string]*config.Config{"loaded": loaded, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, "pebble:./data", config.Store.Get(c))
			require.Equal(t, int64(4_000_000), config.MaxReplicateBody.Get(c))
			require.Equal(t, netip.MustParseAddr("127.0.0.1"), config.BindAddress.Get(c))
			require.Equal(t, 5984, config.Port.Get(c))
			require.Equal(t, int64(4<<30), config.MaxHTTPRequestSize.Get(c))
			require.Empty(t, config.UUID.Get(c))
			require.Equal(t, zerolog.InfoLevel, config.LogLevel.Get(c))
			require.Equal(t, config.Roles{APIFrontend: true, Replication: true}, c.Roles())

			require.Equal(t, int64(64<<20), config.MaxReplicatedDocument.Get(c))
			require.Equal(t, 500, config.MaxJobs.Get(c))
			require.Equal(t, 15*time.Second, config.Interval.Get(c))
			require.Equal(t, 100, config.MaxChurn.Get(c))
			require.Equal(t, time.Minute, config.MinRunTime.Get(c))
			require.InDelta(t, 0.5, config.UsageCoeff.Get(c), 0)
			require.Nil(t, config.Shares.Get(c))
			require.Equal(t, 2, config.MaxAcceptors.Get(c))
			require.Equal(t, 2*time.Second, config.AcceptJitter.Get(c))
			require.Equal(t, 120*time.Second, config.HealthThreshold.Get(c))
			require.Equal(t, 32*time.Second, config.MinBackoffPenalty.Get(c))
			require.Equal(t, 48*time.Hour, config.MaxBackoffPenalty.Get(c))
			require.Equal(t, 10, config.MaxHistory.Get(c))
			require.Equal(t, 4, config.WorkerProcesses.Get(c))
			require.Equal(t, 500, config.WorkerBatchSize.Get(c))
			require.Equal(t, 20, config.HTTPConnections.Get(c))
			require.Equal(t, 30*time.Second, config.ConnectionTimeout.Get(c))
			require.Equal(t, 5, config.RetriesPerRequest.Get(c))
			require.Equal(t, 30*time.Second, config.CheckpointInterval.Get(c))
			require.True(t, config.UseCheckpoints.Get(c))
			require.True(t, config.UseBulkGet.Get(c))
			require.Equal(t, []string{"http", "https"}, config.ValidEndpointProtocols.Get(c))
			require.Equal(t, []string{"http", "https", "socks5"}, config.ValidProxyProtocols.Get(c))
			require.Zero(t, config.RequestTimeout.Get(c))
			require.True(t, config.SessionAuth.Get(c))
			require.Equal(t, 550*time.Second, config.SessionRefreshInterval.Get(c))
			require.Equal(t, 5*time.Second, config.SessionMinUpdateInterval.Get(c))
			require.Equal(t, 90*time.Second, config.ConnectionCloseInterval.Get(c))
			require.True(t, config.VerifyCertificates.Get(c))
			require.Equal(t, 3, config.CertificateMaxDepth.Get(c))
			require.Equal(t, "default", config.MaxJobs.From(c))
		})
	}
}

func TestLaterLayersOverrideEarlierOnes(t *testing.T) {
	t.Parallel()
	value := func(text string) config.Layer {
		return config.Layer{{Section: "node_types", Key: "replication", Text: text}}
	}
	tests := []struct {
		name    string
		files   []string // texts of files
		store   string
		environ []string
		flags   []string
		want    bool
		from    string
	}{
		{name: "default", want: true, from: "default"},
		{name: "file", files: []string{"false"}, want: false, from: "0.ini:2"},
		{name: "later file", files: []string{"false", "true"}, want: true, from: "1.ini:2"},
		{name: "store", files: []string{"true"}, store: "false", want: false, from: "store"},
		{
			name: "environment", files: []string{"true"}, store: "true",
			environ: []string{"COUCHDB_NODE_TYPE_REPLICATION=false"},
			want:    false, from: "environment variable COUCHDB_NODE_TYPE_REPLICATION",
		},
		{
			name: "flag", files: []string{"false"}, store: "false",
			environ: []string{"COUCHDB_NODE_TYPE_REPLICATION=false"},
			flags:   []string{"node_types/replication=true"}, want: true, from: "--set",
		},
		{
			name: "later flag", flags: []string{"node_types/replication=true", "node_types/replication=false"},
			want: false, from: "--set",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := config.Options{Environ: tt.environ, Flags: tt.flags}
			dir := t.TempDir()
			for i, text := range tt.files {
				path := filepath.Join(dir, string(rune('0'+i))+".ini")
				require.NoError(t, os.WriteFile(path, []byte("[node_types]\nreplication = "+text), 0o600))
				o.Files = append(o.Files, path)
			}
			cfg := load(t, o)
			if tt.store != "" {
				var err error
				cfg, _, err = cfg.With(config.OriginStore, value(tt.store))
				require.NoError(t, err)
			}
			require.Equal(t, config.Roles{APIFrontend: true, Replication: tt.want}, cfg.Roles())
			var b strings.Builder
			require.NoError(t, cfg.WriteINI(&b))
			from := strings.ReplaceAll(tt.from, "0.ini", filepath.Join(dir, "0.ini"))
			from = strings.ReplaceAll(from, "1.ini", filepath.Join(dir, "1.ini"))
			require.Regexp(t, `(?m)^replication = (true|false) ; \Q`+from+`\E$`, b.String())
		})
	}
}

func TestStoreFlagOverridesSetFlag(t *testing.T) {
	t.Parallel()
	cfg := load(t, config.Options{Store: "mem:", Flags: []string{"settee/store=pebble:/x"}})
	require.Equal(t, "mem:", config.Store.Get(cfg))
	require.Equal(t, "--store", config.Store.From(cfg))
}

func TestLastOfEqualKeysOfAFileCounts(t *testing.T) {
	t.Parallel()
	cfg := load(t, config.Options{Files: []string{file(t, "a.ini", "[log]\nlevel = debug\n[x]\n[log]\nlevel = error")}})
	require.Equal(t, zerolog.ErrorLevel, config.LogLevel.Get(cfg))
}

func TestSecondSpellings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		first, later string // files
		flags        []string
		want         time.Duration
	}{
		{name: "seconds", first: "interval_sec = 5", want: 5 * time.Second},
		{name: "milliseconds", first: "interval = 60000", want: time.Minute},
		{name: "a part of a second", first: "interval = 2500", want: 2500 * time.Millisecond},
		{name: "milliseconds win in one file", first: "interval = 60000\ninterval_sec = 5", want: time.Minute},
		{name: "in either order", first: "interval_sec = 5\ninterval = 60000", want: time.Minute},
		{name: "milliseconds later", first: "interval_sec = 5", later: "interval = 60000", want: time.Minute},
		{name: "seconds later", first: "interval = 60000", later: "interval_sec = 5", want: 5 * time.Second},
		{name: "seconds in a flag", first: "interval = 60000", flags: []string{"replicator/interval_sec=5"}, want: 5 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := config.Options{Flags: tt.flags, Files: []string{
				file(t, "first.ini", "[replicator]\n"+tt.first), file(t, "later.ini", "[replicator]\n"+tt.later),
			}}
			require.Equal(t, tt.want, config.Interval.Get(load(t, o)))
		})
	}
	t.Run("health_threshold", func(t *testing.T) {
		t.Parallel()
		cfg := load(t, config.Options{Flags: []string{"replicator/health_threshold=7"}})
		require.Equal(t, 7*time.Second, config.HealthThreshold.Get(cfg))
		require.Equal(t, "[replicator] health_threshold_sec", config.HealthThreshold.String())
	})
}

func TestShares(t *testing.T) {
	t.Parallel()
	path := file(t, "local.ini", "[replicator.shares]\n_replicator = 50\nhigh/_replicator = 200\nhigh/_replicator = 300")
	cfg := load(t, config.Options{Files: []string{path}, Flags: []string{"replicator.shares/a/b/_replicator=1"}})
	want := map[string]int{"_replicator": 50, "high/_replicator": 300, "a/b/_replicator": 1}
	require.Equal(t, want, config.Shares.Get(cfg))
	config.Shares.Get(cfg)["_replicator"] = 7
	require.Equal(t, want, config.Shares.Get(cfg), "the result of Get is a copy")
	require.Equal(t, path+":4", config.Shares.From(cfg, "high/_replicator"))
	require.Equal(t, "--set", config.Shares.From(cfg, "a/b/_replicator"))
	require.Equal(t, "default", config.Shares.From(cfg, "other/_replicator"))

	stored, _, err := cfg.With(config.OriginStore, config.Layer{
		{Section: "replicator.shares", Key: "_replicator", Text: "70"},
		{Section: "replicator.shares", Key: "a/b/_replicator", Text: "2"},
	})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"_replicator": 70, "high/_replicator": 300, "a/b/_replicator": 1},
		config.Shares.Get(stored), "each key is decided by itself")
	require.Equal(t, want, config.Shares.Get(cfg))

	_, _, err = config.Load(config.Options{Flags: []string{"replicator.shares/a=-1", "replicator.shares/b=x", "replicator.shares/c=3"}})
	require.EqualError(t, err, `[replicator.shares] a (--set): "-1" is refused: it must be a whole number from 0 to 1000`+"\n"+
		`[replicator.shares] b (--set): "x" is refused: it must be a whole number from 0 to 1000`)
}

func TestValidValues(t *testing.T) {
	t.Parallel()
	get := func(t *testing.T, set string) *config.Config { return load(t, config.Options{Flags: []string{set}}) }
	t.Run("store", func(t *testing.T) {
		t.Parallel()
		for _, url := range []string{
			"mem:", "pebble:./data", "pebble:data", "pebble:///var/lib/settee", "fdb:///etc/foundationdb/fdb.cluster?prefix=settee",
		} {
			require.Equal(t, url, config.Store.Get(get(t, "settee/store="+url)))
		}
	})
	t.Run("bind_address", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, netip.IPv6Loopback(), config.BindAddress.Get(get(t, "chttpd/bind_address=::1")))
		require.Equal(t, netip.IPv4Unspecified(), config.BindAddress.Get(get(t, "chttpd/bind_address=0.0.0.0")))
		require.Equal(t, netip.IPv6Unspecified(), config.BindAddress.Get(get(t, "chttpd/bind_address=any")))
	})
	t.Run("port", func(t *testing.T) {
		t.Parallel()
		require.Zero(t, config.Port.Get(get(t, "chttpd/port=0")))
		require.Equal(t, 65535, config.Port.Get(get(t, "chttpd/port = 65535")))
	})
	t.Run("uuid", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "0123456789abcdef", config.UUID.Get(get(t, "couchdb/uuid=0123456789abcdef")))
	})
	t.Run("uuid advised by CouchDB's documentation", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, 9999999, config.MaxJobs.Get(get(t, "replicator/max_jobs=9999999")))
	})
	t.Run("protocols", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string][]string{
			"https": {"https"}, "https , HTTP": {"https", "http"}, "http,http": {"http"},
		} {
			require.Equal(t, want, config.ValidEndpointProtocols.Get(get(t, "replicator/valid_endpoint_protocols="+text)))
		}
	})
	t.Run("authentication plugins", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]bool{
			"couch_replicator_auth_session,couch_replicator_auth_noop":   true,
			"couch_replicator_auth_session , couch_replicator_auth_noop": true,
			"couch_replicator_auth_noop,couch_replicator_auth_session":   false,
			"couch_replicator_auth_noop":                                 false,
			"couch_replicator_auth_session":                              true,
			"couch_replicator_auth_ibm,couch_replicator_auth_noop":       false,
			"couch_replicator_auth_session,couch_replicator_auth_ibm":    true,
			"couch_replicator_auth_ibm":                                  true,
		} {
			require.Equal(t, want, config.SessionAuth.Get(get(t, "replicator/auth_plugins="+text)))
		}
	})
	t.Run("interval in milliseconds", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]time.Duration{"1": time.Second, "999": time.Second, "2500": 2500 * time.Millisecond} {
			require.Equal(t, want, config.Interval.Get(get(t, "replicator/interval="+text)))
		}
	})
	t.Run("time or infinity", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, 1500*time.Millisecond, config.RequestTimeout.Get(get(t, "replicator/request_timeout=1500")))
		require.Zero(t, config.RequestTimeout.Get(get(t, "replicator/request_timeout=infinity")))
	})
	t.Run("fraction", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]float64{"0": 0, "1": 1, "1.0": 1, "0.25": 0.25, ".5": 0.5} {
			require.InDelta(t, want, config.UsageCoeff.Get(get(t, "replicator/usage_coeff="+text)), 0, text)
		}
	})
	t.Run("log level", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]zerolog.Level{
			"debug": zerolog.DebugLevel, "info": zerolog.InfoLevel, "notice": zerolog.InfoLevel, "warn": zerolog.WarnLevel,
			"Warning": zerolog.WarnLevel, "err": zerolog.ErrorLevel, "crit": zerolog.FatalLevel, "emerg": zerolog.FatalLevel,
			"alert": zerolog.FatalLevel, "none": zerolog.Disabled, "1": zerolog.DebugLevel, "9": zerolog.Disabled,
		} {
			require.Equal(t, want, config.LogLevel.Get(get(t, "log/level="+text)), text)
		}
	})
}

func TestInvalidValues(t *testing.T) {
	t.Parallel()
	tests := []struct{ section, key, text, want string }{
		{"settee", "store", "/var/lib/settee", "a URL such as pebble:///"},
		{"settee", "store", "pebble://[", "a URL such as pebble:///"},
		{"chttpd", "bind_address", "localhost", "an IP address"},
		{"chttpd", "bind_address", "127.0.0.1:5984", "an IP address"},
		{"chttpd", "port", "65536", "a whole number from 0 to 65535"},
		{"chttpd", "port", "-1", "a whole number from 0 to 65535"},
		{"chttpd", "port", "http", "a whole number from 0 to 65535"},
		{"chttpd", "max_http_request_size", "4GB", "a whole number of bytes"},
		{"couchdb", "max_document_size", "infinity", "a whole number of bytes"},
		{"couchdb", "max_attachment_size", "0", "bytes from 1 to 9223372036854775807, or infinity"},
		{"couchdb", "max_attachment_size", "1 GB", "or infinity"},
		{"couchdb", "uuid", "a b", "ASCII"},
		{"couchdb", "uuid", "é", "ASCII"},
		{"couchdb", "uuid", strings.Repeat("a", 257), "at most 256"},
		{"node_types", "replication", "no", "true or false"},
		{"node_types", "api_frontend", "True", "true or false"},
		{"log", "level", "loud", "debug, info, notice"},
		{"replicator", "max_jobs", "-1", "a whole number from 0"},
		{"replicator", "max_jobs", "-99999999999999999999", "a whole number from 0"},
		{"chttpd", "port", "99999999999999999999", "a whole number from 0 to 65535"},
		{"replicator", "max_jobs", "1e3", "a whole number from 0"},
		{"replicator", "max_jobs", "0x10", "a whole number from 0"},
		{"replicator", "max_jobs", "infinity", "a whole number from 0"},
		{"replicator", "interval", "0", "a whole number of milliseconds from 1 to"},
		{"replicator", "user_agent", "a\tb", "printable ASCII characters"},
		{"replicator", "interval_sec", "1.5", "a whole number of seconds from 1 to"},
		{"replicator", "interval_sec", "15s", "a whole number of seconds from 1 to"},
		{"replicator", "request_timeout", "0", "a whole number of milliseconds from 1 to 2147483647, or infinity"},
		{"replicator", "auth_plugins", "my_plugin", "or one of them"},
		{"ibm", "token_url", "http://tokens.example/", "an https URL"},
		{"ibm", "token_url", "https://tokens.example/?key=x", "an https URL"},
		{"replicator", "auth_plugins", "couch_replicator_auth_noop,my_plugin", "or one of them"},
		{"replicator", "max_churn", "-1", "a whole number from 0"},
		{"replicator", "min_run_time_sec", "1m", "a whole number of seconds from 0"},
		{"replicator", "usage_coeff", "-0.1", "a number from 0 to 1"},
		{"replicator", "usage_coeff", "NaN", "a number from 0 to 1"},
		{"replicator", "usage_coeff", "0x1p-2", "a number from 0 to 1"},
		{"replicator", "usage_coeff", "50%", "a number from 0 to 1"},
		{"replicator.shares", "a/_replicator", "-1", "a whole number from 0 to 1000"},
		{"replicator.shares", "_replicator", "high", "a whole number from 0 to 1000"},
		{"replicator", "use_checkpoints", "yes", "true or false"},
		{"replicator", "valid_endpoint_protocols", "http,socks5", "one or more of http, https, separated by commas"},
		{"replicator", "valid_endpoint_protocols", "http,", "one or more of http, https"},
		{"replicator", "valid_proxy_protocols", "ftp", "one or more of http, https, socks5"},
	}
	for _, tt := range tests {
		t.Run(tt.section+"/"+tt.key+"="+tt.text, func(t *testing.T) {
			t.Parallel()
			path := file(t, "local.ini", "["+tt.section+"]\n\n"+tt.key+" = "+tt.text)
			cfg, _, err := config.Load(config.Options{Files: []string{path}})
			require.Nil(t, cfg)
			var bad *config.ValueError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, tt.section, bad.Section)
			require.Equal(t, tt.key, bad.Key)
			require.Equal(t, tt.text, bad.Shown)
			require.Equal(t, path+":3", bad.From)
			require.Contains(t, bad.Want, tt.want)
			require.Contains(t, err.Error(), "["+tt.section+"] "+tt.key+" ("+path+":3): ")
			require.Contains(t, err.Error(), "is refused: it must be "+bad.Want)
		})
	}
}

func TestValuesMustFitALineOfAFile(t *testing.T) {
	t.Parallel()
	layer := config.Layer{{Section: "settee", Key: "store", Text: "mem: ;x"}}
	_, _, err := new(config.Config).With(config.OriginStore, layer)
	require.EqualError(t, err, `[settee] store (store): "mem: ;x" is refused: `+
		`it must be a text that fits one line of an ini file, without a ; after a space`)
}

func TestAllProblemsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	path := file(t, "local.ini", "[replicator]\nmax_jobs = many\nmax_jobs = 5\n[log]\nlevel = loud")
	missing := filepath.Join(t.TempDir(), "missing.ini")
	_, _, err := config.Load(config.Options{
		Files:   []string{path, missing},
		Environ: []string{"COUCHDB_NODE_TYPE_REPLICATION="},
		Flags:   []string{"replicator/max_jobs=6", "replicator/worker_processes=0", "max_jobs=7", "admins/root:hunter2"},
		Store:   "data",
	})
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, want := range []string{
		missing,
		`--set "max_jobs"`,
		`--set "admins"`,
		`[replicator] max_jobs (` + path + `:2): "many" is refused`,
		`[log] level (` + path + `:5): "loud"`,
		`[node_types] replication (environment variable COUCHDB_NODE_TYPE_REPLICATION): "" is refused: it must be true or false`,
		`[replicator] worker_processes (--set): "0"`,
		`[settee] store (--store): "data"`,
	} {
		require.ErrorContains(t, err, want)
	}
	require.Len(t, strings.Split(err.Error(), "\n"), 8, "%v", err)
	require.NotContains(t, err.Error(), "hunter2")
}

func TestMalformedFlags(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{
		"", "=", "/", "max_jobs", "max_jobs=5", "/max_jobs=5",
		"replicator/max_jobs", "replicator/max_jobs=", "replicator/=5",
	} {
		_, _, err := config.Load(config.Options{Flags: []string{flag}})
		require.ErrorContains(t, err, "it must be section/key=value, with a value", "%q", flag)
	}
}

func TestContradictions(t *testing.T) {
	t.Parallel()
	_, _, err := config.Load(config.Options{Flags: []string{"replicator/max_backoff_penalty_sec=10"}})
	require.EqualError(t, err, "[replicator] min_backoff_penalty_sec is 32 (default), which is more than "+
		"[replicator] max_backoff_penalty_sec, 10 (--set)")

	_, _, err = config.Load(config.Options{
		Environ: []string{"COUCHDB_NODE_TYPE_REPLICATION=false"},
		Flags:   []string{"node_types/api_frontend=false"},
	})
	require.ErrorContains(t, err, "[node_types] api_frontend (--set)")
	require.ErrorContains(t, err, "[node_types] replication (environment variable COUCHDB_NODE_TYPE_REPLICATION)")
}

func TestRolesFromTheEnvironment(t *testing.T) {
	t.Parallel()
	tests := []struct {
		environ []string
		want    string
	}{
		{nil, "api_frontend, replication"},
		{[]string{"COUCHDB_NODE_TYPE_API_FRONTEND=false"}, "replication"},
		{[]string{"COUCHDB_NODE_TYPE_REPLICATION=False"}, "api_frontend"}, // CouchDB ignores the case
		{[]string{"COUCHDB_NODE_TYPE_API_FRONTEND=true"}, "api_frontend, replication"},
		{
			[]string{"COUCHDB_NODE_TYPE_REPLICATION=false", "COUCHDB_NODE_TYPE_REPLICATION=true"},
			"api_frontend, replication",
		},
		{
			[]string{"PATH=/bin", "COUCHDB_NODE_TYPE_", "COUCHDB_NODE_TYPE_=false", "NODE_TYPE_REPLICATION=false", ""},
			"api_frontend, replication",
		},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, load(t, config.Options{Environ: tt.environ}).Roles().String(), "%q", tt.environ)
	}
	require.Equal(t, "none", config.Roles{}.String())
}

func TestDirectoriesOfFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"10.ini": "1", "20.ini": "2", "30.ini~": "3", "README": "4"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("[replicator]\nmax_jobs = "+text), 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "99.ini"), 0o700))
	cfg := load(t, config.Options{Files: []string{dir}})
	require.Equal(t, 2, config.MaxJobs.Get(cfg))
	require.Equal(t, filepath.Join(dir, "20.ini")+":2", config.MaxJobs.From(cfg))
}

func TestWithReplacesTheLayersOfItsOrigin(t *testing.T) {
	t.Parallel()
	jobs := func(text string) config.Layer {
		return config.Layer{{Section: "replicator", Key: "max_jobs", Text: text}}
	}
	first := load(t, config.Options{Files: []string{file(t, "a.ini", "[replicator]\nmax_jobs = 1")}})

	stored, _, err := first.With(config.OriginStore, jobs("2"))
	require.NoError(t, err)
	require.Equal(t, 2, config.MaxJobs.Get(stored))
	require.Equal(t, "store", config.MaxJobs.From(stored))
	require.Equal(t, 1, config.MaxJobs.Get(first), "a Config does not change")

	changed, _, err := stored.With(config.OriginStore, jobs("3"), config.Layer{})
	require.NoError(t, err)
	require.Equal(t, 3, config.MaxJobs.Get(changed))

	_, _, err = changed.With(config.OriginStore, jobs("none"))
	var bad *config.ValueError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "store", bad.From)
	require.Equal(t, 3, config.MaxJobs.Get(changed), "a refused layer changes nothing")

	layers, _, err := config.ReadFiles([]string{file(t, "a.ini", "[replicator]\nmax_jobs = 4\npriority_coeff = 0.9")})
	require.NoError(t, err)
	reread, warnings, err := changed.With(config.OriginFile, layers...)
	require.NoError(t, err)
	require.Equal(t, 3, config.MaxJobs.Get(reread))
	require.Len(t, warnings, 1)
	require.Equal(t, "priority_coeff", warnings[0].Key)

	cleared, warnings, err := reread.With(config.OriginStore)
	require.NoError(t, err)
	require.Empty(t, warnings, "they are about the new layers only")
	require.Equal(t, 4, config.MaxJobs.Get(cleared))

	cleared, _, err = cleared.With(config.OriginFile)
	require.NoError(t, err)
	require.Equal(t, 500, config.MaxJobs.Get(cleared))

	require.Panics(t, func() { _, _, _ = first.With(config.OriginDefault, jobs("1")) })
}

func TestWithKeepsItsOwnCopyOfALayer(t *testing.T) {
	t.Parallel()
	layer := config.Layer{{Section: "replicator", Key: "max_jobs", Text: "2"}}
	cfg, _, err := new(config.Config).With(config.OriginStore, layer)
	require.NoError(t, err)
	layer[0].Text = "nonsense"
	cfg, _, err = cfg.With(config.OriginFlag)
	require.NoError(t, err)
	require.Equal(t, 2, config.MaxJobs.Get(cfg))
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		data    string
		environ []string
		flags   []string
		want    []string // FILE stands for the file
	}{
		{name: "no warnings", data: "[replicator]\nmax_jobs = 5"},
		{name: "not supported", data: "[replicator]\npriority_coeff = 0.9",
			want: []string{"[replicator] priority_coeff, FILE:2: has no effect: jobs have no priority, their databases share the running time"}},
		{name: "once for a key", data: "[replicator]\nibrowse_options = a\nibrowse_options = b",
			want: []string{"[replicator] ibrowse_options, FILE:2: has no effect: it is for another HTTP client; IPv6 and IPv4 work without it"}},
		{name: "unknown keys", data: "[replicator]\nmax_jbos = 5\n[settee]\nStore = mem:", want: []string{
			"[replicator] max_jbos, FILE:2: is not a setting; did you mean [replicator] max_jobs?",
			"[settee] Store, FILE:4: is not a setting; did you mean [settee] store?",
		}},
		{name: "unknown section, once", data: "[replikator]\nmax_jobs = 5\nmax_history = 6",
			want: []string{"[replikator], FILE:2: is neither a section of settee nor one of CouchDB; did you mean [replicator]?"}},
		{name: "TLS of older servers", data: "[daemons]\nhttpsd = {chttpd, start_link, [https]}",
			want: []string{"[daemons] httpsd, FILE:2: has no effect: [ssl] enable switches TLS on"}},
		{name: "a full disk", data: "[disk_monitor]\nenable = true\ninteractive_database_writes_threshold = 90", want: []string{
			"[disk_monitor] enable, FILE:2: has no effect: writes are accepted until the disk is full; let your monitoring watch the disk",
			"[disk_monitor] interactive_database_writes_threshold, FILE:3: has no effect: writes are accepted until the disk is full; " +
				"let your monitoring watch the disk",
		}},
		{name: "databases of users", data: "[couch_peruser]\nenable = true", want: []string{
			"[couch_peruser] enable, FILE:2: has no effect: no database is created for a user: create it together with the user",
		}},
		{name: "JSONP", data: "[httpd]\nallow_jsonp = true", want: []string{
			"[httpd] allow_jsonp, FILE:2: has no effect: answers are JSON, and callback is ignored; pages of other origins need [cors]",
		}},
		{name: "accounts", data: "[admins]\nroot = hunter2",
			want: nil},
		{name: "sections of CouchDB", data: "[couchdb_engines]\ncouch = couch_bt_engine\n[smoosh.ratio_dbs]\npriority = ratio\n" +
			"[feature_flags]\npartitioned||* = true"},
		{name: "CORS of one host", data: "[cors:http://example.com]\ncredentials = false\nmax_age = 1",
			want: []string{"[cors:http://example.com], FILE:2: has no effect: [cors] applies to every host"}},
		{
			name: "unused keys beside used ones",
			data: "[couchdb]\nuuid = 1\ndatabase_dir = /data\n[chttpd_auth]\npassword_scheme = simple",
			want: []string{
				"[couchdb] database_dir, FILE:3: is not used by settee",
				"[chttpd_auth] password_scheme, FILE:5: has no effect: new passwords are hashed with PBKDF2; existing simple hashes are accepted",
			},
		},
		{name: "ignored lines", data: "max_jobs = 5\n[replicator]\npassword hunter2\n[log];x\nmax_jobs=", want: []string{
			"FILE:1: ignored: it is before the first section",
			"FILE:3: ignored: not a section, a setting or a comment",
			"FILE:4: ignored: not a section header of the form [name]; the next settings still belong to [replicator]",
			"FILE:5: ignored: it has a key but no value",
		}},
		{name: "roles of CouchDB only", environ: []string{"COUCHDB_NODE_TYPE_VIEW_INDEXING=whatever"},
			want: []string{"[node_types] view_indexing, environment variable COUCHDB_NODE_TYPE_VIEW_INDEXING: is not a setting"}},
		{name: "a flag of CouchDB only", flags: []string{"mango/default_limit=5"},
			want: []string{"[mango] default_limit, --set: is not used by settee"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := file(t, "local.ini", tt.data)
			_, warnings, err := config.Load(config.Options{Files: []string{path}, Environ: tt.environ, Flags: tt.flags})
			require.NoError(t, err)
			var got []string
			for _, w := range warnings {
				got = append(got, strings.ReplaceAll(w.String(), path, "FILE"))
			}
			require.Equal(t, tt.want, got)
		})
	}
}

func TestValueErrorsHideSecretsAndShortenValues(t *testing.T) {
	t.Parallel()
	_, _, err := config.Load(config.Options{Flags: []string{"chttpd/bind_address=http://root:hun@t/er2@host"}})
	require.ErrorContains(t, err, `"http://****@host"`)
	_, _, err = config.Load(config.Options{Flags: []string{"log/level=" + strings.Repeat("x", 1000)}})
	require.Less(t, len(err.Error()), 300)
	var bad *config.ValueError
	require.ErrorAs(t, err, &bad)
	require.Len(t, bad.Shown, 1000)
}
