package couchtest

import (
	"runtime"
	"runtime/metrics"
)

// Memory is how many bytes the process has in use.
type Memory struct {
	Heap   uint64 // objects, with those that are garbage and not collected yet
	Live   uint64 // objects that the last collection left
	Stacks uint64 // of goroutines
	Total  uint64 // all that it has of the system, but for what is free
}

// ReadMemory reads it as it is.
func ReadMemory() Memory {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) uint64 { return samples[i].Value.Uint64() }
	return Memory{Heap: value(0), Live: value(1), Stacks: value(2), Total: value(3) - value(4) - value(5)}
}

// SettledMemory reads it when all that is not needed has been given back.
func SettledMemory() Memory {
	// What pools hold goes with the second collection, and each halves a stack that is too large.
	for range 5 {
		runtime.GC()
	}
	return ReadMemory()
}
