package kv

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Opener opens the store that a URL names.
type Opener func(ctx context.Context, u *url.URL) (Database, error)

// engines are the openers by URL scheme. It is written by the init functions of
// the engines and only read after that.
var engines = map[string]Opener{}

// Register makes an engine known under a URL scheme. It is called by the init
// function of the engine's package and panics when the scheme is taken.
func Register(scheme string, open Opener) {
	if _, taken := engines[scheme]; taken {
		panic("kv: the scheme " + scheme + " is registered twice")
	}
	engines[scheme] = open
}

// Engines returns the schemes of the engines in this binary, sorted.
func Engines() []string { return slices.Sorted(maps.Keys(engines)) }

// Open opens the store that rawURL names, such as pebble:///var/lib/settee,
// fdb:///etc/foundationdb/fdb.cluster?prefix=settee or mem:.
func Open(ctx context.Context, rawURL string) (Database, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("store %q is not a URL: %w", rawURL, err)
	}
	open, ok := engines[u.Scheme]
	switch {
	case ok:
		return open(ctx, u)
	case u.Scheme == "fdb":
		return nil, fmt.Errorf("store %q: this binary was built without FoundationDB; "+
			"\"make build-fdb\" builds one with it where FoundationDB's client library is installed (see README.md)",
			u.Redacted())
	case u.Scheme == "":
		return nil, fmt.Errorf("store %q: a store is a URL such as pebble:///var/lib/settee", rawURL)
	default:
		return nil, fmt.Errorf("store %q: unknown engine %q, this binary has %s",
			rawURL, u.Scheme, strings.Join(Engines(), ", "))
	}
}
