package main

import (
	"context"
	"math"
	"math/bits"
	"os"
	"runtime/debug"
	metric "runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"settee/pkg/config"
	"settee/pkg/retry"
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
	// busyGarbage and quietGarbage are GOGC of a node: how much garbage there may be before it is collected, in percent of
	// the memory in use. Most of that holds jobs that wait for changes, so half of Go's default saves more memory than it
	// costs processor time, and less is enough while little is allocated.
	busyGarbage, quietGarbage = 50, 20
	// garbageInterval is the time after which the choice between them is made again, and quietCollections how many collections
	// of garbage a quiet node may need in that time. Runs that wait report at the same moments, every 20 seconds by default:
	// in a shorter interval the node would be quiet and busy by turns.
	garbageInterval  = 20 * time.Second
	quietCollections = 4
	// Many jobs start if so many more run than garbageInterval before, and more by one in startsPart. What a few leave behind
	// does not matter.
	manyStarts, startsPart = 100, 8
	// jobMemory is the number of bytes that a running job may use with the default settings (docs/capacity.md).
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
	n.running.Store(int64(jobs))
	room := int64(0) // jobs
	if jobs > 0 {
		room = 1 << bits.Len(uint(jobs-1))
	}
	limit := nodeMemory(n.cfg) + room*jobMemory
	before := n.memoryLimit.Swap(limit)
	if limit != before && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	if limit > before {
		n.setGarbage(quietGarbage) // until boundGarbage looks, because jobs start
	}
}

// setGarbage sets GOGC, unless the environment does. Setting it stops all goroutines for a moment.
func (n *node) setGarbage(percent int) {
	if n.garbage.Swap(int64(percent)) != int64(percent) && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// heldMemory returns the memory that Go has from the system, in bytes. It is rounded, so that it does not change all the time.
func heldMemory() int64 {
	values := []metric.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metric.Read(values)
	const million = 1_000_000
	return int64((values[0].Value.Uint64() - values[1].Value.Uint64()) / million * million)
}

// boundGarbage chooses GOGC every garbageInterval. When many jobs have started, the node returns the memory to the system that
// their start has taken and that they do not keep. Go by itself does that in the course of minutes, and keeps a tenth of the
// heap.
func (n *node) boundGarbage(ctx context.Context) {
	allocated, jobs, started := allocatedMemory().allocated, n.running.Load(), false
	for retry.Wait(ctx, garbageInterval) == nil {
		now, running := allocatedMemory(), n.running.Load()
		starting := manyStart(jobs, running)
		n.setGarbage(garbagePercent(now.allocated-allocated, now.used, starting))
		if started && !starting {
			debug.FreeOSMemory()
		}
		allocated, jobs, started = now.allocated, running, starting
	}
}

// manyStart reports whether many jobs start, if before jobs ran garbageInterval ago, and now jobs run.
func manyStart(before, now int64) bool { return now-before >= max(manyStarts, before/startsPart) }

// garbagePercent returns GOGC for a node that has allocated so many bytes in garbageInterval and uses so many. With
// quietGarbage a node collects its garbage at most quietCollections times in that time.
//
// While many jobs start, it is quietGarbage, too. What they allocate to wait stays, and much garbage among it would leave
// holes, which take memory for as long as the jobs wait. The garbage that comes directly after the start would do the same.
func garbagePercent(allocated, used uint64, starting bool) int {
	if starting || allocated < used/100*quietGarbage*quietCollections {
		return quietGarbage
	}
	return busyGarbage
}

// allocation is how much memory a process has allocated since its start, and how much of that it used after the last
// collection of garbage, with what it scanned of the stacks, in bytes: GOGC is a part of these.
type allocation struct{ allocated, used uint64 }

func allocatedMemory() allocation {
	samples := []metric.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
	}
	metric.Read(samples)
	return allocation{samples[0].Value.Uint64(), samples[1].Value.Uint64() + samples[2].Value.Uint64()}
}
