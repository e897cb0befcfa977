package replicator

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// credentials are a user name and a password from one of the places that may hold them.
type credentials struct {
	username, password string
	written            string // the user name as the URL spells it
	doubtful           bool   // see hasNeedlessEscape
}

// endpoint parses a source or a target: the URL of a database, or an object with url, headers and
// auth.
func (f *fields) endpoint(name string, options ParseOptions) Endpoint {
	const what = "the URL of a database, or an object with its `url`"
	raw, given := f.values[name]
	if !given {
		f.fail(name, "parameter `%s` is missing: it must be %s", name, what)
		return Endpoint{}
	}
	if raw[0] == '"' {
		text, _ := f.text(name, what)
		e, inURL := f.endpointURL(name, text, options)
		f.use(name, &e, inURL)
		return e
	}
	side := f.object(name, what)
	if side == nil {
		return Endpoint{}
	}
	text, given := side.text("url", "the URL of a database")
	if !given {
		side.mustBe("url", "the URL of a database")
		return Endpoint{}
	}
	e, inURL := side.endpointURL("url", text, options)
	headers, inHeader := side.headers()
	e.Headers = headers
	basic, token := side.auth(options)
	e.Auth = token
	// The order in which CouchDB looks for credentials.
	for _, found := range []*credentials{basic, inURL, inHeader} {
		if found != nil {
			f.use(name, &e, found)
			break
		}
	}
	return e
}

// use gives the endpoint of that name credentials, if there are any.
func (f *fields) use(name string, e *Endpoint, c *credentials) {
	if c == nil {
		return
	}
	if c.doubtful {
		f.doubt(name)
	}
	e.Username, e.Password = c.username, c.password
	if c.written != c.username {
		e.WrittenUsername = c.written
	}
}

// endpointURL returns the endpoint at a URL, and the credentials in that URL.
func (f *fields) endpointURL(name, text string, options ParseOptions) (Endpoint, *credentials) {
	protocols := options.endpointProtocols()
	if !strings.Contains(text, "://") {
		f.mustBe(name, "a full URL with protocol "+orList(protocols)+": names of local databases are not supported")
		return Endpoint{}, nil
	}
	l, err := splitURL(text)
	if err != nil {
		f.fail(name, "parameter `%s` has an invalid url: %v", f.prefix+name, err)
		return Endpoint{}, nil
	}
	if !slices.Contains(protocols, l.scheme) {
		f.mustBe(name, "a URL with protocol "+orList(protocols))
		return Endpoint{}, nil
	}
	switch {
	case strings.ContainsAny(l.path, "?#"):
		f.fail(name, "parameter `%s` has an invalid url: a database's has no query", f.prefix+name)
		return Endpoint{}, nil
	case !strings.HasSuffix(l.path, "/"):
		l.path += "/"
	}
	e := Endpoint{URL: l.String()}
	c, found := l.credentials()
	if !found {
		return e, nil
	}
	if !utf8.ValidString(c.username) || !utf8.ValidString(c.password) {
		f.fail(name, "parameter `%s` has a user name or password that is not UTF-8", f.prefix+name)
	}
	return e, &c
}

// headers returns the headers in the order that replication ids cover, without a basic
// Authorization header, and the credentials of that header.
func (f *fields) headers() ([]Header, *credentials) {
	given := f.object("headers", "an object of strings")
	if given == nil {
		return nil, nil
	}
	var (
		list           []Header
		found          *credentials
		authorizations int
	)
	for _, name := range slices.Sorted(maps.Keys(given.values)) {
		value, _ := given.text(name, "a string")
		if !validHeaderName(name) || !validHeaderValue(value) {
			given.fail(name, "parameter `%sheaders` must be an object of HTTP headers: `%s` cannot be one", f.prefix, name)
		}
		if strings.EqualFold(name, "Authorization") {
			authorizations++
			if scheme, encoded, _ := strings.Cut(value, " "); strings.EqualFold(scheme, "Basic") {
				found = given.basicHeader(name, encoded)
				continue
			}
		}
		list = append(list, Header{Name: name, Value: value})
	}
	if authorizations > 1 {
		given.fail("Authorization", "parameter `%sheaders` must not have Authorization more than once", f.prefix)
	}
	// CouchDB sorts the headers by name. If there was an Authorization header, it sorts them
	// again by name in lower case.
	if authorizations > 0 {
		slices.SortStableFunc(list, func(a, b Header) int {
			return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
		})
	}
	return list, found
}

func (f *fields) basicHeader(name, encoded string) *credentials {
	plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	username, password, found := strings.Cut(string(plain), ":")
	if err != nil || !found || !utf8.Valid(plain) {
		f.mustBe(name, "`Basic` and the base64 form of `username:password` in UTF-8")
		return nil
	}
	return &credentials{username: username, password: password, written: username}
}

// validHeaderName reports whether name is a token of RFC 9110.
func validHeaderName(name string) bool {
	for _, c := range []byte(name) {
		if !isAlphanumeric(c) && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}

// validHeaderValue reports whether value has no control characters except tabs.
func validHeaderValue(value string) bool {
	for _, c := range []byte(value) {
		if c < ' ' && c != '\t' || c == 0x7F {
			return false
		}
	}
	return true
}
