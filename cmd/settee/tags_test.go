//go:build !fdb

package main

// The build tags of this test, and their engines.
const (
	tags    = ""
	engines = "mem, pebble"
)
