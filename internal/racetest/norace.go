//go:build !race

// Package racetest tells tests whether the race detector watches them, which makes them several times slower.
package racetest

// Enabled reports whether the race detector is on.
const Enabled = false
