package lab

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Meter reads the processor time of this program, of the machine and of some parties, such as a node.
type Meter []Party

// Party is one or more processes whose processor time is told apart.
type Party struct {
	Name string
	Time func() (time.Duration, error)
}

// Used is the length of a measurement and the processor time in it, in seconds.
type Used struct {
	Seconds float64
	parties []string
	of      []float64 // by party; the last two are this program and all other processes of the machine
}

// Measure returns what is used while f runs.
func (m Meter) Measure(f func() error) (u Used, err error) {
	all := append(slices.Clone(m), Party{"this program", ownTime}, Party{"others", machineTime})
	before, began := make([]time.Duration, len(all)), time.Now()
	for i, party := range all {
		if before[i], err = party.Time(); err != nil {
			return u, err
		}
	}
	if err := f(); err != nil {
		return u, err
	}
	u.Seconds = time.Since(began).Seconds()
	told := 0.0 // what is told apart
	for i, party := range all {
		until, err := party.Time()
		if err != nil {
			return u, err
		}
		used := (until - before[i]).Seconds()
		if i == len(all)-1 {
			used -= told
		}
		used = max(0, used) // a party that was replaced begins at 0
		told += used
		u.parties, u.of = append(u.parties, party.Name), append(u.of, used)
	}
	return u, nil
}

// ownTime returns the processor time of this program.
func ownTime() (time.Duration, error) {
	var own syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &own)
	return time.Duration(own.Utime.Nano() + own.Stime.Nano()), err
}

// Of returns the processor time of a party, by its number.
func (u Used) Of(party int) float64 { return u.of[party] }

// Cores returns the part of a processor that a party, by its number, has used on average.
func (u Used) Cores(party int) float64 { return u.of[party] / u.Seconds }

// String returns the parts of a processor.
func (u Used) String() string {
	parts := make([]string, len(u.of))
	for i, name := range u.parties {
		parts[i] = fmt.Sprintf("%s %.1f %%", name, 100*u.Cores(i))
	}
	return strings.Join(parts, ", ")
}

// busy is the part of the processors from which on they bound what is done.
const busy = 0.9

// Bound returns what bounded a rate.
func (u Used) Bound() string {
	sum := 0.0
	for _, used := range u.of {
		sum += used
	}
	if sum >= busy*u.Seconds*float64(runtime.NumCPU()) {
		return "the processors of the machine"
	}
	return "something other than processors, such as waits for stores and endpoints, or max_jobs"
}

// machineTime returns the processor time that all processes of the machine have used.
func machineTime() (time.Duration, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	stat, err := proc.Stat()
	used := stat.CPUTotal
	return time.Duration((used.User + used.Nice + used.System + used.IRQ + used.SoftIRQ) * float64(time.Second)), err
}
