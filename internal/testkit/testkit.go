// Package testkit leaves out tests that would take too long, and has what tests of several packages need: bubbles,
// journals and the module's folder.
package testkit

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// SkipShort skips a test if -test.short is set, as make quick does. It is for tests that start servers, browsers or other
// programs, and for those that take more than about a second. What starts a program for tests calls it, so these tests
// need no mark of their own.
func SkipShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("make quick leaves it out")
	}
}

// SkipRace skips a test while the race detector watches it. It is for tests in which one goroutine does nearly everything,
// or whose size is their point: the race detector would see nothing that it does not see in shorter ones. The
// continuous integration also runs the packages of these tests without the race detector.
func SkipRace(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("left out under the race detector")
	}
}

// SkipsCase reports whether a table of independent cases leaves out the one with an index, from 0: two thirds of them under the
// race detector. The continuous integration also runs the packages of these tests without it.
func SkipsCase(i int) bool { return Race && i%3 != 0 }

// Bubble runs a parallel test in a bubble of testing/synctest, where time passes only while all goroutines wait.
func Bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// RunBubble runs a parallel subtest in a bubble.
func RunBubble(t *testing.T, name string, test func(t *testing.T)) bool {
	t.Helper()
	return t.Run(name, func(t *testing.T) { Bubble(t, test) })
}

// MostInASecond returns the most of some times in any second.
func MostInASecond(times []time.Time) (most int) {
	times, first := slices.SortedFunc(slices.Values(times), time.Time.Compare), 0
	for i, at := range times {
		for at.Sub(times[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
