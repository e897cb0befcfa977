package kv

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Engine is how stores of a URL scheme are opened.
type Engine struct {
	// Check returns why a URL names no store of the engine, or nil. It opens nothing. A nil Check accepts all URLs.
	Check func(u *url.URL) error
	// Open opens the store at a URL that Check accepts.
	Open func(ctx context.Context, u *url.URL, opts Options) (Database, error)
}

// engines has an Engine for each URL scheme.
var engines sync.Map

// Register registers an engine under a URL scheme. The init function of the engine's package calls it. It panics if the
// scheme is taken.
func Register(scheme string, e Engine) {
	if _, taken := engines.LoadOrStore(scheme, e); taken {
		panic("kv: the scheme " + scheme + " is registered twice")
	}
}

// Engines returns the sorted schemes of the engines in this binary.
func Engines() (schemes []string) {
	for scheme := range engines.Range {
		schemes = append(schemes, scheme.(string))
	}
	slices.Sort(schemes)
	return schemes
}

// Open opens the store at rawURL, such as pebble:///var/lib/settee, fdb:///etc/foundationdb/fdb.cluster?prefix=settee
// or mem:.
func Open(ctx context.Context, rawURL string, opts Options) (Database, error) {
	u, e, err := engineOf(rawURL)
	if err != nil {
		return nil, err
	}
	return e.Open(ctx, u, opts)
}

// Check returns why rawURL names no store that this binary can open, or nil. It opens nothing: the store may not exist.
func Check(rawURL string) error {
	_, _, err := engineOf(rawURL)
	return err
}

// engineOf returns the engine for the store at rawURL. The engine accepts the URL.
func engineOf(rawURL string) (u *url.URL, e Engine, err error) {
	u, err = url.Parse(rawURL)
	if err != nil {
		return nil, e, fmt.Errorf("store %q is not a URL: %w", rawURL, err)
	}
	found, ok := engines.Load(u.Scheme)
	switch {
	case ok:
		e = found.(Engine)
		if e.Check != nil {
			err = e.Check(u)
		}
		return u, e, err
	case u.Scheme == "fdb":
		return nil, e, fmt.Errorf("store %q: this binary was built without FoundationDB; "+
			"\"make build-fdb\" builds one with it where FoundationDB's client library is installed (see docs/operations.md)",
			u.Redacted())
	case u.Scheme == "":
		return nil, e, fmt.Errorf("store %q: a store is a URL such as pebble:///var/lib/settee", rawURL)
	default:
		return nil, e, fmt.Errorf("store %q: unknown engine %q, this binary has %s",
			rawURL, u.Scheme, strings.Join(Engines(), ", "))
	}
}
