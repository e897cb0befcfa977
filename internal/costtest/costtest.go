// Package costtest bounds the cost of work on foreign inputs, in proportion to their length.
//
// It measures allocated memory, not memory in use, and processor time, not elapsed time, so that
// other load on the machine does not matter. It measures the whole process, so tests that use it
// must not be parallel. Processor time is counted in units of a fixed work on the same machine
// and in the same build, so that a slow machine or the race detector makes no difference.
package costtest

import (
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Cost is the cost of some work.
type Cost struct {
	Allocated int           // bytes, including those that were freed
	Processor time.Duration // of all threads; 0 if the system does not report it
}

// Of returns the cost of f.
func Of(f func()) Cost {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := processorTime()
	f()
	took := processorTime() - began
	runtime.ReadMemStats(&after)
	return Cost{int(after.TotalAlloc - before.TotalAlloc), took}
}

// Bound is the highest cost allowed for an input. Processor time is not bounded if Units and
// BytesPerUnit are both 0.
type Bound struct {
	Memory        int // bytes for any input
	MemoryPerByte int // more bytes for each byte of the input
	Units         int // of processor time for any input
	BytesPerUnit  int // of the input for one more unit; 0 for no further units
}

// Memory returns the bound of work that may allocate perByte bytes for each byte of its input,
// and 256 KiB more: for buffers, for errors, which quote at most a part of the input, and for the
// rest of the process, such as the communication with go test in a fuzz test.
func Memory(perByte int) Bound { return Bound{Memory: 256 << 10, MemoryPerByte: perByte} }

// Unit is the processor time of some work that takes a few hundredths of a second: matching an
// expression of 400 instructions with 4,000 bytes.
var Unit = sync.OnceValue(func() time.Duration {
	expr, text := regexp.MustCompile(`[ab]{400}x`), strings.Repeat("ab", 2000)
	return Of(func() { expr.MatchString(text) }).Processor
})

// Check fails the test if f costs more than the bound. input is the length in bytes of f's input.
func (b Bound) Check(t testing.TB, input int, f func()) Cost {
	t.Helper()
	timed := b.Units > 0 || b.BytesPerUnit > 0
	var unit time.Duration
	if timed {
		unit = Unit() // before, so that it is not part of the cost
	}
	cost := Of(f)
	if most := b.Memory + b.MemoryPerByte*input; cost.Allocated > most {
		t.Fatalf("an input of %d bytes allocated %d bytes: %d are allowed", input, cost.Allocated, most)
	}
	units := b.Units
	if b.BytesPerUnit > 0 {
		units += input / b.BytesPerUnit
	}
	if most := unit * time.Duration(units); timed && cost.Processor > most {
		t.Fatalf("an input of %d bytes took %s of processor time, %s are allowed", input, cost.Processor, most)
	}
	return cost
}
