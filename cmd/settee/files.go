package main

import (
	"strings"

	"settee/pkg/config"
)

// fileShares is how many files and connections each part of a node may have open. 0 means any number.
type fileShares struct {
	store     int // the tables that an embedded store keeps open
	endpoints int // connections to sources and targets
	clients   int // connections of clients
}

// What the other parts get when a process may have few files open.
const (
	// mostStoreFiles is Pebble's default, and leastStoreFiles the least that it takes.
	mostStoreFiles, leastStoreFiles = 1000, 64
	// mostReserve is for what is in no share: listeners, logs, files that are written, bodies in files, and certificates. It
	// is a part of the limit if that is low.
	mostReserve, reservePart = 64, 8
	// leastClients is the number of files for clients even if the limit is too low: a node needs some to answer requests.
	leastClients = 8
)

// sharesOf divides a limit of open files. The store cannot go on without files, and gets a quarter if it is embedded. Jobs get
// half if the node runs any. Clients get what is left, because only they can come in any number.
func sharesOf(limit int, embedded, replicates bool) (s fileShares) {
	if limit == 0 {
		return fileShares{}
	}
	left := limit - min(limit/reservePart, mostReserve)
	if embedded {
		s.store = min(max(limit/4, leastStoreFiles), mostStoreFiles)
		left -= s.store
	}
	if replicates {
		s.endpoints = endpointShare(limit)
		left -= s.endpoints
	}
	s.clients = max(left, leastClients)
	return s
}

// endpointShare returns how many connections to endpoints a process with this limit of open files may have.
func endpointShare(limit int) int { return limit / 2 }

// fileShares returns the shares of this node.
func (n *node) fileShares() fileShares {
	return sharesOf(openFiles(), strings.HasPrefix(config.Store.Get(n.cfg), "pebble:"), n.cfg.Roles().Replication)
}

// warnOfFewFiles warns if the limit of open files is the one that bounds clients.
func (n *node) warnOfFewFiles() {
	clients, wanted := n.fileShares().clients, config.MaxConnections.Get(n.cfg)
	if clients == 0 || clients >= wanted {
		return
	}
	n.log.Warn().Int("limit", openFiles()).Int("client_connections", clients).Int("max_connections", wanted).
		Msg("the limit of open files (ulimit -n) allows fewer client connections than [chttpd] max_connections: raise the limit, or lower the setting")
}
