package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseINIDialect(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		data string
		want []entry
	}{
		{"plain", "[a]\nk = v\n", []entry{{"a", "k", "v", 2}}},
		{"nothing", "", nil},
		{"no line end at the end", "[a]\nk = v", []entry{{"a", "k", "v", 2}}},
		{"CR LF, CR, SUB", "[a]\r\nk = 1\rl = 2\x1am = 3", []entry{
			{"a", "k", "1", 2}, {"a", "l", "2", 3}, {"a", "m", "3", 4},
		}},
		{"byte order mark", "\ufeff[a]\nk = v", []entry{{"a", "k", "v", 2}}},
		{"blanks around everything", " [a] \n\t k\t = \t v w \t", []entry{{"a", "k", "v w", 2}}},
		{"without spaces", "[a]\nk=v\nl= v\nm =v", []entry{{"a", "k", "v", 2}, {"a", "l", "v", 3}, {"a", "m", "v", 4}}},
		{"case is kept", "[Ab]\nKey = V", []entry{{"Ab", "Key", "V", 2}}},

		{"comment lines", "; c\n[a]\n;k = 1\n  ; k = 2\n#k = 3\n\t# k = 4\nk = v", []entry{{"a", "k", "v", 7}}},
		{"comment behind a value", "[a] ; c\nk = v ; c\nl = w\t; c ; d", []entry{{"a", "k", "v", 2}, {"a", "l", "w", 3}}},
		{"; without a blank before it", "[a]\nk = a;b\nl=;c", []entry{{"a", "k", "a;b", 2}, {"a", "l", ";c", 3}}},
		{"# behind a value", "[a]\nk = a #b", []entry{{"a", "k", "a #b", 2}}},

		{"quotes", "[a]\nk = \"v\"\nl = 'v'\nm = `v`\nn = \"\"\"v", []entry{
			{"a", "k", `"v"`, 2}, {"a", "l", "'v'", 3}, {"a", "m", "`v`", 4}, {"a", "n", `"""v`, 5},
		}},
		{"backslash at the end", "[a]\nk = v\\\nl = w\\n", []entry{{"a", "k", `v\`, 2}, {"a", "l", `w\n`, 3}}},
		{"no interpolation", "[a]\nk = %(l)s ${l} $l", []entry{{"a", "k", "%(l)s ${l} $l", 2}}},
		{"Erlang terms", "[a]\nk = [{keepalive, true}, {nodelay, false}]", []entry{
			{"a", "k", "[{keepalive, true}, {nodelay, false}]", 2},
		}},

		{"= in a value", "[a]\nk = a=b\nl = a = b\nm=a=b", []entry{
			{"a", "k", "a=b", 2}, {"a", "l", "a = b", 3}, {"a", "m", "a=b", 4},
		}},
		{"= in a key", "[jwt_keys]\nrsa:h2j2= = v\nrsa:h2j2==v", []entry{
			{"jwt_keys", "rsa:h2j2=", "v", 2}, {"jwt_keys", "rsa:h2j2", "=v", 3},
		}},
		{"a database's name as a key", "[replicator.shares]\nhigh/_replicator = 200\nwww.example.com:80 = /db", []entry{
			{"replicator.shares", "high/_replicator", "200", 2}, {"replicator.shares", "www.example.com:80", "/db", 3},
		}},
		{"keys that are special in other dialects", "[a]\n- = 1\nexport k = 2\n\"q\" = 3", []entry{
			{"a", "-", "1", 2}, {"a", "export k", "2", 3}, {"a", `"q"`, "3", 4},
		}},

		{"sections with odd names", "[ a ]\nk = 1\n[cors:http://example.com]\nk = 2\n[a[b]\nk = 3\n[DEFAULT]\nk = 4", []entry{
			{" a ", "k", "1", 2}, {"cors:http://example.com", "k", "2", 4}, {"a[b", "k", "3", 6}, {"DEFAULT", "k", "4", 8},
		}},
		{"a section again", "[a]\nk = 1\n[b]\nk = 2\n[a]\nk = 3", []entry{{"a", "k", "1", 2}, {"b", "k", "2", 4}, {"a", "k", "3", 6}}},
		{"bytes that are not UTF-8", "[a]\nk = \xe9\xff", []entry{{"a", "k", "\xe9\xff", 2}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, remarks := parseINI(tt.data)
			require.Equal(t, tt.want, got)
			require.Empty(t, remarks)
		})
	}
}

func TestParseINIRemarks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, data string
		entries    int
		line       int
		reason     string
	}{
		{"before a section", "k = v\n[a]", 0, 1, "before the first section"},
		{"no =", "[a]\nk v", 0, 2, "not a section, a setting"},
		{"no key", "[a]\n= v", 0, 2, "not a section, a setting"},
		{"no value", "[a]\nk =", 0, 2, "no value"},
		{"only a comment for a value", "[a]\nk = ; v", 0, 2, "no value"},
		{"empty header", "[a]\n[]\nk = v", 1, 2, "still belong to [a]"},
		{"open header", "[a]\n[b\nk = v", 1, 2, "still belong to [a]"},
		{"header with a tail", "[a]\n[b];c\nk = v", 1, 2, "still belong to [a]"},
		{"header with a tail, first", "[b] c\n", 0, 1, "form [name]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			entries, remarks := parseINI(tt.data)
			require.Len(t, entries, tt.entries)
			require.Len(t, remarks, 1)
			require.Equal(t, tt.line, remarks[0].line)
			require.Contains(t, remarks[0].reason, tt.reason)
		})
	}
}

func TestFormatSettingRefusesWhatDoesNotFitALine(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", " ", "a\nb", "a\rb", "a\x1ab", "a ;b", "a\t;b", " a", "a "} {
		_, ok := formatSetting("k", text)
		require.False(t, ok, "%q", text)
	}
	for _, key := range []string{"", "[k", ";k", "#k", "k = l", "k\nl", " k"} {
		_, ok := formatSetting(key, "v")
		require.False(t, ok, "%q", key)
	}
}
