package console

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// What people are told of a job is decided by the node (its condition). Here it gets the times, which the node leaves out.

// shown returns the state that a job is shown in.
func (j *Job) shown() string { return cmp.Or(j.Condition.State, j.State, "unknown") }

// Why says in one line why a job is in its state, and what it waits for.
func (j *Job) Why(now time.Time) string {
	c := &j.Condition
	var parts []string
	if c.Acknowledged != nil {
		parts = append(parts, "acknowledged")
	}
	if m := j.Summary(); m != nil {
		parts = append(parts, some(m.Databases, "database"))
	}
	if n := c.mark("documents_refused").Count; n > 0 {
		parts = append(parts, some(n, "document")+" refused")
	}
	if stuck := c.mark("stuck").Since; !stuck.IsZero() {
		parts = append(parts, "no progress for "+span(now.Sub(stuck)))
	}
	parts = append(parts, c.Message+c.times(now, j.Ended())+c.Queue.String())
	if c.Fault != nil && !strings.HasSuffix(c.Message, c.Fault.Message) {
		parts = append(parts, c.Fault.Message)
	}
	if j.Activity != nil {
		for _, wait := range j.Activity.Waiting {
			if c.Fault == nil || wait.Fault.Message != c.Fault.Message {
				parts = append(parts, wait.Fault.Message)
			}
			parts = append(parts, wait.String(now))
		}
	}
	return strings.Join(parts, "; ")
}

// Summary returns what is known of a mirror, or nil for other jobs.
func (j *Job) Summary() *Mirror {
	if j.Info == nil {
		return nil
	}
	return j.Info.Mirror
}

// databases says how many databases there are, and how many in each state, by the names of the states.
func (m *Mirror) databases() string {
	text := count(m.Databases)
	if states := m.states(); len(states) > 0 {
		text += ": " + strings.Join(states, ", ")
	}
	return text
}

// states says how many databases are in each state, by the names of the states.
func (m *Mirror) states() (words []string) {
	for _, state := range slices.Sorted(maps.Keys(m.States)) {
		if n := m.States[state]; n > 0 {
			words = append(words, count(n)+" "+strings.ReplaceAll(state, "_", " "))
		}
	}
	return words
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
		return ", behind more than " + some(int64(q.Before), "other") + " of its database or user"
	case q.Before > 0:
		return ", behind " + some(int64(q.Before), "other") + " of its database or user"
	}
	return ""
}

// String says when a request is repeated.
func (w *Wait) String(now time.Time) string {
	of := ""
	if w.Attempts > 0 {
		of = fmt.Sprintf(" of %d", w.Attempts)
	}
	return fmt.Sprintf("attempt %d%s in %s", w.Attempt, of, span(w.Until.Sub(now)))
}
