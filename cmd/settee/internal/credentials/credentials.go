// Package credentials decides which user and password a command sends to a server.
//
// A command line can be read by every local user, so a password in a URL is only one of several ways. [Finder.URL]
// tries them in this order, and the first that has credentials wins:
//
//  1. a user and a password in the URL,
//  2. the file of --credentials, which has the syntax of ~/.netrc,
//  3. the environment: SETTEE_<PLACE>_USER and SETTEE_<PLACE>_PASSWORD,
//  4. the file that the variable NETRC names, otherwise ~/.netrc,
//  5. questions on the terminal, if there is one.
//
// A URL that has a user without a password asks for this user's password: credentials of other users are ignored.
//
// [Finder.Endpoint] looks at SETTEE_<PLACE>_AUTH first, which has credentials of all kinds.
package credentials

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
)

// Place says what a URL is for. The names of its variables have it in upper case.
type Place string

// The places that commands have.
const (
	Source  Place = "source"
	Target  Place = "target"
	Node    Place = "node"    // a node of settee
	CouchDB Place = "couchdb" // a CouchDB whose replications move
)

// Variables returns the names of the environment variables with the user and the password of a place.
func (p Place) Variables() (user, password string) {
	prefix := "SETTEE_" + strings.ToUpper(string(p))
	return prefix + "_USER", prefix + "_PASSWORD"
}

// Auth returns the environment variable with the credentials of a place as the member `auth` of a replication document has them.
func (p Place) Auth() string { return "SETTEE_" + strings.ToUpper(string(p)) + "_AUTH" }

// Terminal asks questions. Secrets are not shown while they are typed.
type Terminal interface {
	Ask(question string) (string, error)
	AskSecret(question string) (string, error)
}

// Finder finds credentials for the URLs of one command line.
type Finder struct {
	// File is the file of --credentials, or "".
	File string
	// Getenv returns an environment variable, or "".
	Getenv func(string) string
	// Home is the directory that .netrc is in, or "" if it is not known.
	Home string
	// Terminal is nil if the command does not run on one.
	Terminal Terminal
	// Status returns the status that a server answers a request without credentials with. It is used with a Terminal.
	Status func(ctx context.Context, url string) (int, error)
	// Warn prints a warning.
	Warn func(text string)

	warned bool
	typed  map[string]string // the user and password of a URL, by its server and user
}

// URL returns a URL with the credentials that were found. The result goes to the server of the URL and is not
// printed. A text that is not an http or https URL is returned as it is: the command refuses it. No error has a
// password.
func (f *Finder) URL(ctx context.Context, place Place, text string) (string, error) {
	at, ok := split(text)
	if !ok {
		return text, nil
	}
	if at.hasPassword {
		if !f.warned {
			f.warned = true
			user, password := place.Variables()
			f.Warn("every local user can read the password of the URL in the list of processes. Other ways: --credentials FILE, the variables " +
				user + " and " + password + ", ~/.netrc, or a URL without the password, which is then asked for on a terminal")
		}
		return text, nil
	}
	for _, find := range []func(context.Context, Place, location) (*pair, error){f.inFile, f.inEnvironment, f.inNetrc, f.onTerminal} {
		switch found, err := find(ctx, place, at); {
		case err != nil:
			return "", err
		case found != nil:
			return at.with(*found), nil
		}
	}
	return text, nil
}

// Endpoint returns the source or the target at a URL as a replication document has it: a text as URL returns it, or an object with
// the credentials of [Place.Auth]. No error has them.
func (f *Finder) Endpoint(ctx context.Context, place Place, text string) (any, error) {
	auth := f.Getenv(place.Auth())
	if auth == "" {
		return f.URL(ctx, place, text)
	}
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(auth), &object) != nil || object == nil {
		return nil, fmt.Errorf("the variable %s must be a JSON object, such as {\"ibm\": {\"api_key\": …}}", place.Auth())
	}
	return map[string]any{"url": text, "auth": json.RawMessage(auth)}, nil
}

// pair is a user and a password.
type pair struct{ user, password string }

func (f *Finder) inFile(_ context.Context, _ Place, at location) (*pair, error) {
	if f.File == "" {
		return nil, nil
	}
	file, err := readNetrc(f.File)
	if err == nil {
		err = file.open
	}
	if err != nil {
		return nil, fmt.Errorf("--credentials: %w", err)
	}
	found, err := file.find(at.hostname, at.user)
	if err != nil {
		return nil, fmt.Errorf("--credentials: %w", err)
	}
	return found, nil
}

func (f *Finder) inEnvironment(_ context.Context, place Place, at location) (*pair, error) {
	userName, passwordName := place.Variables()
	user, password := f.Getenv(userName), f.Getenv(passwordName)
	switch {
	case user == "" && password == "", at.user != "" && user != "" && user != at.user:
		return nil, nil
	case password == "":
		return nil, fmt.Errorf("the environment has %s, but not %s", userName, passwordName)
	case user == "" && at.user == "":
		return nil, fmt.Errorf("the environment has %s, but not %s, and the URL of the %s has no user name", passwordName, userName, place)
	}
	return &pair{cmp.Or(user, at.user), password}, nil
}

func (f *Finder) inNetrc(_ context.Context, _ Place, at location) (*pair, error) {
	path := f.Getenv("NETRC")
	named := path != ""
	if !named {
		if f.Home == "" {
			return nil, nil
		}
		path = filepath.Join(f.Home, ".netrc")
	}
	file, err := readNetrc(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := file.find(at.hostname, at.user)
	if found != nil && file.open != nil {
		return nil, file.open // a file that is not used may have any permissions
	}
	return found, err
}

// onTerminal asks for the password of the URL's user. If the URL has no user, it asks for both, but only if the server
// wants credentials.
func (f *Finder) onTerminal(ctx context.Context, place Place, at location) (*pair, error) {
	if f.Terminal == nil {
		return nil, nil
	}
	server := at.scheme + at.authority
	user := at.user
	if user == "" {
		if status, err := f.Status(ctx, place.guarded(at)); err != nil || status != http.StatusUnauthorized {
			return nil, nil //nolint:nilerr // the command meets the error again and reports it
		}
		if user = f.typed[server]; user == "" {
			var err error
			if user, err = f.Terminal.Ask(fmt.Sprintf("User name for the %s %s: ", place, server)); err != nil {
				return nil, fmt.Errorf("reading the user name: %w", err)
			}
			if user == "" {
				return nil, errors.New("the user name is empty")
			}
		}
	}
	key := server + "\x00" + user
	password, known := f.typed[key]
	if !known {
		var err error
		if password, err = f.Terminal.AskSecret(fmt.Sprintf("Password of %q for the %s %s: ", user, place, server)); err != nil {
			return nil, fmt.Errorf("reading the password: %w", err)
		}
		if f.typed == nil {
			f.typed = map[string]string{}
		}
		f.typed[key] = password
		if at.user == "" {
			f.typed[server] = user
		}
	}
	return &pair{user, password}, nil
}

// location is a URL in parts.
type location struct {
	scheme    string // with "://"
	written   string // the user as the URL spells it
	user      string
	authority string // the host and the port
	hostname  string // in lower case, without the port and brackets
	rest      string

	hasPassword bool
}

// split returns the parts of an http or https URL. It keeps their spelling, which replication ids cover. ok is false
// if the text is no such URL, or if its host is not beyond doubt.
func split(text string) (at location, ok bool) {
	parsed, err := url.Parse(text)
	scheme, rest, _ := strings.Cut(text, "://")
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || !strings.EqualFold(scheme, parsed.Scheme) {
		return at, false
	}
	at.scheme, at.authority = scheme+"://", rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		at.authority, at.rest = rest[:end], rest[end:]
	}
	if i := strings.LastIndexByte(at.authority, '@'); i >= 0 {
		at.written, at.authority = at.authority[:i], at.authority[i+1:]
	}
	at.user = parsed.User.Username()
	_, at.hasPassword = parsed.User.Password()
	at.hostname = strings.ToLower(parsed.Hostname())
	return at, at.hostname != "" && parsed.Host == at.authority
}

// guarded returns the URL of something at a place that commands need and that may need credentials, without a user:
// the database, or a page of a server that is for administrators. The root of a server is for everybody.
func (p Place) guarded(l location) string {
	if p == Node || p == CouchDB {
		path, _, _ := strings.Cut(l.rest, "?")
		return l.scheme + l.authority + strings.TrimSuffix(path, "/") + "/_node/_local/_config"
	}
	return l.scheme + l.authority + l.rest
}

// with returns the URL with credentials.
func (l location) with(p pair) string {
	written := l.written
	if l.user == "" {
		written = url.User(p.user).String()
	}
	_, password, _ := strings.Cut(url.UserPassword("", p.password).String(), ":")
	return l.scheme + written + ":" + password + "@" + l.authority + l.rest
}
