package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"settee/cmd/settee/internal/remote"
)

// MaxWatched is the most jobs that [Node.WatchList] follows: the jobs of one answer.
const MaxWatched = maxPage

// Change is a job that has changed, in a list that is followed.
type Change struct {
	Job Job
	// Gone reports whether the job has left the list: it has ended, was deleted, or no filter selects it any more.
	Gone bool
}

// Follower is told what happens while jobs are followed. An error that a function returns ends that.
type Follower struct {
	// Changed has the jobs that are new or whose state, error or number of refused documents has changed.
	Changed func([]Change) error
	// More is called once, if the list has more than MaxWatched jobs.
	More func() error
	// Failed is called with the error of each request after the first answer. The request is repeated.
	Failed func(error) error
}

// WatchList follows the first MaxWatched jobs of a list, until the context ends.
func (n *Node) WatchList(ctx context.Context, f Filter, to Follower) error {
	known, warned := map[string]Job{}, false
	return n.follow(ctx, f.path(MaxWatched, ""), to, func(text []byte) error {
		var p page
		if err := json.Unmarshal(text, &p); err != nil {
			return fmt.Errorf("reading the jobs of a node: %w", err)
		}
		if p.Next != "" && !warned {
			warned = true
			if err := to.More(); err != nil {
				return err
			}
		}
		changes := changesOf(known, p.Jobs)
		if len(changes) == 0 {
			return nil
		}
		return to.Changed(changes)
	})
}

// changesOf returns how jobs differ from the known ones, and updates these.
func changesOf(known map[string]Job, jobs []Job) (changes []Change) {
	listed := map[string]bool{}
	for _, job := range jobs {
		listed[job.JobID] = true
		if before, ok := known[job.JobID]; !ok || before.mark() != job.mark() {
			changes = append(changes, Change{Job: job})
		}
		known[job.JobID] = job
	}
	for id, job := range known {
		if !listed[id] {
			changes = append(changes, Change{Job: job, Gone: true})
			delete(known, id)
		}
	}
	return changes
}

// mark is what of a job is worth a line in a list that is followed. The progress is not.
func (j *Job) mark() string {
	c, fault := &j.Condition, ""
	if failing := c.mark("failing"); c.Fault != nil && (failing.Count > 0 || j.Ended()) {
		fault = c.Fault.Message
	}
	return fmt.Sprint(c.State, "\n", fault, "\n", c.mark("documents_refused").Count, c.mark("failing").Count, c.mark("stuck").Since.IsZero())
}

// ErrGone is returned if a job that is followed was deleted.
var ErrGone = errors.New("the job was deleted, or cancelled")

// WatchJob calls take with a job, and again each time that it has changed. It returns nil when the job has ended.
func (n *Node) WatchJob(ctx context.Context, job Job, take func(Job) error, failed func(error) error) error {
	ended := errors.New("ended")
	err := n.follow(ctx, jobPath(job.JobID), Follower{Failed: func(err error) error {
		if remote.IsStatus(err, http.StatusNotFound) {
			return ErrGone
		}
		return failed(err)
	}}, func(text []byte) error {
		var now Job
		if err := json.Unmarshal(text, &now); err != nil {
			return fmt.Errorf("reading a job of a node: %w", err)
		}
		if err := take(now); err != nil {
			return err
		}
		if now.Ended() {
			return ended
		}
		return nil
	})
	if errors.Is(err, ended) {
		return nil
	}
	return err
}

// follow is Server.Follow with an error if the first request fails, since then the URL or the credentials may be wrong.
func (n *Node) follow(ctx context.Context, path string, to Follower, take func([]byte) error) error {
	answered := false
	return n.Follow(ctx, path, 0, func(text []byte, err error) error {
		switch {
		case err != nil && !answered:
			return err
		case err != nil:
			return to.Failed(err)
		}
		answered = true
		return take(text)
	})
}

// WriteChanges writes changes as lines, with the time in front. In JSON the jobs that are gone say so.
func (o Output) WriteChanges(changes []Change) error {
	t := o.table(column{least: 8}, column{least: 9}, column{least: 24}, column{least: 30})
	t.headed = true
	var rows [][]string
	for _, c := range changes {
		state, why := c.Job.shown(), c.Job.Why(o.Now)
		if c.Gone {
			state, why = "gone", "it has ended, was deleted, or is no longer like that"
			c.Job.Raw = append(bytes.TrimSuffix(bytes.TrimSpace(c.Job.Raw), []byte("}")), `,"gone":true}`...)
		}
		if o.JSON {
			if err := o.writeJSON(c.Job.Raw); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{o.Now.Format(time.TimeOnly), pad(state, 9), pad(c.Job.Name(), 24), why})
	}
	return t.write(o.Out, rows)
}

// WriteProgress writes the progress of a job as a line, with the time in front.
func (o Output) WriteProgress(job Job) error {
	if o.JSON {
		return o.writeJSON(job.Raw)
	}
	text := job.Why(o.Now)
	if written := job.written(); written != "" {
		text = written + " written; " + text
	}
	if left := job.left(); left != "" && !job.Ended() {
		text = left + " left; " + text
	}
	t := o.table(column{least: 8}, column{least: 9}, column{least: 30})
	t.headed = true
	return t.write(o.Out, [][]string{{o.Now.Format(time.TimeOnly), pad(job.shown(), 9), text}})
}

// pad returns a text that is at least so wide, so that lines which are written one by one are aligned.
func pad(text string, width int) string {
	text = Clean(text)
	return text + strings.Repeat(" ", max(width-displaywidth.String(text), 0))
}
