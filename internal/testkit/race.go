//go:build race

package testkit

// Race reports whether the race detector watches the tests, which makes them several times slower.
const Race = true
