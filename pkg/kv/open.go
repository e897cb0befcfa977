package kv

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Opener opens the store at a URL.
type Opener func(ctx context.Context, u *url.URL, opts Options) (Database, error)

// engines has an Opener for each URL scheme.
var engines sync.Map

// Register registers an engine under a URL scheme. The init function of the engine's package calls it. It panics if the
// scheme is taken.
func Register(scheme string, open Opener) {
	if _, taken := engines.LoadOrStore(scheme, open); taken {
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
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("store %q is not a URL: %w", rawURL, err)
	}
	open, ok := engines.Load(u.Scheme)
	switch {
	case ok:
		return open.(Opener)(ctx, u, opts)
	case u.Scheme == "fdb":
		return nil, fmt.Errorf("store %q: this binary was built without FoundationDB; "+
			"\"make build-fdb\" builds one with it where FoundationDB's client library is installed (see docs/operations.md)",
			u.Redacted())
	case u.Scheme == "":
		return nil, fmt.Errorf("store %q: a store is a URL such as pebble:///var/lib/settee", rawURL)
	default:
		return nil, fmt.Errorf("store %q: unknown engine %q, this binary has %s",
			rawURL, u.Scheme, strings.Join(Engines(), ", "))
	}
}
