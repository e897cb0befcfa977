package replicator

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"settee/pkg/erlterm"
	"settee/pkg/redact"
	"settee/pkg/route"
)

// Endpoint is one side of a replication: the URL of a database and what is needed to reach it.
// Printing it never shows the credentials, not even as JSON; [JobArgs.Stored] returns the form
// that has them.
type Endpoint struct {
	// URL is http or https, without user name, password and query. Its path keeps the
	// percent-encoding that it was given with and ends in a slash.
	URL string `json:"url"`

	// Username and Password are for basic or session authentication; both are empty for none.
	// They come from the auth.basic object of the definition, else from the URL, else from an
	// Authorization header. No other field holds them.
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`

	// WrittenUsername is the user name as the URL spells it, if that differs from Username.
	// Replication ids cover this spelling.
	WrittenUsername string `json:"written_username,omitempty"`

	// Auth, if not nil, says how the access tokens are got that requests carry. Username and Password are then part of ids only.
	Auth *Auth `json:"auth,omitempty"`

	// Headers are sent with every request. An Authorization header with basic credentials is not
	// among them. They are sorted by name, as replication ids cover them.
	Headers []Header `json:"headers,omitempty"`

	// Proxy is the URL of the proxy, with credentials if needed, or empty. net/url can parse it.
	Proxy string `json:"proxy,omitempty"`
}

// Header is one header of an endpoint's requests. Its value may be secret and is not printed.
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

// RedactedProxy returns the proxy's URL with its password masked, or "" if there is none.
func (e Endpoint) RedactedProxy() string {
	return redact.Text(e.Proxy)
}

// Format writes String for every verb, so that none of them shows the password.
func (e Endpoint) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, e.String(), fmt.Sprintf("replicator.Endpoint(%q)", e.String()))
}

// MarshalJSON writes the endpoint without its credentials.
func (e Endpoint) MarshalJSON() ([]byte, error) {
	type plain Endpoint
	e.URL, e.Proxy = e.String(), e.RedactedProxy()
	if e.Password != "" {
		e.Password = masked
	}
	return json.Marshal(plain(e))
}

// String returns the name and a mask for the value.
func (h Header) String() string {
	return h.Name + ": " + masked
}

// MarshalJSON writes the header without its value.
func (h Header) MarshalJSON() ([]byte, error) {
	return json.Marshal(storedHeader{h.Name, masked})
}

// Format writes String for every verb, so that none of them shows the value.
func (h Header) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, h.String(), fmt.Sprintf("replicator.Header(%q)", h.String()))
}

// idTerm returns the Erlang term of the endpoint in version 4 ids: {remote, User, Host, Port,
// Path, Headers, undefined}.
func (e Endpoint) idTerm() ([]byte, error) {
	l, err := splitURL(e.URL)
	if err != nil {
		return nil, err
	}
	path := l.path
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	headers := [][]byte{}
	for _, h := range e.Headers {
		if !h.isDefault() {
			headers = append(headers, erlterm.AppendChars(erlterm.AppendChars(erlterm.AppendTuple(nil, 2), h.Name), h.Value))
		}
	}
	b := erlterm.AppendAtom(erlterm.AppendTuple(nil, 7), "remote")
	if e.HasCredentials() {
		b = erlterm.AppendChars(b, e.writtenUsername())
	} else {
		b = erlterm.AppendAtom(b, "undefined")
	}
	b = l.appendPort(erlterm.AppendChars(b, l.host))
	b = appendList(erlterm.AppendChars(b, path), headers)
	return erlterm.AppendAtom(b, "undefined"), nil
}

func (e Endpoint) writtenUsername() string {
	if e.WrittenUsername != "" {
		return e.WrittenUsername
	}
	return e.Username
}

// isDefault reports whether CouchDB's replicator sends this header by default and leaves it out
// of ids.
func (h Header) isDefault() bool {
	return h.Name == "Accept" && h.Value == "application/json"
}

// appendPort appends the port as ids cover it. For http, 5984 is a default port like 80.
func (l location) appendPort(b []byte) []byte {
	switch {
	case l.scheme == "https" && (l.port == 0 || l.port == 443),
		l.scheme == "http" && (l.port == 0 || l.port == 80 || l.port == 5984):
		return erlterm.AppendAtom(b, "default")
	}
	return erlterm.AppendInteger(b, int64(l.port))
}

// canonicalURL returns the URL in one form for all spellings of its scheme, host and port.
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

// Server splits the URL into the URL of the server and the name of the database. The URL of the server has one spelling
// of scheme, host and port, without user name and password. It ends in a slash, after the prefix path if there is one.
// The name of the database has no percent-encoding. ok is false if the URL has no such parts.
func (e Endpoint) Server() (server, database string, ok bool) {
	l, err := splitURL(e.canonicalURL())
	if err != nil || strings.ContainsAny(l.path, "?#") {
		return "", "", false
	}
	if address, err := netip.ParseAddr(l.host); err == nil {
		l.host = address.String()
	}
	path := strings.TrimRight(l.path, "/")
	slash := strings.LastIndexByte(path, '/')
	if slash < 0 {
		return "", "", false
	}
	if database, err = url.PathUnescape(path[slash+1:]); err != nil || database == "" {
		return "", "", false
	}
	l.path = path[:slash+1]
	return l.String(), database, true
}

// Route is [Endpoint.Server] with the key of who answers, in place of the URL of the server: see [route.Key]. What jobs of
// different users share because of a server belongs to this key.
func (e Endpoint) Route() (key, database string, ok bool) {
	server, database, ok := e.Server()
	if !ok {
		return "", "", false
	}
	return route.Key(server, e.Proxy, func(yield func(name, value string) bool) {
		for _, h := range e.Headers {
			if !yield(h.Name, h.Value) {
				return
			}
		}
	}), database, true
}

// Names returns the host of the URL, in lower case and without brackets and the port, and the last segment of its path
// without percent-encoding, which is the name of the database. Either is empty if the URL has none.
func (e Endpoint) Names() (host, database string) {
	l, err := splitURL(e.URL)
	if err != nil {
		return "", ""
	}
	host = strings.ToLower(l.host)
	if address, err := netip.ParseAddr(host); err == nil {
		host = address.String()
	}
	path, _, _ := strings.Cut(l.path, "?")
	path = strings.TrimRight(path, "/")
	return host, unescape(path[strings.LastIndexByte(path, '/')+1:])
}

// canonicalHeaders returns the headers that ids cover, with names in lower case, in an order that
// does not depend on where the credentials were given.
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
