// Package bubbletest runs tests in bubbles of testing/synctest, where time passes only while all goroutines wait.
package bubbletest

import (
	"testing"
	"testing/synctest"
)

// Test runs a parallel test in a bubble.
func Test(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// Run runs a parallel subtest in a bubble.
func Run(t *testing.T, name string, test func(t *testing.T)) bool {
	t.Helper()
	return t.Run(name, func(t *testing.T) { Test(t, test) })
}
