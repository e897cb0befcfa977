// Package costtest measures what work costs, for tests of inputs that someone else has
// chosen: no input may cost more than its length deserves.
//
// What is measured is the whole process: tests that use it are not parallel. It is memory
// that was allocated, not memory in use, and processor time, not time: neither depends on
// what else the machine does. Processor time is counted in units of a work that is done on
// the same machine by the same build, so that no slow machine and no race detector makes a
// test fail.
package costtest

import (
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Cost is what some work took.
type Cost struct {
	Allocated int           // bytes, those that were given back included
	Processor time.Duration // of all threads; 0 where the system does not say
}

// Of returns what f took.
func Of(f func()) Cost {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := processorTime()
	f()
	took := processorTime() - began
	runtime.ReadMemStats(&after)
	return Cost{int(after.TotalAlloc - before.TotalAlloc), took}
}

// Bound is what work on an input may cost. Processor time is not bounded if Units and BytesPerUnit are both 0.
type Bound struct {
	Memory        int // bytes, whatever the input
	MemoryPerByte int // more, for each byte of it
	Units         int // of processor time, whatever the input
	BytesPerUnit  int // of the input that may take one more; 0 for none
}

// Memory returns the bound of work that may allocate so many bytes for each byte of its input, and 256 KiB more: for
// buffers, for errors, which quote a part of the input at most, and for what else goes on in the process, such as the
// exchange with go test in a fuzz test.
func Memory(perByte int) Bound { return Bound{Memory: 256 << 10, MemoryPerByte: perByte} }

// Unit is the processor time of a work that takes some hundredths of a second: to match an
// expression of 400 instructions with 4,000 bytes.
var Unit = sync.OnceValue(func() time.Duration {
	expr, text := regexp.MustCompile(`[ab]{400}x`), strings.Repeat("ab", 2000)
	return Of(func() { expr.MatchString(text) }).Processor
})

// Check fails the test if f costs more than the bound. input is the length in bytes of what f works on.
func (b Bound) Check(t testing.TB, input int, f func()) Cost {
	t.Helper()
	timed := b.Units > 0 || b.BytesPerUnit > 0
	var unit time.Duration
	if timed {
		unit = Unit() // before, so that it is not part of the cost
	}
	cost := Of(f)
	if most := b.Memory + b.MemoryPerByte*input; cost.Allocated > most {
		t.Fatalf("an input of %d bytes made for %d bytes of memory: %d are allowed", input, cost.Allocated, most)
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
