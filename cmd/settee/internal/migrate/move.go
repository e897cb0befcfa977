package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

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

// Mover moves replication documents.
type Mover struct {
	CouchDB, Settee *Server
	Tell            func(Event) error
	// Report, if it is not nil, is called from time to time.
	Report func(Progress) error
}

// transfer moves the documents of one database from a server to the other.
type transfer struct {
	*Mover
	from, to *Server
	db       string
	portion  Portion
	total    int // documents at the server that they leave, when the call began
	counts   Moved
	refuse   func(ctx context.Context, doc *document) (reason string, err error) // "" if the other server may have it
}

// Move moves documents of a database from CouchDB to settee. It continues a move that was interrupted: documents that
// were stopped then are moved even if they are not selected.
func (m *Mover) Move(ctx context.Context, db string, portion Portion) (Moved, error) {
	t := &transfer{Mover: m, from: m.CouchDB, to: m.Settee, db: db, portion: portion}
	t.refuse = t.refusedBySettee
	return t.counted(t.move(ctx))
}

// Back moves documents of a database from settee to CouchDB. It continues a way back that was interrupted. Jobs that
// CouchDB had, and that settee has never had, run in CouchDB again.
func (m *Mover) Back(ctx context.Context, db string, portion Portion) (Moved, error) {
	t := &transfer{Mover: m, from: m.Settee, to: m.CouchDB, db: db, portion: portion}
	t.refuse = refusedByCouchDB
	return t.counted(t.back(ctx))
}

func (t *transfer) counted(err error) (Moved, error) {
	t.counts.Database, t.counts.To = t.db, t.to.Name
	if err != nil {
		return t.counts, fmt.Errorf("moving the database %q to %s: %w", t.db, t.to.Name, err)
	}
	return t.counts, nil
}

func (t *transfer) move(ctx context.Context) error {
	if err := t.prepare(ctx); err != nil {
		return err
	}
	if err := t.stop(ctx); err != nil {
		return err
	}
	if err := t.stopped(ctx, t.busyInCouchDB); err != nil {
		return err
	}
	if err := t.start(ctx, t.from, t.to); err != nil {
		return err
	}
	paused, err := t.readPause(ctx)
	if err != nil || paused == nil {
		return err
	}
	// A way back was interrupted. What it has deleted here, and not written there, runs here again.
	if err := t.start(ctx, t.to, t.to); err != nil {
		return err
	}
	return t.resume(ctx, paused)
}

func (t *transfer) back(ctx context.Context) error {
	if err := t.CouchDB.connected(ctx); err != nil {
		return err
	}
	if err := t.begin(ctx); err != nil {
		return err
	}
	if err := t.copyDesign(ctx); err != nil {
		return err
	}
	paused, err := t.pause(ctx)
	if err != nil {
		return err
	}
	if err := t.stopped(ctx, t.busyInSettee); err != nil {
		return err
	}
	if err := t.stop(ctx); err != nil {
		return err
	}
	if err := t.start(ctx, t.from, t.to); err != nil {
		return err
	}
	// What CouchDB has deleted, and settee does not have, runs there again.
	if err := t.start(ctx, t.to, t.to); err != nil {
		return err
	}
	return t.resume(ctx, paused)
}

// begin counts the documents that may leave, and reports that none has left. It returns an error if there is no database that they could leave.
func (t *transfer) begin(ctx context.Context) (err error) {
	if t.total, err = t.from.documents(ctx, t.db); err != nil {
		return err
	}
	return t.report(0)
}

// documents returns the number of documents in a database that exists.
func (s *Server) documents(ctx context.Context, db string) (int, error) {
	var info struct {
		Count int `json:"doc_count"`
	}
	err := s.Get(ctx, remote.Path(db), &info)
	if !remote.IsStatus(err, http.StatusNotFound) {
		return info.Count, err
	}
	all, err := s.Databases(ctx)
	if err != nil {
		return 0, err
	}
	const most = 10 // names
	text := "none"
	if len(all) > 0 {
		text = strings.Join(all[:min(len(all), most)], ", ")
	}
	if len(all) > most {
		text += ", ..."
	}
	return 0, fmt.Errorf("%s has no database %q. Its replicator databases are: %s", s, db, text)
}

// report reports the progress. waiting is the number of jobs that have not stopped yet.
func (t *transfer) report(waiting int) error {
	if t.Report == nil {
		return nil
	}
	total := t.portion.rest(0, t.total)
	return t.Report(Progress{
		Database: t.db, Stopped: t.counts.Stopped, Moved: t.counts.Moved, Kept: t.counts.Kept, Waiting: waiting,
		Steps: int64(max(0, 2*(total-t.counts.Kept)-t.counts.Stopped-t.counts.Moved)),
	})
}

// has reports whether a database exists.
func (s *Server) has(ctx context.Context, db string) (bool, error) {
	err := s.Get(ctx, remote.Path(db), nil)
	if remote.IsStatus(err, http.StatusNotFound) {
		return false, nil
	}
	return err == nil, err
}

// connected returns an error if a node of the cluster is not connected: it may run jobs unseen.
func (s *Server) connected(ctx context.Context) error {
	_, lost, err := s.membership(ctx)
	if err == nil && len(lost) > 0 {
		err = fmt.Errorf("nodes of %s are not connected, and may run jobs: %s. Start them, or remove them from the cluster",
			s, strings.Join(lost, ", "))
	}
	return err
}

// prepare makes settee's database, and copies what is no replication.
func (t *transfer) prepare(ctx context.Context) error {
	if err := t.CouchDB.connected(ctx); err != nil {
		return err
	}
	if err := t.sameUUID(ctx); err != nil {
		return err
	}
	if err := t.begin(ctx); err != nil {
		return err
	}
	exists, err := t.to.has(ctx, t.db)
	if err != nil {
		return err
	}
	if !exists {
		if err := t.to.Ask(ctx, http.MethodPut, remote.Path(t.db), nil, nil); err != nil && !remote.IsStatus(err, http.StatusPreconditionFailed) {
			return err
		}
	}
	if err := t.copySecurity(ctx); err != nil {
		return err
	}
	return t.copyDesign(ctx)
}

func (t *transfer) sameUUID(ctx context.Context) error {
	theirs, err := t.CouchDB.welcome(ctx)
	if err != nil {
		return err
	}
	ours, err := t.Settee.welcome(ctx)
	if err == nil && ours.UUID != theirs.UUID {
		err = fmt.Errorf("the uuid of %s is %q, and that of %s is %q, so checkpoints would not be found: set [couchdb] uuid of settee's nodes, and start them again",
			t.Settee, ours.UUID, t.CouchDB, theirs.UUID)
	}
	return err
}

// adminOnly is the _security of a database of which nothing was set.
var adminOnly = map[string]any{
	"members": map[string]any{"roles": []any{"_admin"}}, "admins": map[string]any{"roles": []any{"_admin"}},
}

// copySecurity copies CouchDB's _security, unless settee's was set.
func (t *transfer) copySecurity(ctx context.Context) error {
	var theirs, ours map[string]any
	at := remote.Path(t.db) + "/_security"
	if err := t.from.Get(ctx, at, &theirs); err != nil {
		return err
	}
	if err := t.to.Get(ctx, at, &ours); err != nil {
		return err
	}
	switch {
	case len(theirs) == 0 || reflect.DeepEqual(theirs, ours):
		return nil
	case !reflect.DeepEqual(ours, adminOnly):
		return t.Tell(Note{"its _security differs from CouchDB's, and was left as it is", t.db})
	}
	return t.to.Ask(ctx, http.MethodPut, at, theirs, nil)
}

// copyDesign copies the design documents that the other server does not have.
func (t *transfer) copyDesign(ctx context.Context) error {
	exists, err := t.from.has(ctx, t.db)
	if err != nil || !exists {
		return err
	}
	return t.from.pages(ctx, t.db, func(rows []row) error {
		rows = slices.DeleteFunc(rows, func(r row) bool { return r.job() || r.Deleted })
		revs := map[string]string{}
		for _, r := range rows {
			revs[r.ID] = r.rev()
		}
		missing, err := t.to.missing(ctx, t.db, revs)
		if err != nil {
			return err
		}
		rows = slices.DeleteFunc(rows, func(r row) bool { return !missing[r.ID] })
		out := batch{to: t.to, db: t.db, refused: func(r refusal) { err = fmt.Errorf("design document %q: %s: %s", r.ID, r.Error, r.Reason) }}
		failed := t.from.fetch(ctx, t.db, rows, func(d *document) error { return out.add(ctx, d.copied(), d.size) })
		if failed == nil {
			failed = out.flush(ctx)
		}
		if failed != nil {
			return failed
		}
		return err
	})
}

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
			reason := ""
			switch {
			case there[r.ID] == live:
				reason = "there is a document with this id at " + t.to.Name + ", too: delete one of them"
			case len(r.Changes) > 1:
				if reason, err = t.conflicting(ctx, r.ID); err != nil {
					return err
				}
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

// conflicting returns why a document with several leaves stays, if two of them are live.
func (t *transfer) conflicting(ctx context.Context, id string) (string, error) {
	var doc struct {
		Conflicts []string `json:"_conflicts"`
	}
	err := t.from.Get(ctx, remote.Path(t.db, id)+"?conflicts=true", &doc)
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
	mark := quoted(time.Now().UTC().Format(time.RFC3339))
	var group []*document
	size := 0
	flush := func() error {
		reasons, err := t.refusals(ctx, group)
		if err != nil {
			return err
		}
		out := batch{to: t.from, db: t.db, newEdits: true}
		stopped := 0
		var problem error
		out.refused = func(r refusal) {
			stopped--
			if r.Error != "conflict" { // it was changed, and comes again in the feed
				problem = t.keep(r.ID, "deleting it: "+r.Error+": "+r.Reason)
			}
		}
		for i, doc := range group {
			if reasons[i] != "" {
				if err := t.keep(doc.id, reasons[i]); err != nil {
					return err
				}
				continue
			}
			stopped++
			doc.body["_deleted"], doc.body[Mark] = json.RawMessage("true"), mark
			if err := out.add(ctx, doc.body, doc.size); err != nil {
				return err
			}
		}
		group, size = nil, 0
		if err := out.flush(ctx); err != nil {
			return err
		}
		t.counts.Stopped += stopped
		return errors.Join(problem, t.report(0))
	}
	err := t.from.fetch(ctx, t.db, rows, func(doc *document) error {
		if doc.deleted {
			return nil
		}
		group, size = append(group, doc), size+doc.size
		if size < maxBatch {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// refusals returns why documents stay, or "" for those that may go.
func (t *transfer) refusals(ctx context.Context, docs []*document) ([]string, error) {
	reasons := make([]string, len(docs))
	err := inParallel(len(docs), func(i int) (err error) {
		reasons[i], err = t.refuse(ctx, docs[i])
		return err
	})
	return reasons, err
}

// inParallel calls do for the numbers below n, and returns an error of one of the calls.
func inParallel(n int, do func(i int) error) error {
	next := make(chan int)
	failed := make(chan error, checksAtOnce)
	var doing sync.WaitGroup
	for range min(n, checksAtOnce) {
		doing.Go(func() {
			var err error
			for i := range next {
				if err == nil {
					err = do(i)
				}
			}
			failed <- err
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	doing.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
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

// start writes the documents that were deleted at one server, because they moved, and that the other one does not have
// yet, to a server: the other one, or the same. If the other one has a document with the id meanwhile, that one runs.
func (t *transfer) start(ctx context.Context, left, to *Server) error {
	return left.pages(ctx, t.db, func(rows []row) error {
		going, err := t.unstarted(ctx, left, rows)
		if err != nil {
			return err
		}
		return t.revive(ctx, left, to, going)
	})
}

// unstarted returns the rows of documents that are deleted at a server, and that the other one does not have. Some may
// have been deleted without a move.
func (t *transfer) unstarted(ctx context.Context, left *Server, rows []row) ([]row, error) {
	other := t.from
	if left == t.from {
		other = t.to
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return !r.Deleted || !r.job() })
	revs := map[string]string{}
	for _, r := range rows {
		revs[r.ID] = childOf(r.rev())
	}
	missing, err := other.missing(ctx, t.db, revs)
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return !missing[r.ID] })
	there, err := other.look(ctx, t.db, ids(rows))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(rows, func(r row) bool { return there[r.ID] == live }), nil
}

// revive writes the children of deleted documents, and those that a server does not take to the one that they left.
func (t *transfer) revive(ctx context.Context, left, to *Server, rows []row) error {
	reasons := map[string]string{}
	out := batch{to: to, db: t.db, refused: func(r refusal) { reasons[r.ID] = r.Error + ": " + r.Reason }}
	written := map[string]string{}
	if err := left.fetch(ctx, t.db, rows, func(doc *document) error {
		if !doc.moved() {
			return nil // somebody has deleted it
		}
		written[doc.id] = childOf(doc.rev)
		return out.add(ctx, doc.revived(), doc.size)
	}); err != nil {
		return err
	}
	if err := out.flush(ctx); err != nil {
		return err
	}
	lost, err := to.missing(ctx, t.db, written)
	if err != nil {
		return err
	}
	var again []row
	for _, r := range rows {
		switch reason, given := reasons[r.ID]; {
		case written[r.ID] == "":
		case !lost[r.ID]:
			if to == t.to {
				t.counts.Moved++
			}
		case !given, left == to:
			return fmt.Errorf("%s did not take document %q: %s", to, r.ID, reason)
		default:
			again = append(again, r)
			if err := t.keep(r.ID, to.Name+" refuses it: "+reason); err != nil {
				return err
			}
		}
	}
	if len(again) == 0 {
		return t.report(0)
	}
	return t.revive(ctx, left, left, again)
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
