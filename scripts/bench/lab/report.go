package lab

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what a scenario has measured: tables, each below the text that explains it.
type Report struct{ tables []table }

type table struct {
	text string
	rows [][]string // the first one has the names of the columns
}

// Table begins a table.
func (r *Report) Table(text string, columns ...string) {
	r.tables = append(r.tables, table{text, [][]string{columns}})
}

// Targets begins a table whose rows have what was measured beside a target.
func (r *Report) Targets(format string, values ...any) {
	text := fmt.Sprintf(format, values...)
	r.Table(fmt.Sprintf("%s; %d processors", text, runtime.NumCPU()), "what", "target", "measured")
}

// Row adds a row to the last table.
func (r *Report) Row(cells ...string) {
	last := &r.tables[len(r.tables)-1]
	last.rows = append(last.rows, cells)
}

// Measured adds a row to a table that Targets has begun.
func (r *Report) Measured(what, target, format string, values ...any) {
	r.Row(what, target, fmt.Sprintf(format, values...))
}

// Find returns the last cell of the last row that begins with these cells, or an empty text.
func (r *Report) Find(cells ...string) string {
	for _, one := range slices.Backward(r.tables) {
		for _, row := range slices.Backward(one.rows) {
			if len(row) > len(cells) && slices.Equal(row[:len(cells)], cells) {
				return row[len(row)-1]
			}
		}
	}
	return ""
}

// Print prints the tables that have rows.
func (r *Report) Print(w io.Writer) error {
	var text bytes.Buffer
	for _, one := range r.tables {
		if len(one.rows) == 1 {
			continue
		}
		fmt.Fprintf(&text, "\n%s\n\n", one.text)
		rows := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
		for _, row := range one.rows {
			_, _ = fmt.Fprintln(rows, strings.Join(row, "\t")) // into memory
		}
		if err := rows.Flush(); err != nil {
			return err
		}
	}
	_, err := text.WriteTo(w)
	return err
}

// Number formats a number, or returns a dash if it is unknown.
func Number(x float64, digits int) string {
	if math.IsNaN(x) || math.IsInf(x, 0) || x == 0 {
		return "-"
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}

// Delays are lengths of time.
type Delays []time.Duration

// Percentile returns a percentile, or 0 if there are no delays.
func (d Delays) Percentile(percent int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(d))[min(len(d)*percent/100, len(d)-1)]
}

// String returns percentiles in milliseconds.
func (d Delays) String() string {
	ms := func(percent int) float64 { return 1000 * d.Percentile(percent).Seconds() }
	return fmt.Sprintf("median %.1f ms, p90 %.1f, p99 %.1f, at most %.1f; %d", ms(50), ms(90), ms(99), ms(100), len(d))
}
