package main

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"time"
)

// report is the results of all turns.
type report struct {
	jobs      int
	sync      time.Duration
	systems   []system   // River first
	cycles    [][]cycles // by load and system
	latencies []latency  // by system
}

func (r *report) print(w io.Writer) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "\n%d jobs in a turn, added by %d clients; %d processors; a sync of a file takes %s ms\n",
		r.jobs, clients, runtime.NumCPU(), milliseconds(r.sync))
	for _, s := range r.systems {
		fmt.Fprintf(&text, "%s: %s\n", s.name, s.about)
	}
	r.printCycles(&text)
	r.printLatencies(&text)
	_, err := text.WriteTo(w)
	return err
}

const cyclesLayout = "%-6s %7s %8s  %-24s %9s %8s %9s %9s %10s %10s %10s\n"

func (r *report) printCycles(w *bytes.Buffer) {
	fmt.Fprint(w, `
A no-op cycle is insert, start and finish; all jobs are inserted before any starts. A mixed cycle is insert, start,
update and finish; jobs are inserted while others run. Processor time is that of all processes. Plain commits write a
key each, as many at a time as there are workers.

`)
	fmt.Fprintf(w, cyclesLayout, "", "jobs per", "", "", "inserts", "runs", "cycles", "x River", "processor", "plain", "cycles per")
	fmt.Fprintf(w, cyclesLayout, "cycle", "insert", "workers", "system", "per s", "per s", "per s", "", "µs/cycle", "commits/s", "commit")
	for i, l := range loads {
		fmt.Fprintln(w)
		river := r.cycles[i][0].all.perSecond(r.jobs)
		for j, c := range r.cycles[i] {
			rate := c.all.perSecond(r.jobs)
			fmt.Fprintf(w, cyclesLayout, l.cycle(), fmt.Sprint(l.batch), fmt.Sprint(l.workers), r.systems[j].name,
				unless(l.mixed, "%.0f", c.add.perSecond(r.jobs)), unless(l.mixed, "%.0f", c.run.perSecond(r.jobs)),
				fmt.Sprintf("%.0f", rate), fmt.Sprintf("%.2f", rate/river),
				fmt.Sprintf("%.0f", c.all.processor.Seconds()*1e6/float64(r.jobs)),
				unless(c.commits == 0, "%.0f", c.commits), unless(c.commits == 0, "%.3f", rate/c.commits))
		}
	}
}

func (r *report) printLatencies(w *bytes.Buffer) {
	fmt.Fprintf(w, "\nFrom insert to start, in milliseconds: %d jobs a second, added by one, %d workers\n\n", latencyRate, latencyWorkers)
	const layout = "%-24s %8s %8s\n"
	fmt.Fprintf(w, layout, "system", "median", "p99")
	for i, l := range r.latencies {
		fmt.Fprintf(w, layout, r.systems[i].name, milliseconds(l.median), milliseconds(l.p99))
	}
}

// unless formats a number, or returns a dash if there is none.
func unless(none bool, format string, x float64) string {
	if none {
		return "-"
	}
	return fmt.Sprintf(format, x)
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()*1e3) }
