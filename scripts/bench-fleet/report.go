package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"settee/scripts/internal/lab"
)

// report is what was measured. A case that was not run is nil. Times are in seconds unless their names say something
// else, and memory is in megabytes.
type report struct {
	Settee    string   `json:"settee"`
	Endpoints string   `json:"endpoints"`
	Jobs      int      `json:"jobs"`
	Slots     int      `json:"slots"`
	Nodes     int      `json:"nodes,omitempty"`
	Few       *delays  `json:"few,omitempty"`
	First     *first   `json:"first,omitempty"`
	Parked    *rest    `json:"parked,omitempty"`
	Changes   *changes `json:"changes,omitempty"`
	Missing   string   `json:"missing,omitempty"` // documents of changes that did not arrive in time
	Burst     *changes `json:"burst,omitempty"`
	Roll      *rolling `json:"roll,omitempty"`
	Restart   *restart `json:"restart,omitempty"`
}

// used is the processor time of a case, and what the nodes did.
type used struct {
	Seconds   float64 `json:"seconds"` // the length of the case
	Node      float64 `json:"node"`
	Endpoints float64 `json:"endpoints"`
	Load      float64 `json:"load"`   // of this process
	Others    float64 `json:"others"` // of all other processes of the machine
	work
}

type first struct {
	Added float64 `json:"added"` // the time until all documents were written
	Rate  float64 `json:"rate"`  // jobs a second
	used
}

// rest is a node that has nothing to do.
type rest struct {
	Memory      float64 `json:"memory"`     // resident, at the end
	MaxMemory   float64 `json:"max_memory"` // since the node started
	Heap        float64 `json:"heap"`       // Go's
	Goroutines  int     `json:"goroutines"`
	Connections int     `json:"connections"` // that the node has opened
	used
}

type changes struct {
	Delay delays `json:"delay_ms"`
	used
}

type restart struct {
	Answers float64 `json:"answers"`
	Wakes   float64 `json:"wakes"` // the delay of the first change
	Rest    *rest   `json:"rest"`
}

// usage is the processor time that was used until a moment, and what the nodes had done.
type usage struct {
	at                        time.Time
	node, endpoints, own, all time.Duration
	done                      work
}

// begin returns what was used until now. Asking the nodes what they have done is not part of the case.
func (f *fleet) begin(ctx context.Context) (usage, error) {
	done, err := f.done(ctx)
	if err != nil {
		return usage{}, err
	}
	u, err := f.processors()
	u.done = done
	return u, err
}

// processors returns the processor time that was used until now.
func (f *fleet) processors() (u usage, err error) {
	u.at = time.Now()
	for _, node := range f.running() { // none with couchdb-alone
		of, err := node.Processor()
		if err != nil {
			return u, err
		}
		u.node += of
	}
	if u.endpoints, err = f.endpoints.Processor(); err != nil {
		return u, err
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return u, err
	}
	u.own = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	u.all, err = lab.MachineTime()
	return u, err
}

// since returns what was used since a moment.
func (f *fleet) since(ctx context.Context, before usage) (used, error) {
	now, err := f.processors()
	if err != nil {
		return used{}, err
	}
	u := used{
		Seconds: now.at.Sub(before.at).Seconds(), Node: (now.node - before.node).Seconds(),
		Endpoints: (now.endpoints - before.endpoints).Seconds(), Load: (now.own - before.own).Seconds(),
	}
	u.Others = max(0, (now.all-before.all).Seconds()-u.Node-u.Endpoints-u.Load)
	done, err := f.done(ctx)
	u.work = done.since(before.done)
	return u, err
}

// busy is the share of processors from which on they bound what is done.
const busy = 0.9

// bound returns what bounded a rate.
func (u used) bound() string {
	if u.Node+u.Endpoints+u.Load+u.Others >= busy*u.Seconds*float64(runtime.NumCPU()) {
		return "the processors of the machine"
	}
	return "something other than processors, such as waits for stores and endpoints, or max_jobs"
}

// shares returns the shares of a core.
func (u used) shares() string {
	share := func(t float64) float64 { return 100 * t / u.Seconds }
	return fmt.Sprintf("nodes %.1f %%, endpoints %.1f %%, this program %.1f %%, others %.1f %%",
		share(u.Node), share(u.Endpoints), share(u.Load), share(u.Others))
}

// table prints the report for people.
func (r *report) table(w io.Writer) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "\n%s, with databases of %s, on %d processors: %d jobs, %d slots",
		r.Settee, r.Endpoints, runtime.NumCPU(), r.Jobs, r.Slots)
	if r.Nodes > 0 {
		fmt.Fprintf(&text, " on each of %d nodes, with one store; memory and connections of the node that has most", r.Nodes)
	}
	text.WriteString("\n\n")
	rows := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(what, target, format string, values ...any) {
		_, _ = fmt.Fprintf(rows, "%s\t%s\t"+format+"\n", append([]any{what, target}, values...)...) // into memory
	}
	row("what", "target", "measured")
	if d := r.Few; d != nil {
		row("10 jobs on 500 slots: change to target", "as before parking: 13 ms", "%s", d)
	}
	if m := r.First; m != nil {
		row("documents into _replicator until all jobs have run", "", "%.1f jobs/s (%.1f s; documents written in %.1f s)", m.Rate, m.Seconds, m.Added)
		row("  bounded by", "", "%s", m.bound())
		m.used.rows(row)
	}
	if m := r.Parked; m != nil {
		m.rows(row, "all jobs parked")
	}
	if m := r.Changes; m != nil {
		row("changes in random databases: change to target", "median 300 ms, p99 2 s", "%s", m.Delay)
		if r.Missing != "" {
			row("  not arrived", "", "%s", r.Missing)
		}
		row("  rate", "100/s", "%.1f/s", float64(m.Delay.Documents)/m.Seconds)
		m.used.rows(row)
	}
	if m := r.Burst; m != nil {
		row("databases that change at once: all at their targets", "20 s for 1,000", "%d in %.1f s", m.Delay.Documents, m.Seconds)
		row("  delay", "", "%s", m.Delay)
		m.used.rows(row)
	}
	if m := r.Roll; m != nil {
		row("nodes restarted one after the other: each stopped in", "", "%.2f s at most", slices.Max(m.Stops))
		row("  a job stood still", "at most 3 s", "%s", strings.Replace(m.Still.String(), "documents", "times", 1))
		row("  in all, the job that did most", "", "%.2f s", m.InAll)
		row("  share of the time of all jobs", "5 %", "%.2f %%", 100*m.Share)
		row("  changes meanwhile: change to target", "", "%s", m.Change.Delay)
		row("  processor, of a core", "", "%s", m.Change.shares())
	}
	if m := r.Restart; m != nil {
		row("restart: answers after", "2 s", "%.2f s", m.Answers)
		row("  first change to target", "at once", "%.2f s", m.Wakes)
		if m.Rest != nil {
			m.Rest.rows(row, "  afterwards")
		}
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	_, err := text.WriteTo(w)
	return err
}

func (m *rest) rows(row func(what, target, format string, values ...any), title string) {
	row(title+": memory", "300 MB", "%.0f MB (%.0f MB at most; Go heap %.0f MB, %d goroutines)", m.Memory, m.MaxMemory, m.Heap, m.Goroutines)
	row("  processor, of a core", "2 %", "%.2f %% for %.0f s (%s)", 100*m.Node/m.Seconds, m.Seconds, m.shares())
	row("  connections", "50", "%d", m.Connections)
	row("  requests to the databases", "10/s", "%.2f/s", m.Requests/m.Seconds)
	row("  work", "no run without a change", "%s", m.work)
}

func (u used) rows(row func(what, target, format string, values ...any)) {
	row("  processor, of a core", "", "%s", u.shares())
	row("  work", "at most 2 empty claims for each job", "%.0f requests to the databases, %s", u.Requests, u.work)
}

// String returns the percentiles.
func (d delays) String() string {
	return fmt.Sprintf("median %.1f ms, p90 %.1f, p99 %.1f, at most %.1f; %d documents", d.P50, d.P90, d.P99, d.Max, d.Documents)
}
