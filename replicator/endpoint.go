package replicator

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"settee/pkg/redact"
)

// Endpoint is one side of a replication: a database at a URL and what it takes
// to reach it. No way of printing it shows the credentials, JSON included:
// [JobArgs.Stored] is the form that has them.
type Endpoint struct {
	// URL is http or https, without user name, password and query. Its path keeps
	// the percent-encoding it was given with and ends in a slash.
	URL string `json:"url"`

	// Username and Password are for basic or session authentication; both are
	// empty for none. They come from the auth.basic object of the definition,
	// else from the URL, else from an Authorization header, and are held in no
	// other place.
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`

	// WrittenUsername is the user name as the URL spelled it, where that differs
	// from Username: replication ids cover that spelling.
	WrittenUsername string `json:"written_username,omitempty"`

	// Headers go out with every request, without an Authorization that held
	// basic credentials. They are in the order that replication ids cover, which
	// is that of their names.
	Headers []Header `json:"headers,omitempty"`

	// Proxy is the URL of the proxy to go through, with its credentials if it
	// needs any, or empty. net/url can parse it.
	Proxy string `json:"proxy,omitempty"`
}

// Header is one header of an endpoint's requests. Its value may be a secret: it is
// not printed.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// HasCredentials reports whether the endpoint has a user name or a password.
func (e Endpoint) HasCredentials() bool {
	return e.Username != "" || e.Password != ""
}

// String returns the URL without credentials, as listings show it.
func (e Endpoint) String() string {
	l, err := splitURL(e.URL)
	if err != nil {
		return redact.Text(e.URL)
	}
	return l.String()
}

// RedactedProxy returns the proxy's URL with its password masked, as listings
// show it, or "" if there is none.
func (e Endpoint) RedactedProxy() string {
	return redact.Text(e.Proxy)
}

// GoString keeps %#v from showing the password.
func (e Endpoint) GoString() string {
	return fmt.Sprintf("replicator.Endpoint(%q)", e.String())
}

// Format writes String for every verb, and GoString for %#v, so that no way of
// printing an endpoint shows its password or its headers.
func (e Endpoint) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, e.String(), e.GoString())
}

// MarshalJSON writes the endpoint as it may be printed.
func (e Endpoint) MarshalJSON() ([]byte, error) {
	type plain Endpoint
	e.URL, e.Proxy = e.String(), e.RedactedProxy()
	if e.Password != "" {
		e.Password = masked
	}
	return json.Marshal(plain(e))
}

// LogValue implements slog.LogValuer.
func (e Endpoint) LogValue() slog.Value { return slog.StringValue(e.String()) }

// String returns the name alone.
func (h Header) String() string {
	return h.Name + ": " + masked
}

// MarshalJSON writes the header as it may be printed.
func (h Header) MarshalJSON() ([]byte, error) {
	return json.Marshal(storedHeader{h.Name, masked})
}

// LogValue implements slog.LogValuer.
func (h Header) LogValue() slog.Value { return slog.StringValue(h.String()) }

// GoString keeps %#v from showing the value.
func (h Header) GoString() string {
	return fmt.Sprintf("replicator.Header(%q)", h.String())
}

// Format writes String for every verb, and GoString for %#v.
func (h Header) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, h.String(), h.GoString())
}

// idTerm returns the endpoint as version 4 ids cover it:
// {remote, User, Host, Port, Path, Headers, undefined}.
func (e Endpoint) idTerm() (tuple, error) {
	l, err := splitURL(e.URL)
	if err != nil {
		return nil, err
	}
	var user any = atom("undefined")
	if e.HasCredentials() {
		user = chars(e.writtenUsername())
	}
	path := l.path
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	headers := []any{}
	for _, h := range e.Headers {
		if !h.isDefault() {
			headers = append(headers, tuple{chars(h.Name), chars(h.Value)})
		}
	}
	return tuple{atom("remote"), user, chars(l.host), l.idPort(), chars(path), headers, atom("undefined")}, nil
}

func (e Endpoint) writtenUsername() string {
	if e.WrittenUsername != "" {
		return e.WrittenUsername
	}
	return e.Username
}

// isDefault reports whether the header is one that CouchDB's replicator sends of
// its own accord, and leaves out of ids.
func (h Header) isDefault() bool {
	return h.Name == "Accept" && h.Value == "application/json"
}

// idPort returns the port as ids cover it: CouchDB's own port is as good as
// HTTP's.
func (l location) idPort() any {
	switch {
	case l.scheme == "https" && (l.port == 0 || l.port == 443),
		l.scheme == "http" && (l.port == 0 || l.port == 80 || l.port == 5984):
		return atom("default")
	}
	return int64(l.port)
}

// canonicalURL returns the URL in a form that is the same for all spellings of
// its scheme, host and port.
func (e Endpoint) canonicalURL() string {
	l, err := splitURL(e.URL)
	if err != nil {
		return e.URL
	}
	l.host = strings.ToLower(l.host)
	if l.scheme == "http" && l.port == 80 || l.scheme == "https" && l.port == 443 {
		l.port = 0
	}
	return l.String()
}

// canonicalHeaders returns the headers that ids cover, with names in lower case
// and in an order that does not depend on how the credentials were given.
func (e Endpoint) canonicalHeaders() []Header {
	var headers []Header
	for _, h := range e.Headers {
		if !h.isDefault() {
			headers = append(headers, Header{Name: strings.ToLower(h.Name), Value: h.Value})
		}
	}
	slices.SortStableFunc(headers, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return headers
}
