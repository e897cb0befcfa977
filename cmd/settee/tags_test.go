//go:build !fdb

package main

// The build tags of this test, and the engines that they bring.
const (
	tags    = ""
	engines = "mem, pebble"
)
