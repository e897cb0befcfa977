package config

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/costtest"
)

// addFiles adds valid files and files that may be expensive to parse.
func addFiles(f *testing.F) {
	f.Helper()
	for _, name := range []string{"testdata/local.ini", "testdata/effective.ini"} {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(string(data))
	}
	for _, seed := range []string{
		"", "[a]\nk = v ; c\r\n# x\n[b]\nk==v\n", "[a]\nk=;v", "[a]\nk= = v\n[]\n[x\n= y", "\ufeff[\x00]\n\x1a\t;=",
		"[replicator]\nmax_jobs = 9999999\n[replicator.shares]\na/_replicator=1", "[admins]\r\nroot = pass word ; c\n\x1aroot=pass word",
		"[admins]\nroot = -pbkdf2-x\n[jwt_keys]\nhmac:a=b = YQ==\nrsa:b = -----BEGIN PUBLIC KEY-----\\nYQ==\\n-----END PUBLIC KEY-----\n",
		"[chttpd]\nbind_address = ::1\nauthentication_handlers = {chttpd_auth, jwt_authentication_handler},\n[cors]\norigins = https://a.example, *\n",
		"[" + strings.Repeat("s", 10_000) + "]\n" + strings.Repeat("[\n", 2_000),
		"[" + strings.Repeat("s", 10_000) + "]\n" + strings.Repeat("k=v\n", 2_000),
		"[a]\n" + strings.Repeat("x\n", 5_000), strings.Repeat("[a]\n", 5_000), strings.Repeat("\r", 10_000),
		"[cors]\norigins = " + strings.Repeat("a,", 5_000), "[replicator]\ndenied_networks = " + strings.Repeat("1.1.1.1,", 5_000),
		"[chttpd]\nauthentication_handlers = " + strings.Repeat("{chttpd_auth, jwt_authentication_handler},", 500),
		"[jwt_auth]\nrequired_claims = " + strings.Repeat(`{iss, "x"},`, 2_000), "[replicator]\nmax_jobs = " + strings.Repeat("9", 10_000),
	} {
		f.Add(seed)
	}
}

// FuzzParseINI asserts that any file is parsed to entries that can be written and read back, at a
// cost proportional to its length.
func FuzzParseINI(f *testing.F) {
	addFiles(f)
	f.Fuzz(func(t *testing.T, data string) {
		var entries []entry
		var remarks []remark
		costtest.Memory(500).Check(t, len(data), func() { entries, remarks = parseINI(data) })
		lines := 1 + strings.Count(data, "\n") + strings.Count(data, "\r") + strings.Count(data, "\x1a")
		require.LessOrEqual(t, len(entries)+len(remarks), lines)
		for _, r := range remarks {
			require.True(t, r.line >= 1 && r.line <= lines)
		}
		var again strings.Builder
		for _, e := range entries {
			require.True(t, e.line >= 1 && e.line <= lines)
			line, ok := formatSetting(e.key, e.text)
			require.True(t, ok, "%q = %q", e.key, e.text)
			again.WriteString("[" + e.section + "]\n" + line + "\n")
		}
		reread, remarks := parseINI(again.String())
		require.Empty(t, remarks)
		for i := range entries {
			entries[i].line = 2 * (i + 1)
		}
		require.Equal(t, entries, reread)
	})
}

// FuzzReplaceINI asserts that only the replaced values change.
func FuzzReplaceINI(f *testing.F) {
	addFiles(f)
	f.Fuzz(func(t *testing.T, data string) {
		entries, remarks := parseINI(data)
		want := slices.Clone(entries)
		replaced := 0
		for i, e := range want {
			if e.section == "admins" && e.key == "root" && e.text == "pass word" {
				want[i].text = hash
				replaced++
			}
		}
		var changed string
		costtest.Memory(1000).Check(t, len(data), func() { changed = replaceINI(data, hashed) })
		require.Len(t, changed, len(data)+replaced*(len(hash)-len("pass word")))
		got, again := parseINI(changed)
		require.Equal(t, want, got)
		require.Equal(t, remarks, again)
		require.Equal(t, strings.ReplaceAll(data, "pass word", ""), strings.ReplaceAll(strings.ReplaceAll(changed, hash, ""), "pass word", ""))
	})
}

// FuzzFile asserts that any file is refused with line numbers, or becomes a configuration that
// can be shown, written and read back, at a cost proportional to its length.
func FuzzFile(f *testing.F) {
	addFiles(f)
	f.Fuzz(func(t *testing.T, data string) {
		const path = "local.ini"
		var cfg *Config
		var warnings []Warning
		var err error
		var text bytes.Buffer
		costtest.Bound{Memory: 4 << 20, MemoryPerByte: 2000}.Check(t, len(data), func() {
			layer, _ := fileLayer(path, data)
			if cfg, warnings, err = new(Config).With(OriginFile, layer); err != nil {
				_ = err.Error()
				return
			}
			for _, w := range warnings {
				_ = w.String()
			}
			cfg.Shown()
			err = cfg.WriteINI(&text)
		})
		if cfg == nil {
			for line := range strings.Lines(err.Error()) {
				require.Contains(t, line, path)
			}
			return
		}
		require.NoError(t, err)
		layer, ignored := fileLayer(path, text.String())
		require.Empty(t, ignored)
		again, _, err := new(Config).With(OriginFile, layer)
		require.NoError(t, err)
		for _, d := range table.settings {
			want, got := cfg.find(d), again.find(d)
			if show(d.name(), want.text) == want.text {
				require.Equal(t, want.text, got.text, d.name())
			}
		}
		for _, family := range table.families {
			for key, want := range cfg.families[family] {
				if n := (name{family.section, key}); show(n, want.text) == want.text {
					require.Equal(t, want.text, again.families[family][key].text, n)
				}
			}
		}
	})
}
