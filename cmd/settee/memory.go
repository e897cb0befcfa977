package main

import (
	"math"
	"math/bits"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"settee/pkg/config"
)

const (
	// machinePart is the part of the machine's or the container's memory that a node uses by default, and mostMemory the
	// most that it uses by default, in bytes.
	machinePart = 4
	mostMemory  = 1 << 30
	// clientPart is the part of a node's memory for client connections, requests and functions, and storePart the part for
	// the cache of an embedded store, up to fullCache bytes. What is left is for everything else, and for Go's garbage.
	clientPart = 4
	storePart  = 4
	// A cache of more than fullCache bytes is largePart of the memory, and at most mostCache bytes. A cache that is full stays so,
	// also if the node has nothing to do, and the system keeps the store's files in memory, too.
	fullCache = 128 << 20
	largePart = 8
	mostCache = 256 << 20
	// jobMemory is the number of bytes that a running job may use with the default settings (docs/operations.md).
	jobMemory = 128 << 20
)

// nodeMemory returns the memory that a node is to use without its running jobs, in bytes.
func nodeMemory(cfg *config.Config) int64 {
	if limit := config.MemoryLimit.Get(cfg); limit > 0 {
		return limit
	}
	return defaultMemory(machineMemory())
}

// defaultMemory returns the memory that a node is to use on a machine or in a container with so many bytes. 0 means that
// their number is unknown.
func defaultMemory(machine uint64) int64 {
	if machine == 0 || machine/machinePart > mostMemory {
		return mostMemory
	}
	return int64(machine / machinePart)
}

// machineMemory returns the memory of the container, or of the machine if it has less, in bytes. It returns 0 if neither is
// known.
func machineMemory() uint64 {
	least := uint64(math.MaxUint64)
	for _, read := range []memlimit.Provider{memlimit.FromCgroup, memlimit.FromSystem} {
		if bytes, err := read(); err == nil && bytes > 0 {
			least = min(least, bytes)
		}
	}
	if least == math.MaxUint64 {
		return 0
	}
	return least
}

// cacheBytes returns the size of the cache of an embedded store.
func cacheBytes(cfg *config.Config) int64 {
	memory := nodeMemory(cfg)
	return min(max(min(memory/storePart, fullCache), memory/largePart), mostCache)
}

// clientBytes returns the memory for client connections, requests and functions.
func clientBytes(cfg *config.Config) int64 { return nodeMemory(cfg) / clientPart }

// limitMemory sets Go's memory limit for a node that runs so many jobs, unless the environment sets it (GOMEMLIMIT). The
// limit makes the garbage collector work harder before the node has more than its memory. What jobs may use is added,
// because a limit below what is in use would take the processor. Setting the limit stops all goroutines for a moment, so it
// changes when the number of jobs has doubled or halved.
func (n *node) limitMemory(jobs int) {
	room := int64(0) // jobs
	if jobs > 0 {
		room = 1 << bits.Len(uint(jobs-1))
	}
	limit := nodeMemory(n.cfg) + room*jobMemory
	if n.memoryLimit.Swap(limit) != limit && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}
