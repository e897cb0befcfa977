package console

import (
	"io"
	"slices"
	"strings"

	"github.com/clipperhouse/displaywidth"
)

// gap is between the columns of a table.
const gap = "  "

// column is a column of a table.
type column struct {
	head  string
	right bool // its cells are numbers
	// least is the width that the column is not narrowed below.
	least int
	// spare, if not 0, says that the column may be left out: the one with the largest number first.
	spare int
}

// table is a table whose rows come in portions. Later portions have at least the widths of earlier ones.
type table struct {
	columns []column
	// width is the width of the terminal, or 0 if lines may have any.
	width int

	headed  bool
	natural []int // the widest cell of each column so far
}

// write writes a portion of the rows.
func (t *table) write(out io.Writer, rows [][]string) error {
	for _, line := range t.lines(rows) {
		if _, err := io.WriteString(out, line+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// lines returns the lines of a portion, with the head before the first. It cleans the cells.
func (t *table) lines(rows [][]string) []string {
	for _, row := range rows {
		for i, cell := range row {
			row[i] = Clean(cell)
		}
	}
	if t.natural == nil {
		t.natural = make([]int, len(t.columns))
	}
	for i, c := range t.columns {
		t.natural[i] = max(t.natural[i], displaywidth.String(c.head))
		for _, row := range rows {
			t.natural[i] = max(t.natural[i], displaywidth.String(row[i]))
		}
	}
	widths := t.fit()
	var lines []string
	if !t.headed {
		t.headed = true
		heads := make([]string, len(t.columns))
		for i, c := range t.columns {
			heads[i] = c.head
		}
		lines = append(lines, t.line(heads, widths))
	}
	for _, row := range rows {
		lines = append(lines, t.line(row, widths))
	}
	return lines
}

// fit returns the widths of the columns, 0 for those that are left out. It leaves columns out until all others have the
// least that they need, and narrows the widest column until the line fits.
func (t *table) fit() []int {
	widths := slices.Clone(t.natural)
	if t.width == 0 {
		return widths
	}
	least := func(i int) int { return min(t.natural[i], max(t.columns[i].least, 1)) }
	sum := func(of func(int) int) int {
		total := -len(gap)
		for i, w := range widths {
			if w > 0 {
				total += of(i) + len(gap)
			}
		}
		return total
	}
	largest := func(of func(int) int) int {
		at := 0
		for i := range widths {
			if of(i) > of(at) {
				at = i
			}
		}
		return at
	}
	spare := func(i int) int { return t.columns[i].spare * min(widths[i], 1) }
	for sum(least) > t.width && spare(largest(spare)) > 0 {
		widths[largest(spare)] = 0
	}
	room := func(i int) int {
		if widths[i] <= least(i) {
			return 0
		}
		return widths[i]
	}
	for sum(func(i int) int { return widths[i] }) > t.width && room(largest(room)) > 0 {
		widths[largest(room)]--
	}
	return widths
}

// line returns a row in columns of widths.
func (t *table) line(cells []string, widths []int) string {
	var line strings.Builder
	for i, w := range widths {
		if w == 0 {
			continue
		}
		if line.Len() > 0 {
			line.WriteString(gap)
		}
		cell := displaywidth.TruncateString(cells[i], w, "…")
		padding := strings.Repeat(" ", w-displaywidth.String(cell))
		if t.columns[i].right {
			cell, padding = padding+cell, ""
		}
		line.WriteString(cell + padding)
	}
	return strings.TrimRight(line.String(), " ")
}
