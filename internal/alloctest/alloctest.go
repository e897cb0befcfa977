// Package alloctest measures what code allocates, for tests that assert a bound on it for each byte of input.
package alloctest

import "runtime"

// Bytes calls do and returns how many bytes the process has allocated meanwhile, whether they were freed or not. It is
// exact while nothing else runs: in a fuzz test, which never runs at the same time as other tests, or in one that is not
// parallel.
func Bytes(do func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}
