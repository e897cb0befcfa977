package racetest

import "testing"

// Skip skips a test while the race detector watches it. It is for tests in which one goroutine does nearly everything,
// or whose size is their point: the race detector would see nothing that it does not see in shorter ones. The
// continuous integration also runs the packages of these tests without the race detector.
func Skip(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("left out under the race detector")
	}
}
