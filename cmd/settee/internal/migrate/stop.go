package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"settee/cmd/settee/internal/remote"
	"settee/pkg/retry"
)

const (
	// checksAtOnce is the number of documents that are looked at side by side.
	checksAtOnce = 8
	// minStopPoll and maxStopPoll are the shortest and the longest time between two requests that ask whether a server
	// has stopped jobs. The time doubles after each. CouchDB has no feed to wait for.
	minStopPoll, maxStopPoll = 10 * time.Millisecond, 500 * time.Millisecond
	// stopTimeout is how long a server may take for that.
	stopTimeout = 5 * time.Minute
)

// stop deletes the live documents at the server that they leave, except those that stay.
func (t *transfer) stop(ctx context.Context) error {
	return t.from.pages(ctx, t.db, func(rows []row) error {
		rows = slices.DeleteFunc(rows, func(r row) bool { return r.Deleted || !r.job() })
		all := len(rows)
		rows = slices.DeleteFunc(rows, func(r row) bool { return !t.portion.selects(r.ID) })
		t.counts.Left += all - len(rows)
		if t.portion.rest(t.counts.Stopped, 1) == 0 {
			t.counts.Left += len(rows)
			return nil
		}
		there, err := t.to.look(ctx, t.db, ids(rows))
		if err != nil {
			return err
		}
		var leaving []row
		for _, r := range rows {
			reason, err := t.ambiguous(ctx, r, there[r.ID])
			if err != nil {
				return err
			}
			if reason == "" {
				leaving = append(leaving, r)
				continue
			}
			if err := t.keep(r.ID, reason); err != nil {
				return err
			}
		}
		for len(leaving) > 0 {
			n := t.portion.rest(t.counts.Stopped, len(leaving))
			if n == 0 {
				t.counts.Left += len(leaving)
				return nil
			}
			if err := t.remove(ctx, leaving[:n]); err != nil {
				return err
			}
			leaving = leaving[n:]
		}
		return nil
	})
}

func ids(rows []row) []string {
	all := make([]string, len(rows))
	for i, r := range rows {
		all[i] = r.ID
	}
	return all
}

func (t *transfer) keep(id, reason string) error {
	t.counts.Kept++
	return t.Tell(Kept{id, t.db, t.from.Name, reason})
}

// ambiguous returns why a live document stays of which there are two: another one at the other server, or two live leaves.
func (t *transfer) ambiguous(ctx context.Context, r row, there presence) (string, error) {
	switch {
	case there == live:
		return "there is a document with this id at " + t.to.Name + ", too: delete one of them", nil
	case len(r.Changes) == 1:
		return "", nil
	}
	var doc struct {
		Conflicts []string `json:"_conflicts"`
	}
	err := t.from.Get(ctx, remote.Path(t.db, r.ID)+"?conflicts=true", &doc)
	if err == nil && len(doc.Conflicts) > 0 {
		return "it has conflicting revisions: delete all but one", nil
	}
	if remote.IsStatus(err, http.StatusNotFound) {
		err = nil // it was deleted meanwhile
	}
	return "", err
}

// remove deletes documents that the other server may have.
func (t *transfer) remove(ctx context.Context, rows []row) error {
	moves, err := json.Marshal(mark{Time: time.Now().UTC().Format(time.RFC3339), To: t.to.URL(), ID: t.ids[t.to]})
	if err != nil {
		return err
	}
	living := func(doc *document) bool { return !doc.deleted }
	return t.from.fetchGroups(ctx, t.db, rows, living, func(group []*document) error {
		reasons, err := t.refusals(ctx, group)
		if err != nil {
			return err
		}
		stopped := 0
		out := batch{to: t.from, db: t.db, newEdits: true, refused: func(r refusal) error {
			stopped--
			if r.Error == "conflict" { // it was changed, and comes again in the feed
				return nil
			}
			return t.keep(r.ID, "deleting it: "+r.Error+": "+r.Reason)
		}}
		for i, doc := range group {
			if reasons[i] != "" {
				if err := t.keep(doc.id, reasons[i]); err != nil {
					return err
				}
				continue
			}
			stopped++
			t.counts.Began = true
			doc.body["_deleted"], doc.body[Mark] = json.RawMessage("true"), moves
			if err := out.add(ctx, doc.body, doc.size); err != nil {
				return err
			}
		}
		if err := out.flush(ctx); err != nil {
			return err
		}
		t.counts.Stopped += stopped
		return t.report(0)
	})
}

// refusals returns why documents stay, or "" for those that may go.
func (t *transfer) refusals(ctx context.Context, docs []*document) ([]string, error) {
	reasons := make([]string, len(docs))
	err := inParallel(ctx, len(docs), func(ctx context.Context, i int) (err error) {
		reasons[i], err = t.refuse(ctx, docs[i])
		return err
	})
	return reasons, err
}

// inParallel calls do for the numbers below n, until one of the calls fails. It returns the error.
func inParallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	doing, ctx := errgroup.WithContext(ctx)
	doing.SetLimit(checksAtOnce)
	for i := range n {
		doing.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return do(ctx, i)
		})
	}
	return doing.Wait()
}

// refusedBySettee returns why settee would not take a document.
func (t *transfer) refusedBySettee(ctx context.Context, doc *document) (string, error) {
	_, reason, err := t.Settee.check(ctx, doc)
	return reason, err
}

// check asks settee whether a document is a valid replication.
func (s *Server) check(ctx context.Context, doc *document) (warnings []string, refusal string, err error) {
	body := maps.Clone(doc.body)
	delete(body, "_attachments")
	var answer struct{ Warnings []string }
	err = s.Ask(ctx, http.MethodPost, "/_scheduler/check", body, &answer)
	switch {
	case aboutBody(err):
		return nil, "settee refuses it: " + reasonOf(err), nil
	case err != nil:
		return nil, "", fmt.Errorf("document %q: %w", doc.id, err)
	}
	return answer.Warnings, "", nil
}

// refusedByCouchDB returns why a document of settee cannot run in CouchDB.
func refusedByCouchDB(_ context.Context, doc *document) (string, error) {
	if doc.body["schedule"] != nil || doc.body["every"] != nil {
		return "CouchDB has no periodic replications", nil
	}
	if string(doc.body["paused"]) == "true" {
		return "it is paused, and CouchDB would run it", nil
	}
	return "", nil
}

// stopped waits until busy returns no job that should have stopped.
func (t *transfer) stopped(ctx context.Context, busy func(context.Context) ([]string, error)) error {
	until := time.Now().Add(stopTimeout)
	pauses := retry.Backoff{First: minStopPoll, Most: maxStopPoll}
	for {
		running, err := busy(ctx)
		if err != nil || len(running) == 0 {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("%s still runs %d jobs after %s, such as that of document %q", t.from, len(running), stopTimeout, running[0])
		}
		if err := t.report(len(running)); err != nil {
			return err
		}
		if err := retry.Wait(ctx, pauses.Next()); err != nil {
			return err
		}
	}
}

// busyInCouchDB returns documents of the database that are deleted and still have a job.
func (t *transfer) busyInCouchDB(ctx context.Context) ([]string, error) {
	listed, err := t.from.jobsOf(ctx, t.db)
	if err != nil {
		return nil, err
	}
	var busy []string
	for some := range slices.Chunk(listed, pageSize) {
		there, err := t.from.look(ctx, t.db, some)
		if err != nil {
			return nil, err
		}
		for _, id := range some {
			if there[id] != live {
				busy = append(busy, id)
			}
		}
	}
	return busy, nil
}

// busyInSettee returns running jobs of the database, or its name while it is not paused.
func (t *transfer) busyInSettee(ctx context.Context) ([]string, error) {
	var answer struct {
		Shares []struct {
			Database                   string
			Shares                     float64
			Running, Pending, Crashing int
		}
		Jobs []listed
	}
	if err := t.Settee.Get(ctx, "/_scheduler/shares", &answer); err != nil {
		return nil, err
	}
	for _, s := range answer.Shares {
		// A database without jobs that wait or run has the default shares here, whatever is set.
		if s.Database == t.db && (s.Running > 0 || s.Shares > 0 && s.Pending+s.Crashing > 0) {
			return []string{t.db}, nil
		}
	}
	query := "/_scheduler/jobs?states=running&limit=1&database=" + url.QueryEscape(t.db)
	if err := t.Settee.Get(ctx, query, &answer); err != nil || len(answer.Jobs) == 0 {
		return nil, err
	}
	return []string{answer.Jobs[0].DocID}, nil
}
