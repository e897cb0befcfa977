package console

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
)

// words returns the words of a table of docs/http.md.
func words(t *testing.T, column string) []string {
	t.Helper()
	return testkit.Words(t, "../../../../docs/http.md", column)
}

// screens returns what each screen shows of a job.
func screens(t *testing.T, job Job) map[string]string {
	t.Helper()
	var list, page, change, progress bytes.Buffer
	require.NoError(t, (&List{Output: Output{Out: &list, Now: noon}}).Write([]Job{job}))
	require.NoError(t, Output{Out: &page, Now: noon}.WriteJob(job))
	require.NoError(t, Output{Out: &change, Now: noon}.WriteChanges([]Change{{Job: job}}))
	require.NoError(t, Output{Out: &progress, Now: noon}.WriteProgress(job))
	o, top := overview{running: []Job{job}}, ""
	for _, line := range o.slowest(noon, 400, 10) {
		for _, p := range line {
			top += p.text
		}
	}
	return map[string]string{"list": list.String(), "show": page.String(), "watch": change.String(), "watch JOB": progress.String(), "top": top}
}

// Each screen shows what the node tells, whatever the words: their state, their message, their fault, and their marks.
func TestScreensShowWhatTheNodeTells(t *testing.T) {
	t.Parallel()
	for _, state := range append(words(t, "state"), "newer") {
		for _, reason := range append(words(t, "reason"), "newer") {
			job := Job{ID: "a", Info: &Info{}, Condition: Condition{State: state, Reason: reason, Message: "does " + reason}}
			for screen, text := range screens(t, job) {
				if screen == "top" && reason == "idle" {
					continue // it is not slow
				}
				assert.Contains(t, text, "does "+reason, "%s: %s", screen, reason)
				if screen != "top" {
					assert.Contains(t, text, state, screen)
				}
			}
		}
	}
	for _, code := range append(words(t, "code"), "newer") {
		fault := &Fault{Code: code, Message: "source a: " + code, Text: "CouchDB's " + code}
		for _, message := range []string{"has failed: " + fault.Message, "waits for a slot"} {
			job := Job{ID: "a", Info: &Info{}, Condition: Condition{State: "pending", Reason: "slot", Message: message, Fault: fault, Advice: &Advice{Code: code, Text: "Do " + code}}}
			for screen, text := range screens(t, job) {
				want := 1
				if screen == "show" {
					assert.Contains(t, text, "CouchDB's "+code)
					assert.Contains(t, text, "Do "+code)
				}
				assert.Equal(t, want, strings.Count(text, fault.Message), "%s: %s", screen, text)
			}
		}
	}
	known := words(t, "mark")
	assert.Len(t, marks, len(known))
	for _, mark := range append(known, "newer_mark") {
		job := Job{ID: "a", Condition: Condition{State: "running", Message: "runs", Marks: []Mark{{Type: mark, Since: noon, Count: 3}}}}
		page := screens(t, job)["show"]
		assert.Contains(t, page, fmt.Sprintf("%-12s  3; ", nameOfMark(mark)))
		assert.NotEqual(t, mark == "newer_mark", marks[mark] != "", "each mark has a name: %s", mark)
	}
}
