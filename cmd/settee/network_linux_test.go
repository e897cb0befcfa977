package main

import (
	"testing"

	"settee/internal/netns"
)

// network is four hosts on a switch, which all reach each other. The switch is the store's host. Each has an IPv4 and
// an IPv6 address, and a link-local one.
type network struct {
	store, outside, frontend, replication *netns.Namespace
}

// addresses of the hosts of a network.
var (
	storeHost       = host{"10.84.0.1", "fd84::1", "169.254.84.1"}
	outsideHost     = host{"10.84.0.2", "fd84::2", "169.254.84.2"}
	frontendHost    = host{"10.84.0.3", "fd84::3", "169.254.84.3"}
	replicationHost = host{"10.84.0.4", "fd84::4", "169.254.84.4"}
)

type host struct{ four, six, local string }

// newNetwork creates a network. If it cannot, lacks is the reason.
func newNetwork(t *testing.T) (n *network, lacks string) {
	n = new(network)
	for _, of := range []struct {
		to   **netns.Namespace
		name string
		host host
	}{
		{&n.store, "store", storeHost}, {&n.outside, "outside", outsideHost},
		{&n.frontend, "frontend", frontendHost}, {&n.replication, "replication", replicationHost},
	} {
		space, err := netns.New(t, of.name)
		if err != nil {
			return nil, err.Error()
		}
		*of.to = space
		if of.name == "store" {
			space.Run("", "ip", "link", "add", "eth0", "type", "bridge")
		} else {
			space.Run("", "ip", "link", "add", "eth0", "type", "veth", "peer", "name", of.name, "netns", n.store.Path())
			n.store.Run("", "ip", "link", "set", of.name, "master", "eth0", "up")
		}
		space.Run("", "ip", "link", "set", "eth0", "up")
		space.Run("", "ip", "address", "add", of.host.four+"/24", "dev", "eth0")
		space.Run("", "ip", "address", "add", of.host.local+"/16", "dev", "eth0")
		space.Run("", "ip", "address", "add", of.host.six+"/64", "dev", "eth0", "nodad")
	}
	return n, ""
}
