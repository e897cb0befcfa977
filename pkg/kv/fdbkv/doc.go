//go:build fdb

// Package fdbkv is the kv engine for several nodes: a thin adapter over FoundationDB's client. It needs the build tag
// fdb and FoundationDB's C library, 7.3 or later. Its scheme is fdb, and the rest of the URL is a cluster file:
//
//	fdb:///etc/foundationdb/fdb.cluster?prefix=settee&max_watches=20000
//	fdb:fdb.cluster    a file below the working directory
//	fdb:               the default of FoundationDB's own tools
//
// A store is the keys of the cluster that begin with its prefix. The engine adds the prefix to each key and removes it
// again, and ranges stay within it. Any number of stores can share a cluster if no prefix begins with another. Without
// a prefix a store is all keys below \xff. The prefix counts towards the size of a key: the longest key has
// [kv.MaxKeySize] bytes less the prefix.
//
// # Differences from other engines
//
// A range read conflicts with writes to all that was fetched, which is up to two batches more than was taken from its
// result. A watch conflicts like a read of its key, if its transaction writes.
//
// The client of a process is one thread, which starts with the first store and runs until the process ends. Stores on
// one cluster file share a connection and its max_watches. TLS, tracing and further client libraries are configured by
// FoundationDB's environment variables FDB_TLS_* and FDB_NETWORK_OPTION_*.
package fdbkv
