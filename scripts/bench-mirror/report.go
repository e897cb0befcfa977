package main

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"settee/scripts/internal/lab"
)

// report is what was measured. All times are in seconds.
type report struct {
	Settee    string    `json:"settee"`
	CouchDB   string    `json:"couchdb"`
	Databases int       `json:"databases"`
	Docs      int       `json:"docs"`
	Starts    int       `json:"mirror_starts"`
	Mirror    []used    `json:"mirror"`
	Loop      []used    `json:"loop"`
	New       []float64 `json:"new"`
}

// used is the length of a measurement, and the processor time in it.
type used struct {
	Seconds float64 `json:"seconds"`
	Node    float64 `json:"node"`
	Source  float64 `json:"source"`
	Target  float64 `json:"target"`
	Load    float64 `json:"load"`   // of this process
	Others  float64 `json:"others"` // of all other processes of the machine
}

// usage is the processor time that was used until a moment.
type usage struct {
	at                             time.Time
	node, source, target, own, all time.Duration
}

func (b *bench) use() (u usage, err error) {
	u.at = time.Now()
	for _, one := range []struct {
		of   func() (time.Duration, error)
		into *time.Duration
	}{
		{b.node.Processor, &u.node}, {b.source.Processor, &u.source}, {b.target.Processor, &u.target}, {lab.MachineTime, &u.all},
	} {
		if *one.into, err = one.of(); err != nil {
			return u, err
		}
	}
	var own syscall.Rusage
	err = syscall.Getrusage(syscall.RUSAGE_SELF, &own)
	u.own = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	return u, err
}

// since returns what was used since a moment.
func (b *bench) since(before usage) (used, error) {
	now, err := b.use()
	u := used{
		Seconds: now.at.Sub(before.at).Seconds(), Node: (now.node - before.node).Seconds(),
		Source: (now.source - before.source).Seconds(), Target: (now.target - before.target).Seconds(),
		Load: (now.own - before.own).Seconds(),
	}
	u.Others = max(0, (now.all-before.all).Seconds()-u.Node-u.Source-u.Target-u.Load)
	return u, err
}

// String returns the shares of a core.
func (u used) String() string {
	share := func(t float64) float64 { return 100 * t / u.Seconds }
	return fmt.Sprintf("node %.0f %%, source %.0f %%, target %.0f %%, this program %.0f %%, others %.0f %%",
		share(u.Node), share(u.Source), share(u.Target), share(u.Load), share(u.Others))
}

// median returns the median of some values, the greater one of two, or 0 if there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func seconds(all []used) []float64 {
	list := make([]float64, len(all))
	for i, u := range all {
		list[i] = u.Seconds
	}
	return list
}

// table prints the report for people.
func (r *report) table(w io.Writer) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "\n%s, from %s to another one, on %d processors: %d databases of %d documents, mirror_starts %d\n\n",
		r.Settee, r.CouchDB, runtime.NumCPU(), r.Databases, r.Docs, r.Starts)
	rows := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(what, target, format string, values ...any) {
		_, _ = fmt.Fprintf(rows, "%s\t%s\t"+format+"\n", append([]any{what, target}, values...)...) // into memory
	}
	row("what", "target", "measured")
	for _, way := range []struct {
		what string
		used []used
	}{{"a mirror copies all databases", r.Mirror}, {"a loop of _replicate, by CouchDB", r.Loop}} {
		if len(way.used) == 0 {
			continue
		}
		row(way.what, "", "%.1f s (%.1f databases/s)", median(seconds(way.used)), float64(r.Databases)/median(seconds(way.used)))
		for _, u := range way.used {
			row("  processor, of a core", "", "%s; %.1f s", u, u.Seconds)
		}
	}
	if len(r.Mirror) > 0 && len(r.Loop) > 0 {
		row("the mirror's time, of the loop's", "0.5", "%.2f", median(seconds(r.Mirror))/median(seconds(r.Loop)))
	}
	if len(r.New) > 0 {
		row("first document of a new database: at the target", "median 3 s", "median %.2f s, at most %.2f; %d databases",
			median(r.New), slices.Max(r.New), len(r.New))
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	_, err := text.WriteTo(w)
	return err
}
