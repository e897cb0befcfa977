package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChangeable(t *testing.T) {
	t.Parallel()
	tests := []struct {
		list, section, key string
		want               error
	}{
		{"", "log", "level", nil},
		{"", "daemons", "x", ErrBlacklisted},
		{"", "feature_flags", "x", ErrBlacklisted},
		{"", "Daemons", "x", nil},
		{"[]", "log", "level", ErrNotWhitelisted},
		{"[{chttpd, config_whitelist}, {log,level}, {etc,etc}]", "log", "level", nil},
		{"[{chttpd, config_whitelist}, {log,level}, {etc,etc}]", "chttpd", "config_whitelist", nil},
		{"[{chttpd, config_whitelist}, {log,level}, {etc,etc}]", "log", "file", ErrNotWhitelisted},
		{"[{chttpd, config_whitelist}, {log,level}, {etc,etc}]", "admins", "level", ErrNotWhitelisted},
		{`[{"replicator.shares", "*"}]`, "replicator.shares", "a/_replicator", nil},
		{`[{'replicator.shares', '*'}]`, "replicator.shares", "a", nil},
		{`[{<<"replicator">>, <<"max_jobs">>}].`, "replicator", "max_jobs", nil},
		{`[{<<"*">>, <<"max_jobs">>}]`, "replicator", "max_jobs", ErrNotWhitelisted},
		{"[{daemons, x}]", "daemons", "x", ErrBlacklisted},
	}
	for _, test := range tests {
		for _, section := range []string{"chttpd", "httpd"} {
			c, _ := loaded(t, "["+section+"]\nconfig_whitelist = "+test.list+"\n")
			assert.Equal(t, test.want, c.Changeable(test.section, test.key), "%+v", test)
			assert.Equal(t, test.want, IfChangeable(test.section, test.key)(c, new(Config)), "%+v", test)
		}
	}
	for _, wrong := range []string{
		"log", "{log, level}", "[{log, level}", "[{log}]", "[{log, level},]", "[{log, level} {log, file}]", "[log]", "[{log, 1}]", "[{log, level, x}]",
	} {
		_, _, err := Load(Options{Flags: []string{"chttpd/config_whitelist=" + wrong}})
		require.ErrorContains(t, err, "[chttpd] config_whitelist (--set)", wrong)
	}
}
