package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	// shownRuns and shownEvents are how many runs and events of its history the page of a job has.
	shownRuns   = 5
	shownEvents = 8
)

// WriteJob writes the page of a job.
func (o Output) WriteJob(job Job) error {
	if o.JSON {
		return o.writeJSON(job.Raw)
	}
	var text strings.Builder
	fact := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%-12s  %s\n", name, Clean(value))
		}
	}
	ago := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.Local().Format(time.DateTime) + ", " + span(o.Now.Sub(t)) + " ago"
	}
	fact("Job", job.Name())
	fact("State", job.shown())
	fact("Why", job.Why(o.Now))
	if c := &job.Condition; c.Fault != nil {
		fact("Error", c.Fault.Text)
	}
	if advice := job.Condition.Advice; advice != nil {
		fact("Advice", advice.Text)
	}
	fact("Source", job.Source)
	fact("Target", job.Target)
	if m := job.Summary(); m != nil {
		fact("Databases", m.databases())
		if len(m.Replicators) > 0 {
			fact("Left out", strings.Join(m.Replicators, ", ")+", because the target would run their replications, too")
		}
		if m.Verified != nil {
			fact("Verified", ago(m.Verified.Ended)+": "+m.Verified.String())
		}
		fact("Verifying", ago(m.Verifying))
		if !m.UnseenSince.IsZero() {
			fact("Unseen", "changes since "+ago(m.UnseenSince)+": the source is asked. With a feed (_global_changes) changes are known at once")
		}
	}
	if v := job.Verified; v != nil {
		fact("Verified", ago(v.Ended)+": "+v.String())
	}
	fact("Verifying", ago(job.VerifyingSince))
	fact("Written", job.written())
	fact("Left", job.left())
	fact("Node", job.Node)
	if job.User != nil {
		fact("User", *job.User)
	}
	fact("Started", ago(job.StartTime))
	c := &job.Condition
	for _, mark := range c.Marks {
		value := ago(mark.Since)
		if mark.Count > 0 {
			value = strings.TrimSuffix(count(mark.Count)+"; "+value, "; ")
		}
		if mark.Type == "acknowledged" && c.Acknowledged != nil {
			value += ", " + c.Acknowledged.String()
		}
		fact(nameOfMark(mark.Type), value)
	}
	if job.Activity != nil {
		fact("Progress", ago(job.Activity.LastProgress))
		if refusing := job.Activity.Refusing; refusing != nil {
			fact("Refusing", fmt.Sprintf("%s in a row, the latest: %s", some(refusing.Count, "document"), refusing.Latest.Reason))
		}
	}
	if c.State == "paused" {
		fact("Paused", ago(c.Since))
	}
	if !c.Until.IsZero() && c.State != "running" {
		fact("Next run", c.Until.Local().Format(time.DateTime))
	}
	if w := c.Watch; w != nil {
		how := map[string]string{"feed": " (its feed of updates says so)", "questions": " (it is asked)"}[w.By]
		fact("Wakes", "when "+w.Database+" of "+endpoint(w.Server)+" changes"+how)
	}
	fact("Id", job.ID)
	if job.JobID != job.ID {
		fact("Job id", job.JobID)
	}
	if _, err := io.WriteString(o.Out, text.String()); err != nil {
		return err
	}
	if err := o.writeRuns(job.Runs); err != nil {
		return err
	}
	return o.writeHistory(job.History)
}

// ShownDatabases is the most databases that the page of a mirror has.
const ShownDatabases = 100

// WriteDatabases writes the jobs of a mirror's databases, at most ShownDatabases of them, below the page of the mirror.
func (o Output) WriteDatabases(mirror Job, jobs []Job) error {
	if len(jobs) == 0 {
		return nil
	}
	t := o.table(column{head: "DATABASE", least: 16}, column{head: "STATE", least: 9}, column{head: "WRITTEN", least: 9, spare: 1, right: true},
		column{head: "LEFT", least: 9, spare: 2, right: true}, column{head: "WHY", least: 44})
	var rows [][]string
	for _, job := range jobs[:min(len(jobs), ShownDatabases)] {
		rows = append(rows, []string{job.MirroredDatabase, job.shown(), job.written(), job.left(), job.Why(o.Now)})
	}
	if err := o.writeBelow(t, rows); err != nil || len(jobs) <= ShownDatabases {
		return err
	}
	_, err := fmt.Fprintf(o.Out, "There are more: settee jobs list --mirror %s\n", Clean(mirror.Name()))
	return err
}

// marks are the names of marks. Their count is how often runs have failed in a row, or how many documents or databases there are.
var marks = map[string]string{
	"failing": "Failing runs", "stuck": "No progress", "behind": "Behind", "documents_refused": "Refused", "databases_failing": "Databases",
	"acknowledged": "Acknowledged",
}

func nameOfMark(kind string) string { return cmp.Or(marks[kind], strings.ReplaceAll(kind, "_", " ")) }

func (o Output) writeRuns(runs []Run) error {
	if len(runs) == 0 {
		return nil
	}
	known := func(n *int64) string {
		if n == nil {
			return ""
		}
		return count(*n)
	}
	t := o.table(column{head: "RUN ENDED", least: 16}, column{head: "TOOK", least: 8}, column{head: "OUTCOME", least: 9},
		column{head: "WRITTEN", least: 7, right: true}, column{head: "REFUSED", least: 7, right: true}, column{head: "REASON", least: 20})
	var rows [][]string
	for _, run := range runs[:min(len(runs), shownRuns)] {
		rows = append(rows, []string{
			span(o.Now.Sub(run.End)) + " ago", span(run.End.Sub(run.Start)), run.Outcome, known(run.DocsWritten), known(run.DocWriteFailures),
			run.Reason,
		})
	}
	return o.writeBelow(t, rows)
}

func (o Output) writeHistory(events []Event) error {
	if len(events) == 0 {
		return nil
	}
	t := o.table(column{head: "HISTORY", least: 16}, column{head: "EVENT", least: 9}, column{head: "REASON", least: 20})
	var rows [][]string
	for _, event := range events[:min(len(events), shownEvents)] {
		rows = append(rows, []string{span(o.Now.Sub(event.Timestamp)) + " ago", event.Type, event.Reason})
	}
	return o.writeBelow(t, rows)
}

// WriteRefused writes the documents that the target of a job has refused.
func (o Output) WriteRefused(job Job, total int64, latest []json.RawMessage) error {
	if o.JSON {
		return o.writeJSON(latest...)
	}
	head := fmt.Sprintf("The target of %s has refused %s", Clean(job.Name()), some(total, "revision"))
	if int64(len(latest)) < total {
		head += fmt.Sprintf(", of which the latest %s are kept", count(int64(len(latest))))
	}
	if _, err := io.WriteString(o.Out, head+".\n"); err != nil || len(latest) == 0 {
		return err
	}
	t := o.table(column{head: "DOCUMENT", least: 16}, column{head: "REVISION", least: 8, spare: 2}, column{head: "AGO", least: 6, spare: 1},
		column{head: "REASON", least: 30})
	rows := make([][]string, len(latest))
	for i, text := range latest {
		var f Failure
		if err := json.Unmarshal(text, &f); err != nil {
			return fmt.Errorf("reading the refused revisions of a job: %w", err)
		}
		status := ""
		if f.Status != 0 {
			status = fmt.Sprintf("%d: ", f.Status)
		}
		rows[i] = []string{f.ID, f.Rev, span(o.Now.Sub(f.Timestamp)), status + cmp.Or(f.Reason, "no reason")}
	}
	return o.writeBelow(t, rows)
}
