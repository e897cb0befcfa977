package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"settee/cmd/settee/internal/remote"
)

// usualShares are the shares of a database for which none are configured.
const usualShares = 100

// RunNow runs a job at once that waits for a time or is parked, and starts a replication document anew that has ended. It
// returns what happens, in words.
func (n *Node) RunNow(ctx context.Context, job Job) (string, error) {
	if job.Ended() {
		return n.runAgain(ctx, job)
	}
	var answer struct{ Condition Condition }
	if err := n.Ask(ctx, http.MethodPost, jobPath(job.JobID)+"/_run", nil, &answer); err != nil {
		return "", err
	}
	switch answer.Condition.State {
	case "paused":
		return "it " + answer.Condition.Message + ": it runs as soon as it is resumed", nil
	case "running":
		if job.Info != nil && job.Info.Mirror != nil {
			return "it compares all databases now, with their _security", nil
		}
		return "it is running already", nil
	}
	return "it runs as soon as there is a slot", nil
}

// Verify has both ends of a job compared.
func (n *Node) Verify(ctx context.Context, job Job) (string, error) {
	return "a node compares both ends", n.Ask(ctx, http.MethodPost, jobPath(job.JobID)+"/_verify", nil, nil)
}

// runAgain writes the document of a job again.
func (n *Node) runAgain(ctx context.Context, job Job) (string, error) {
	if job.DocID == nil {
		return "", errors.New("it has ended, and has no document: post it to _replicate again")
	}
	d, err := n.Document(ctx, job)
	if err != nil {
		return "", err
	}
	return "it has ended, and is replicated again", n.writeAnew(ctx, d)
}

// Delete deletes the document of a job, or cancels a job that was posted to _replicate.
func (n *Node) Delete(ctx context.Context, job Job) (string, error) {
	if job.DocID == nil {
		if job.Ended() {
			return "", errors.New("it has ended, and has no document to delete")
		}
		return "cancelled", n.Ask(ctx, http.MethodPost, "/_replicate", map[string]any{"replication_id": job.ID, "cancel": true}, nil)
	}
	path := remote.Path(*job.Database, *job.DocID)
	var doc struct {
		Rev string `json:"_rev"`
	}
	if err := n.Get(ctx, path, &doc); err != nil {
		return "", err
	}
	return "deleted", n.Ask(ctx, http.MethodDelete, path+"?rev="+url.QueryEscape(doc.Rev), nil, nil)
}

// PauseJob writes into the document of a job that it is paused. It returns what happens, in words.
func (n *Node) PauseJob(ctx context.Context, job Job) (string, error) {
	return n.setPaused(ctx, job, true)
}

// ResumeJob takes out of the document of a job that it is paused. It returns what happens, in words.
func (n *Node) ResumeJob(ctx context.Context, job Job) (string, error) {
	return n.setPaused(ctx, job, false)
}

// pauseTries is how often a document is read and written that others write at the same time.
const pauseTries = 5

func (n *Node) setPaused(ctx context.Context, job Job, paused bool) (string, error) {
	switch {
	case job.DocID == nil && job.Database != nil:
		return "", errors.New("a mirror has made it: pause the mirror, and all its databases are paused")
	case job.DocID == nil:
		return "", errors.New("it was posted to _replicate, and has no document that could be paused: cancel it, and post it again later")
	case job.Ended():
		return "", errors.New("it has ended")
	}
	for try := 1; ; try++ {
		d, err := n.Document(ctx, job)
		if err != nil {
			return "", err
		}
		done, was := "resumed"+databasesOf(job), string(d.members["paused"]) == "true"
		switch {
		case paused && was:
			return "it is paused already", nil
		case paused:
			d.members["paused"], done = json.RawMessage("true"), "paused"+databasesOf(job)
		case was:
			delete(d.members, "paused")
		default:
			return "it is not paused", nil
		}
		err = n.write(ctx, d)
		if !remote.IsStatus(err, http.StatusConflict) || try == pauseTries {
			return done, err
		}
	}
}

// databasesOf says what else is paused or resumed with a job.
func databasesOf(job Job) string {
	if job.Summary() == nil {
		return ""
	}
	return ", with all its databases"
}

// share is a row of _scheduler/shares.
type share struct {
	Database *string `json:"database"`
	Shares   float64 `json:"shares"`
	Before   float64 `json:"shares_before"`
}

// shareOf returns the row of a replicator database. It returns an error if there is no such database.
func (n *Node) shareOf(ctx context.Context, database string) (share, error) {
	if err := n.Get(ctx, remote.Path(database), nil); err != nil {
		return share{}, err
	}
	var answer struct{ Shares []share }
	if err := n.Get(ctx, "/_scheduler/shares", &answer); err != nil {
		return share{}, err
	}
	for _, row := range answer.Shares {
		if row.Database != nil && *row.Database == database {
			return row, nil
		}
	}
	return share{Shares: usualShares}, nil
}

func sharesPath(database string) string {
	return "/_node/_local/_config/replicator.shares" + remote.Path(database)
}

// isPaused reports whether the configuration gives a database no shares. The rows of _scheduler/shares follow it later.
func (n *Node) isPaused(ctx context.Context, database string) (bool, error) {
	var text string
	err := n.Get(ctx, sharesPath(database), &text)
	if remote.IsStatus(err, http.StatusNotFound) {
		return false, nil
	}
	return strings.TrimSpace(text) == "0", err
}

func (n *Node) setShares(ctx context.Context, database string, shares int) error {
	return n.Ask(ctx, http.MethodPut, sharesPath(database), fmt.Sprint(shares), nil)
}

// Pause stops all jobs of a replicator database, until Resume. It returns what happens, in words.
func (n *Node) Pause(ctx context.Context, database string) (string, error) {
	if _, err := n.shareOf(ctx, database); err != nil {
		return "", err
	}
	switch paused, err := n.isPaused(ctx, database); {
	case err != nil:
		return "", err
	case paused:
		return "it is paused already", nil
	}
	return "paused: its running jobs write a checkpoint and stop", n.setShares(ctx, database, 0)
}

// Resume gives a replicator database shares again: those that it had before it was paused, unless shares is not 0.
func (n *Node) Resume(ctx context.Context, database string, shares int) (string, error) {
	row, err := n.shareOf(ctx, database)
	if err != nil {
		return "", err
	}
	switch paused, err := n.isPaused(ctx, database); {
	case err != nil:
		return "", err
	case !paused && shares == 0:
		return fmt.Sprintf("it is not paused, and has %.0f shares", row.Shares), nil
	case shares == 0:
		shares = int(cmp.Or(row.Before, row.Shares)) // no node may have noticed the pause yet
	}
	said := ""
	if shares == 0 {
		shares, said = usualShares, ", as is usual: how many it had before is not known"
	}
	return fmt.Sprintf("resumed with %d shares%s", shares, said), n.setShares(ctx, database, shares)
}
