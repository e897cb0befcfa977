package console

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Acknowledge makes a job need nobody's attention, until a time unless that is zero. It returns what happens, in words.
func (n *Node) Acknowledge(ctx context.Context, job Job, note string, until time.Time) (string, error) {
	body := map[string]string{"note": note}
	said := "acknowledged"
	if !until.IsZero() {
		body["until"] = until.UTC().Format(time.RFC3339)
		said += " until " + until.Local().Format(time.DateTime)
	}
	return said, n.Ask(ctx, http.MethodPost, jobPath(job.JobID)+"/_acknowledge", body, nil)
}

// Unacknowledge takes the acknowledgement of a job back. It returns what happens, in words.
func (n *Node) Unacknowledge(ctx context.Context, job Job) (string, error) {
	if job.Condition.Acknowledged == nil {
		return "it is not acknowledged", nil
	}
	return "its acknowledgement is taken back", n.Ask(ctx, http.MethodDelete, jobPath(job.JobID)+"/_acknowledge", nil, nil)
}

// ParseUntil returns the time that a text says: a duration from now on, or a time of RFC 3339. An empty text is no time.
func ParseUntil(text string, now time.Time) (until time.Time, err error) {
	if text == "" {
		return until, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		until = now.Add(d)
	} else if until, err = time.Parse(time.RFC3339, text); err != nil {
		return until, fmt.Errorf("--until is %q: it must be a duration such as 24h, or a time such as 2026-12-01T00:00:00Z", text)
	}
	if !until.After(now) {
		return until, fmt.Errorf("--until is %q, which is not in the future", text)
	}
	return until, nil
}

// String says by whom, why and until when a job is acknowledged.
func (a *Acknowledgement) String() string {
	text := "yes"
	if a.By != "" {
		text = "by " + a.By
	}
	if !a.Until.IsZero() {
		text += " until " + a.Until.Local().Format(time.DateTime)
	}
	if a.Note != "" {
		text += ": " + a.Note
	}
	return text
}
