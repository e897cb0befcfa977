//go:build fdb

// Package fdbkv is the kv engine for several nodes: a thin adapter over
// FoundationDB's own client. It needs the build tag fdb and FoundationDB's C
// library, 7.3 or later. Its scheme is fdb, and the rest of the URL is a cluster
// file:
//
//	fdb:///etc/foundationdb/fdb.cluster?prefix=settee&max_watches=20000
//	fdb:fdb.cluster    one below the working directory
//	fdb:               the one that FoundationDB's own tools would take
//
// A store is the keys of the cluster that begin with its prefix, and sees no
// others: the prefix is put before each key and taken off again, and neither
// ranges nor key selectors leave it. Any number of stores share a cluster when
// none of their prefixes begins with another one. Without a prefix a store is
// all keys below \xff. The prefix counts towards the size of a key: the longest
// has [kv.MaxKeySize] bytes less those of the prefix.
//
// # What is particular to this engine
//
// A serializable range read conflicts with writes to what has been fetched,
// which is up to two batches more than what has been taken from its result. A
// watch conflicts as a read of its key does when its transaction writes.
//
// The client of a process is one thread, which starts with the first store and
// lasts as long as the process. Stores on one cluster file share a connection,
// and with it max_watches. TLS, tracing and further client libraries are set up
// by the environment variables FDB_TLS_* and FDB_NETWORK_OPTION_* of
// FoundationDB's documentation.
package fdbkv
