package lab

import (
	"fmt"
	"runtime"
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

// moment is a moment, and the processor time that was used until then.
type moment struct {
	at  time.Time
	of  []time.Duration // by party, the last one this program
	all time.Duration   // of the machine
}

// Used is the length of a measurement and the processor time in it, in seconds.
type Used struct {
	Seconds float64
	parties []string
	of      []float64 // by party; the last two are this program and all other processes of the machine
}

// now reads what was used until now.
func (m Meter) now() (now moment, err error) {
	now = moment{at: time.Now(), of: make([]time.Duration, len(m)+1)}
	for i, party := range m {
		if now.of[i], err = party.Time(); err != nil {
			return now, err
		}
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return now, err
	}
	now.of[len(m)] = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	now.all, err = machineTime()
	return now, err
}

// Measure returns what is used while f runs.
func (m Meter) Measure(f func() error) (u Used, err error) {
	before, err := m.now()
	if err != nil {
		return u, err
	}
	if err := f(); err != nil {
		return u, err
	}
	now, err := m.now()
	u.Seconds = now.at.Sub(before.at).Seconds()
	others := (now.all - before.all).Seconds()
	for i, until := range now.of {
		used := max(0, (until - before.of[i]).Seconds()) // a party that was replaced begins at 0
		others -= used
		u.of = append(u.of, used)
	}
	u.of = append(u.of, max(0, others))
	for _, party := range m {
		u.parties = append(u.parties, party.Name)
	}
	u.parties = append(u.parties, "this program", "others")
	return u, err
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
