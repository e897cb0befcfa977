package console

import (
	"io"
	"time"
)

// List writes jobs as a table, portion by portion.
type List struct {
	Out io.Writer
	// Width is the width of the terminal, or 0 if lines may have any.
	Width int

	table *table
}

// Write writes a portion.
func (l *List) Write(jobs []Job) error {
	if l.table == nil {
		l.table = &table{width: l.Width, columns: []column{
			{head: "STATE", least: 9},
			{head: "JOB", least: 24},
			{head: "SOURCE", least: 18, spare: 4},
			{head: "TARGET", least: 18, spare: 3},
			{head: "WRITTEN", least: 9, spare: 1, right: true},
			{head: "LEFT", least: 9, spare: 2, right: true},
			{head: "WHY", least: 44},
		}}
	}
	now := time.Now()
	rows := make([][]string, len(jobs))
	for i, job := range jobs {
		rows[i] = []string{
			job.shown(), Clean(job.Name()), Clean(endpoint(job.Source)), Clean(endpoint(job.Target)), job.written(), job.left(),
			Clean(job.Why(now)),
		}
	}
	return l.table.write(l.Out, rows)
}
