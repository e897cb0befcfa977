package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// errNoOutbound is why a node that only accepts requests opens no connection.
var errNoOutbound = errors.New("this node has the role api_frontend alone, and opens no connection but those to its store")

// refuseOutbound takes from the process what code reaches the network with unless it makes
// something of its own: net/http's default client and transport, and the resolver that
// every dialer and every name needs.
//
// It is the second of three: the linter keeps what dials out of the packages of a
// frontend, and the firewall knows only of the store. The store's connections are not
// affected. Those to FoundationDB are its own library's.
func refuseOutbound() {
	refuse := func(_ context.Context, network, address string) (net.Conn, error) {
		return nil, fmt.Errorf("connecting to %s (%s): %w", address, network, errNoOutbound)
	}
	// Clones of it, which is how code makes a transport of its own, refuse as well.
	http.DefaultTransport = &http.Transport{DialContext: refuse, DialTLSContext: refuse}
	http.DefaultClient = &http.Client{}
	// Not the C library's, which would ask elsewhere.
	net.DefaultResolver = &net.Resolver{PreferGo: true, StrictErrors: true, Dial: refuse}
}
