package config

import (
	"fmt"
	"net/url"
	"strings"

	"settee/pkg/redact"
)

// Login is a user name and a password.
type Login struct{ Username, Password string }

// Format writes the user name for every verb.
func (l Login) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, l.Username, fmt.Sprintf("config.Login{Username: %q}", l.Username))
}

// MarshalText returns the user name, for logs in JSON.
func (l Login) MarshalText() ([]byte, error) { return []byte(l.Username), nil }

// WatchLogin returns what [replicator.watches] has for a server, and whether it has anything. server is the server's URL.
// Case of scheme and host, the default port and a slash at the end make no difference.
func (c *Config) WatchLogin(server string) (Login, bool) {
	want, ok := serverURL(server)
	if !ok {
		return Login{}, false
	}
	for _, key := range c.members(Watches.def) {
		if got, _ := serverURL(key); got == want {
			return Watches.Value(c, key)
		}
	}
	return Login{}, false
}

// watchLogin accepts USER:PASSWORD under the URL of a server.
func watchLogin(server string) kind[Login] {
	if _, ok := serverURL(server); !ok {
		return kind[Login]{
			want:  "under the URL of a server, such as https://couch.example.com:6984/, without user name, password and query",
			parse: func(string) (Login, bool) { return Login{}, false },
		}
	}
	return kind[Login]{want: wantLogin, parse: func(text string) (Login, bool) {
		user, password, ok := strings.Cut(text, ":")
		return Login{user, password}, ok && user != "" && password != ""
	}}
}

const wantLogin = "USER:PASSWORD"

// serverURL returns the URL of a server in one spelling, and whether text is such a URL.
func serverURL(text string) (string, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#") {
		return "", false
	}
	port, standard := u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]
	if standard == "" {
		return "", false
	}
	host := strings.ToLower(u.Hostname())
	if port == "" {
		port = standard
	}
	return u.Scheme + "://[" + host + "]:" + port + strings.TrimRight(u.EscapedPath(), "/") + "/", true
}
