package console

import (
	"fmt"
	"strings"
	"time"

	"settee/replicator/causes"
)

// doings are the values of Activity.Doing in words.
var doings = map[string]string{
	"stopping":            "stopping, so that other jobs can run",
	"rate_limited":        "holding requests back, as an endpoint asked",
	"retrying":            "repeating a request",
	"starting":            "opening the databases",
	"target_refusing":     "copying, but the target refuses everything",
	"copying":             "copying",
	"filtering":           "reading changes, of which none passes the filter",
	"reading_changes":     "waiting for the next change of those that are left",
	"waiting_for_changes": "waiting for new changes",
	"finishing":           "writing the last checkpoint",
}

// doing returns a value of Activity.Doing in words. Other texts stay as they are.
func doing(value string) string {
	if text, ok := doings[value]; ok {
		return text
	}
	return value
}

// Why says in one line why a job is in its state, and what it waits for.
func (j *Job) Why(now time.Time) string { return j.why(now, j.error()) }

// brief is Why with a short form of the error, for narrow lines.
func (j *Job) brief(now time.Time) string {
	cause := causes.Short(j.error())
	if cause.Endpoint != "" {
		cause.Text = cause.Endpoint + ": " + cause.Text
	}
	return j.why(now, cause.Text)
}

// why is Why with an error, or "".
func (j *Job) why(now time.Time, failure string) string {
	var parts []string
	if j.Info != nil && j.Info.DocWriteFailures > 0 {
		parts = append(parts, some(j.Info.DocWriteFailures, "document")+" refused")
	}
	if failure != "" {
		parts = append(parts, failure)
	}
	switch {
	case j.Ended():
		if len(j.History) > 0 {
			parts = append(parts, "ended "+span(now.Sub(j.History[0].Timestamp))+" ago")
		}
	case j.State == "running":
		parts = append(parts, j.whyRunning(now)...)
	case j.Paused:
		parts = append(parts, j.paused(now))
	case !j.Parked.IsZero():
		parts = append(parts, "for "+span(now.Sub(j.Parked))+", until its source changes")
	case j.NextRun.After(now):
		parts = append(parts, "runs in "+span(j.NextRun.Sub(now)))
	default:
		parts = append(parts, j.WaitsFor.slot(now))
	}
	return strings.Join(parts, "; ")
}

// error returns the error of a job, or "".
func (j *Job) error() string {
	if j.Info == nil {
		return ""
	}
	return j.Info.Error
}

// paused says that the job is paused, or that its database has no shares.
func (j *Job) paused(now time.Time) string {
	text := "its database is paused"
	if j.PausedBy == "document" {
		text = "its document is paused"
	}
	if j.PausedSince.IsZero() {
		return text
	}
	return text + ", for " + span(now.Sub(j.PausedSince))
}

// slot says that a job waits for a slot, and how long and behind how many others if that is known.
func (w *WaitsFor) slot(now time.Time) string {
	text := "waits for a slot"
	if w == nil || w.What != "slot" {
		return text
	}
	if !w.Since.IsZero() {
		text += ", for " + span(now.Sub(w.Since))
	}
	switch {
	case w.Before == nil:
	case w.More:
		text += fmt.Sprintf(", behind more than %d others of its database or user", *w.Before)
	case *w.Before > 0:
		text += fmt.Sprintf(", behind %d others of its database or user", *w.Before)
	}
	return text
}

func (j *Job) whyRunning(now time.Time) (parts []string) {
	if !j.StuckSince.IsZero() {
		parts = append(parts, "no progress for "+span(now.Sub(j.StuckSince)))
	}
	if j.Info == nil || j.Info.Activity == nil {
		return parts
	}
	activity := j.Info.Activity
	parts = append(parts, doing(activity.Doing))
	for _, wait := range activity.Waiting {
		parts = append(parts, wait.String(now))
	}
	return parts
}

// String says which request is repeated, and when.
func (w *Wait) String(now time.Time) string {
	of := ""
	if w.Attempts > 0 {
		of = fmt.Sprintf(" of %d", w.Attempts)
	}
	return fmt.Sprintf("%s: %s %s: %s; attempt %d%s in %s", w.Endpoint, w.Method, w.Path, w.Error, w.Attempt, of, span(w.Until.Sub(now)))
}
