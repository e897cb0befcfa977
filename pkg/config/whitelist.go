package config

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// The errors of Changeable. They have CouchDB's texts.
var (
	ErrBlacklisted    = errors.New("Config section blacklisted for modification over HTTP API.") //nolint:staticcheck // CouchDB's text
	ErrNotWhitelisted = errors.New("This config variable is read-only")                          //nolint:staticcheck // CouchDB's text
)

// blacklisted are the sections that CouchDB 3.5 never changes over HTTP (couch_util.erl).
var blacklisted = []string{
	"daemons", "external", "feature_flags", "httpd_db_handlers", "httpd_design_handlers", "httpd_global_handlers",
	"native_query_servers", "os_daemons", "query_servers",
}

// Changeable returns nil if clients may change a setting over HTTP, whatever their rights are. Otherwise it returns
// ErrBlacklisted or ErrNotWhitelisted.
func (c *Config) Changeable(section, key string) error {
	if slices.Contains(blacklisted, section) {
		return ErrBlacklisted
	}
	listed := func(n name) bool { return n.section == section && (n.key == key || n.key == "*") }
	if list := configWhitelist.Get(c); list != nil && !slices.ContainsFunc(list, listed) {
		return ErrNotWhitelisted
	}
	return nil
}

// IfChangeable is Changeable as a Check: the configuration before the change decides.
func IfChangeable(section, key string) Check {
	return func(before, _ *Config) error { return before.Changeable(section, key) }
}

var (
	// An atom of Erlang, a quoted atom, a string or a binary. Quoted texts have no escapes.
	erlangName    = `(?:([a-z][A-Za-z0-9_@]*)|'([^'\\]+)'|"([^"\\]+)"|<<\s*"([^"\\]+)"\s*>>)`
	whitelistItem = regexp.MustCompile(`^\s*\{\s*` + erlangName + `\s*,\s*` + erlangName + `\s*\}\s*`)
)

// settingNames accepts CouchDB's list of settings. An empty list is not nil.
func settingNames() kind[[]name] {
	return kind[[]name]{
		want: `a list such as [{log, level}, {replicator, "*"}], where "*" means all keys of a section`,
		parse: func(text string) ([]name, bool) {
			found, ok := erlangList(text, whitelistItem)
			names := make([]name, len(found))
			for i, m := range found {
				names[i] = name{strings.Join(m[1:5], ""), strings.Join(m[5:9], "")}
			}
			return names, ok
		},
	}
}
