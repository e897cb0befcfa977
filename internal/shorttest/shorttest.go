// Package shorttest leaves tests out of make quick, which sets -test.short: those that start servers, browsers or other
// programs, and those that take more than about a second.
package shorttest

import "testing"

// Skip skips a test if -test.short is set. What starts a program for tests calls it, so these tests need no mark of
// their own.
func Skip(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("make quick leaves it out")
	}
}
