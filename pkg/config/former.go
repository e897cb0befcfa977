package config

import "slices"

// former are the older sections in which CouchDB 3.5 looks for keys that their section does not have: by the older name
// of a section, its name and these keys (chttpd_util.erl and its callers).
var former = map[string]struct {
	now  string
	keys []string
}{
	"httpd": {"chttpd", []string{
		"WWW-Authenticate", "allow_jsonp", "authentication_redirect", "changes_timeout", "chunked_response_buffer",
		"config_whitelist", "enable_cors", "enable_xframe_options", "max_http_request_size", "max_uri_length",
		"rewrite_limit", "secure_rewrites", "server_header_versions", "valid_hosts", "validate_host",
		"x_forwarded_host", "x_forwarded_proto", "x_forwarded_ssl",
	}},
	"couch_httpd_auth": {"chttpd_auth", []string{
		"allow_persistent_cookies", "cookie_domain", "hash_algorithms", "iterations", "max_iterations", "min_iterations",
		"password_regexp", "password_scheme", "pbkdf2_prf", "proxy_use_secret", "public_fields", "same_site", "secret",
		"timeout", "users_db_public", "x_auth_roles", "x_auth_token", "x_auth_username",
	}},
}

// current returns the present name of a setting, and whether n is an older one. A value of the present name precedes,
// whichever layer it is in.
func current(n name) (now name, older bool) {
	if section, found := former[n.section]; found && slices.Contains(section.keys, n.key) {
		return name{section.now, n.key}, true
	}
	return n, false
}

// olderSection returns the older name of a section.
func olderSection(now string) string {
	for older, section := range former {
		if section.now == now {
			return older
		}
	}
	return now
}
