package console

import (
	"cmp"
	"slices"
)

// List writes jobs as a table, portion by portion. The jobs that mirrors have made come after all others, by mirror and database.
type List struct {
	Output
	// InOrder leaves the jobs of mirrors where they are.
	InOrder bool

	rows *table
	last []childRow
}

// childRow is the row of a job that a mirror has made.
type childRow struct {
	mirror, database string
	cells            []string
}

// Write writes a portion, without the jobs that are for [List.End].
func (l *List) Write(jobs []Job) error {
	if l.rows == nil {
		l.rows = l.table(
			column{head: "STATE", least: 9},
			column{head: "JOB", least: 24},
			column{head: "SOURCE", least: 18, spare: 4},
			column{head: "TARGET", least: 18, spare: 3},
			column{head: "WRITTEN", least: 9, spare: 1, right: true},
			column{head: "LEFT", least: 9, spare: 2, right: true},
			column{head: "WHY", least: 44})
	}
	rows := make([][]string, 0, len(jobs))
	for _, job := range jobs {
		if l.JSON {
			if err := l.writeJSON(job.Raw); err != nil {
				return err
			}
			continue
		}
		row := []string{
			job.shown(), job.Name(), endpoint(job.Source), endpoint(job.Target), job.written(), job.left(), job.Why(l.Now),
		}
		if job.Mirror != "" && !l.InOrder {
			l.last = append(l.last, childRow{job.Mirror, job.MirroredDatabase, row})
			continue
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil
	}
	return l.rows.write(l.Out, rows)
}

// End writes the jobs that mirrors have made.
func (l *List) End() error {
	slices.SortFunc(l.last, func(a, b childRow) int {
		return cmp.Or(cmp.Compare(a.mirror, b.mirror), cmp.Compare(a.database, b.database))
	})
	rows := make([][]string, len(l.last))
	for i, row := range l.last {
		rows[i] = row.cells
	}
	if l.last = nil; len(rows) == 0 {
		return nil
	}
	return l.rows.write(l.Out, rows)
}
