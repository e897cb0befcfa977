package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// report is what a test has measured. Times are in seconds unless their names say something else.
type report struct {
	Settee      string    `json:"settee"`
	Endpoints   string    `json:"endpoints"`
	Load        string    `json:"load"` // what there was to do
	Cores       int       `json:"cores"`
	Added       float64   `json:"added"`   // the time until all jobs were added
	Started     float64   `json:"started"` // the time until all ran and had copied the first documents; 0 with -once
	Seconds     float64   `json:"seconds"` // the length of the window, in which the following was measured
	Processor   processor `json:"processor"`
	Memory      memory    `json:"memory"`
	Asked       float64   `json:"asked"`                // documents a second to be written
	Written     float64   `json:"written"`              // documents a second that were written
	Arrived     float64   `json:"arrived"`              // arrivals a second: one for each document and job that reads it
	JobsEnded   float64   `json:"jobs_ended,omitempty"` // a second, with -once
	Delay       *delays   `json:"delay_ms,omitempty"`
	Requests    float64   `json:"requests"`    // a second, to the endpoints
	Checkpoints float64   `json:"checkpoints"` // a second; 0 if the endpoints do not count them
	Backlog     int64     `json:"backlog"`     // arrivals that were due at the end of the window
	Drained     float64   `json:"drained"`     // the time until these had arrived
	Bound       string    `json:"bound"`       // what bounded the rate, if the node has fallen behind

	// From the beginning to the end of the test.
	Total   flow           `json:"total"`
	Lost    int64          `json:"lost"`  // arrivals that did not come
	Again   int64          `json:"again"` // documents that arrived more than once
	Jobs    map[string]int `json:"jobs"`  // by state, at the end
	Crashes int64          `json:"crashes"`
	Stops   int64          `json:"stops"` // runs that stopped, to go on later
}

// processor is processor time in the window.
type processor struct {
	Node      float64 `json:"node"`
	Endpoints float64 `json:"endpoints"` // 0 if it is unknown
	Load      float64 `json:"load"`      // of this process
	Others    float64 `json:"others"`    // of all other processes of the machine
}

// memory is the node's memory in mebibytes, and what takes it.
type memory struct {
	Max        float64 `json:"max"`  // the largest resident set since the node started
	Mean       float64 `json:"mean"` // resident set in the window
	Heap       float64 `json:"heap"` // Go's, at the end of the window
	Goroutines int64   `json:"goroutines"`
	Files      int64   `json:"files"` // open at the end of the window
}

// delays are percentiles, in milliseconds.
type delays struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// busy is the share of processors from which on they bound what is done.
const busy = 0.9

// complete adds what is known at the end.
func (r *report) complete(o *options, endpoints string, c counts) {
	r.Endpoints, r.Cores, r.Asked = endpoints, runtime.NumCPU(), o.rate
	r.Load = o.describe()
	r.Written, r.Arrived = float64(c.Window.Written)/c.Seconds, float64(c.Window.Arrived)/c.Seconds
	r.Total, r.Lost, r.Again, r.Backlog = c.Total, c.Total.Due-c.Total.Arrived, c.Again, c.Backlog
	if o.once {
		r.JobsEnded = float64(r.Jobs["completed"]+r.Jobs["failed"]) / r.Seconds
	}
	if c.Max > 0 {
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		r.Delay = &delays{ms(c.P50), ms(c.P90), ms(c.P99), ms(c.Max)}
	}
	r.Bound = r.bound(o, c)
}

// describe says what there is to do.
func (o *options) describe() string {
	kind := "continuous jobs"
	switch {
	case o.once:
		kind = "one-shot jobs"
	case o.every > 0:
		kind = "jobs every " + o.every.String()
	}
	text := fmt.Sprintf("%d %s in %d databases, max_jobs %d", o.databases*o.jobs, kind, o.databases, o.maxJobs)
	if o.sources < o.databases*o.jobs {
		text += fmt.Sprintf(", of %d sources", o.sources)
	}
	text += fmt.Sprintf("; at first %d documents in each source", o.docs)
	if !o.once {
		text += fmt.Sprintf(", then %g a second in all", o.rate)
	}
	return text + fmt.Sprintf("; %d bytes each", o.docSize)
}

// bound returns what bounded the rate, or nothing if the node has kept up.
func (r *report) bound(o *options, c counts) string {
	allowed := r.Cores
	if n := countCPUs(o.nodeCPUs); n > 0 {
		allowed = n
	}
	p := r.Processor
	asked := o.rate * c.Seconds
	short := asked - float64(c.Window.Written)
	due := float64(c.Window.Due) / c.Seconds
	switch {
	case !o.once && short > max(asked/20, 4*math.Sqrt(asked)): // more than chance
		return "the sources, which took too long for a write"
	case !o.once && float64(c.Backlog) <= due*(1+o.every.Seconds()):
		return "" // no more is under way than is written in a second, and a period
	case p.Node >= busy*r.Seconds*float64(allowed):
		return "the processors of the node"
	case p.Node+p.Endpoints+p.Load+p.Others >= busy*r.Seconds*float64(r.Cores):
		return "the processors of the machine"
	}
	return "something other than processors, such as waits for the store and the endpoints, or max_jobs"
}

// countCPUs returns the number of processors in a list such as 0,2-3, or 0 if that is empty or has another form.
func countCPUs(list string) int {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if isRange && err == nil {
			last, err = strconv.Atoi(to)
		}
		if err != nil || last < first {
			return 0
		}
		n += last - first + 1
	}
	return n
}

// table prints the report for people.
func (r *report) table(w io.Writer) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "\n%s, with %s, on %d processors\n%s\n\n", r.Settee, r.Endpoints, r.Cores, r.Load)
	rows := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(name, format string, values ...any) {
		_, _ = fmt.Fprintf(rows, "%s\t"+format+"\n", append([]any{name}, values...)...) // into memory
	}
	row("jobs added", "%.1f s", r.Added)
	if r.Started > 0 {
		row("jobs started", "%.1f s", r.Started)
	}
	row("measured", "%.1f s", r.Seconds)
	if r.JobsEnded > 0 {
		row("jobs ended", "%.1f/s", r.JobsEnded)
	}
	p := r.Processor
	row("processor of the node", "%.2f s, %.3f of a core", p.Node, p.Node/r.Seconds)
	row("  of the endpoints", "%s", cores(p.Endpoints, r.Seconds))
	row("  of this program", "%s", cores(p.Load, r.Seconds))
	row("  of all others", "%s", cores(p.Others, r.Seconds))
	if r.Arrived > 0 {
		row("  of the node, per arrival", "%.3f ms", 1000*p.Node/(r.Arrived*r.Seconds))
	}
	row("memory of the node", "%.0f MiB at most, %.0f MiB on average", r.Memory.Max, r.Memory.Mean)
	row("  Go heap, goroutines, files", "%.0f MiB, %d, %d", r.Memory.Heap, r.Memory.Goroutines, r.Memory.Files)
	if r.JobsEnded == 0 {
		row("documents written", "%.1f/s of %g/s", r.Written, r.Asked)
	}
	row("documents arrived", "%.1f/s", r.Arrived)
	if d := r.Delay; d != nil {
		row("  delay p50, p90, p99, max", "%.1f, %.1f, %.1f, %.1f ms", d.P50, d.P90, d.P99, d.Max)
	}
	if r.Backlog > 0 {
		row("  behind at the end", "%d, for %.1f s", r.Backlog, r.Drained)
	}
	if r.Bound != "" {
		row("  bounded by", "%s", r.Bound)
	}
	row("requests to the endpoints", "%.1f/s", r.Requests)
	row("checkpoints", "%.2f/s", r.Checkpoints)
	row("in all: documents written", "%d", r.Total.Written)
	row("  arrived", "%d of %d, %d lost, %d twice", r.Total.Arrived, r.Total.Due, r.Lost, r.Again)
	var states []string
	for _, state := range slices.Sorted(maps.Keys(r.Jobs)) {
		if r.Jobs[state] > 0 {
			states = append(states, fmt.Sprintf("%d %s", r.Jobs[state], state))
		}
	}
	row("  jobs", "%s; %d runs crashed, %d stopped to go on later", strings.Join(states, ", "), r.Crashes, r.Stops)
	if err := rows.Flush(); err != nil {
		return err
	}
	_, err := text.WriteTo(w)
	return err
}

// cores formats processor time.
func cores(used, seconds float64) string {
	if used == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f s, %.3f of a core", used, used/seconds)
}
