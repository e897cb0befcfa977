package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// errNoOutbound is the error of an outbound connection on a node that has only the role api_frontend.
var errNoOutbound = errors.New("this node has only the role api_frontend, and connects only to its store")

// refuseOutbound makes the default ways to the network fail with errNoOutbound for the whole process: net/http's
// default client and transport, and the resolver that every dialer uses.
//
// It is the second of three barriers. The first is the linter, which refuses code that dials in the packages of a
// frontend. The third is the firewall, which allows only connections to the store. Connections to FoundationDB are not
// affected, because its client library makes them. Traces, if the operator asks for them, have a client of their own
// (package tracing).
func refuseOutbound() {
	refuse := func(_ context.Context, network, address string) (net.Conn, error) {
		return nil, fmt.Errorf("connecting to %s (%s): %w", address, network, errNoOutbound)
	}
	// Clones of the default transport fail too.
	http.DefaultTransport = &http.Transport{DialContext: refuse, DialTLSContext: refuse}
	http.DefaultClient = &http.Client{}
	// PreferGo, because the C library's resolver ignores Dial.
	net.DefaultResolver = &net.Resolver{PreferGo: true, StrictErrors: true, Dial: refuse}
}
