//go:build fdb

package main

// The build tags of this test, and their engines.
const (
	tags    = "fdb"
	engines = "fdb, mem, pebble"
)
