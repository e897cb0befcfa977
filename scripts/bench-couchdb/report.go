package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"

	"settee/scripts/internal/lab"
)

// result is what the pairs of a case measured.
type result struct {
	benchCase
	settee, couchDB []sample // by pair
}

// report is the results of all cases.
type report struct {
	server, settee string
	options        *options
	results        []result
}

// print writes the tables of the kinds that were measured.
func (r *report) print(w io.Writer) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "\n%s, and %s; pairs of turns: %d; processors: %d\n", r.settee, r.server, r.options.pairs, runtime.NumCPU())
	for _, table := range []struct {
		kind  kind
		print func(*bytes.Buffer, []result)
	}{{copies, printCopies}, {deliveries, printDeliveries}, {idling, printIdling}} {
		of := slices.DeleteFunc(slices.Clone(r.results), func(one result) bool { return one.kind != table.kind })
		if len(of) == 0 {
			continue
		}
		fmt.Fprintln(&text)
		table.print(&text, of)
		fmt.Fprintln(&text)
		for _, one := range of {
			fmt.Fprintf(&text, "%s: %s\n", one.name, one.about(r.options))
		}
	}
	_, err := text.WriteTo(w)
	return err
}

func printCopies(w *bytes.Buffer, results []result) {
	fmt.Fprint(w, `Copies. Times are in seconds. Processor is the processor time of the endpoints, which is all of CouchDB; own is that of
settee. Far cases are also compared with docs of the same system, if that was measured.

`)
	const layout = "%-17s %8s %8s  %-17s %9s %9s  %-17s %6s %5s %8s %8s %6s\n"
	fmt.Fprintf(w, layout, "", "settee", "CouchDB", "", "processor", "processor", "", "own", "", "settee", "CouchDB", "")
	fmt.Fprintf(w, layout, "case", "s", "s", "ratio", "settee", "CouchDB", "ratio", "s", "MiB", "x docs", "x docs", "resets")
	var near result
	for _, one := range results {
		if one.name == "docs" {
			near = one
		}
	}
	for _, one := range results {
		timesNear := func(all, near []sample) string {
			if one.trip == 0 {
				return "-"
			}
			return number(median(all, wall)/median(near, wall), 2)
		}
		fmt.Fprintf(w, layout, one.name, number(median(one.settee, wall), 2), number(median(one.couchDB, wall), 2),
			ratios(one, wall), number(median(one.settee, endpoints), 2), number(median(one.couchDB, endpoints), 2),
			ratios(one, endpoints), number(median(one.settee, own), 2), number(median(one.settee, mebibytes), 0),
			timesNear(one.settee, near.settee), timesNear(one.couchDB, near.couchDB), number(median(one.settee, resets), 0))
	}
}

func printDeliveries(w *bytes.Buffer, results []result) {
	fmt.Fprint(w, `Deliveries of continuous jobs: milliseconds from the answer to the write of a document until it is in the changes feed of
the target. Processor and own are milliseconds for each document.

`)
	const layout = "%-9s %-8s %8s  %-17s %8s  %-17s %9s %7s %5s\n"
	fmt.Fprintf(w, layout, "case", "system", "p50", "ratio", "p99", "ratio", "processor", "own", "MiB")
	for _, one := range results {
		each := func(value func(sample) float64) func(sample) float64 {
			return func(s sample) float64 { return 1000 * value(s) / float64(len(s.delays)) }
		}
		row := func(s system, all []sample, p50, p99 string) {
			fmt.Fprintf(w, layout, one.name, s, number(median(all, delay(50)), 1), p50, number(median(all, delay(99)), 1), p99,
				number(median(all, each(endpoints)), 2), number(median(all, each(own)), 2), number(median(all, mebibytes), 0))
		}
		row(settee, one.settee, ratios(one, delay(50)), ratios(one, delay(99)))
		row(couchDB, one.couchDB, "", "")
	}
}

func printIdling(w *bytes.Buffer, results []result) {
	fmt.Fprint(w, `Idle continuous jobs: percent of a processor. Processor is that of the endpoints, which is all of CouchDB; own is that of
settee.

`)
	const layout = "%-9s %9s %9s  %-17s %6s %5s\n"
	fmt.Fprintf(w, layout, "", "processor", "processor", "", "own", "")
	fmt.Fprintf(w, layout, "case", "settee", "CouchDB", "ratio", "%", "MiB")
	percent := func(value func(sample) float64) func(sample) float64 {
		return func(s sample) float64 { return 100 * value(s) / s.wall.Seconds() }
	}
	for _, one := range results {
		fmt.Fprintf(w, layout, one.name, number(median(one.settee, percent(endpoints)), 2),
			number(median(one.couchDB, percent(endpoints)), 2), ratios(one, percent(endpoints)),
			number(median(one.settee, percent(own)), 2), number(median(one.settee, mebibytes), 0))
	}
}

// The values of a sample.
func wall(s sample) float64      { return s.wall.Seconds() }
func endpoints(s sample) float64 { return s.endpoints.Seconds() }
func own(s sample) float64       { return s.own.Seconds() }
func mebibytes(s sample) float64 { return float64(s.memory) / (1 << 20) }
func resets(s sample) float64    { return float64(s.resets) }

// delay returns a function that returns a percentile of the delays, in milliseconds.
func delay(percent int) func(sample) float64 {
	return func(s sample) float64 {
		return lab.Percentile(slices.Sorted(slices.Values(s.delays)), percent).Seconds() * 1000
	}
}

// median returns the median of a value, or NaN if there is none. With an even number of samples it is the mean of the
// two in the middle.
func median(samples []sample, value func(sample) float64) float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, value(s))
	}
	return middle(all)
}

func middle(all []float64) float64 {
	n := len(all)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(all))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// ratios returns the median, the smallest and the largest ratio of the pairs, or a dash if the value is unknown.
func ratios(r result, value func(sample) float64) string {
	var all []float64
	for i := range r.settee {
		all = append(all, value(r.settee[i])/value(r.couchDB[i]))
	}
	text := number(middle(all), 2)
	if text != "-" {
		text += fmt.Sprintf(" (%.2f-%.2f)", slices.Min(all), slices.Max(all))
	}
	return text
}

// number formats a number, or returns a dash if it is unknown.
func number(x float64, digits int) string {
	if math.IsNaN(x) || math.IsInf(x, 0) || x == 0 {
		return "-"
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}

// size returns a number of bytes in words.
func size(n int) string {
	for _, unit := range []struct {
		bytes int
		name  string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= unit.bytes && n%unit.bytes == 0 {
			return fmt.Sprintf("%d %s", n/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
