// Package budget bounds in tests what reading foreign bytes costs.
package budget

import (
	"runtime"
	"testing"
)

// usual is what may be allocated for any input: buffers, and errors, which quote at most a part of it.
const usual = 128 << 10

// Allocations fails the test if f allocates more than perByte bytes for each byte of its input, and a fixed amount
// besides. What was given back counts, too: that much work was done. Nothing else may run in the process.
func Allocations(t testing.TB, input, perByte int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(usual+perByte*input); took > most {
		t.Errorf("%d bytes were allocated for an input of %d, of which %d are allowed", took, input, most)
	}
}
