package console

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"settee/replicator/causes"
)

// What people are told of a job is decided by the node (its condition). Here it gets the times, which the node leaves out.

// shown returns the state that a job is shown in.
func (j *Job) shown() string { return Clean(cmp.Or(j.Condition.State, j.State, "unknown")) }

// Why says in one line why a job is in its state, and what it waits for.
func (j *Job) Why(now time.Time) string {
	c := &j.Condition
	if c.Fault == nil || strings.HasSuffix(c.Message, c.Fault.Text) {
		return j.why(now, c.Message, "")
	}
	return j.why(now, c.Message, c.Fault.Text)
}

// brief is Why with a short form of the fault, for narrow lines.
func (j *Job) brief(now time.Time) string {
	c := &j.Condition
	if c.Fault == nil {
		return j.why(now, c.Message, "")
	}
	cause := causes.Short(c.Fault.Text)
	if cause.Endpoint != "" {
		cause.Text = cause.Endpoint + ": " + cause.Text
	}
	if c.State == "crashing" || j.Ended() {
		return j.why(now, cause.Text, "")
	}
	return j.why(now, strings.TrimSuffix(c.Message, ": "+c.Fault.Text), cause.Text)
}

// why is Why with a text for the state, and one for a fault beside it, or "".
func (j *Job) why(now time.Time, text, fault string) string {
	var parts []string
	if n := j.Condition.mark("documents_refused").Count; n > 0 {
		parts = append(parts, some(n, "document")+" refused")
	}
	if stuck := j.Condition.mark("stuck").Since; !stuck.IsZero() {
		parts = append(parts, "no progress for "+span(now.Sub(stuck)))
	}
	parts = append(parts, text+j.Condition.times(now, j.Ended())+j.Condition.Queue.String())
	if fault != "" {
		parts = append(parts, fault)
	}
	if j.Condition.State == "running" && j.Info != nil && j.Info.Activity != nil {
		for _, wait := range j.Info.Activity.Waiting {
			parts = append(parts, wait.String(now))
		}
	}
	return strings.Join(parts, "; ")
}

// times says since when a job is in its state, or until when.
func (c *Condition) times(now time.Time, ended bool) string {
	switch {
	case c.Until.After(now):
		return "; goes on in " + span(c.Until.Sub(now))
	case c.Since.IsZero():
		return ""
	case ended:
		return "; ended " + span(now.Sub(c.Since)) + " ago"
	}
	return ", for " + span(now.Sub(c.Since))
}

// mark returns a mark, the zero value if the job does not have it.
func (c *Condition) mark(kind string) Mark {
	for _, m := range c.Marks {
		if m.Type == kind {
			return m
		}
	}
	return Mark{}
}

// has reports whether the job has a mark.
func (c *Condition) has(kind string) bool { return c.mark(kind) != Mark{} }

// String says how many others are before a job that waits for a slot, if that is known.
func (q *Queue) String() string {
	switch {
	case q == nil:
	case q.More:
		return fmt.Sprintf(", behind more than %d others of its database or user", q.Before)
	case q.Before > 0:
		return fmt.Sprintf(", behind %d others of its database or user", q.Before)
	}
	return ""
}

// String says which request is repeated, and when.
func (w *Wait) String(now time.Time) string {
	of := ""
	if w.Attempts > 0 {
		of = fmt.Sprintf(" of %d", w.Attempts)
	}
	return fmt.Sprintf("%s: %s %s: %s; attempt %d%s in %s", w.Endpoint, w.Method, w.Path, w.Error, w.Attempt, of, span(w.Until.Sub(now)))
}
