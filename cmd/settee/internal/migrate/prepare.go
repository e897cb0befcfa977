package migrate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"settee/cmd/settee/internal/remote"
)

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
	if err := t.undivided(ctx); err != nil {
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
	if err := t.identify(ctx); err != nil {
		return err
	}
	if err := t.copySecurity(ctx); err != nil {
		return err
	}
	return t.copyDesign(ctx)
}

// undivided returns an error if documents have moved to a database of another store. Their jobs run there, or would run at
// two servers if the call went on.
func (t *transfer) undivided(ctx context.Context) error {
	s, err := t.stranded(ctx)
	if err == nil && s.Elsewhere > 0 {
		err = errors.New(s.elsewhere())
	}
	return err
}

// identify notes the id of the database to which documents move. The database exists.
func (t *transfer) identify(ctx context.Context) (err error) {
	t.ids[t.to], err = t.to.identify(ctx, t.db)
	return err
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
		out := batch{to: t.to, db: t.db, refused: func(r refusal) error {
			return fmt.Errorf("design document %q: %s: %s", r.ID, r.Error, r.Reason)
		}}
		if err := t.from.fetch(ctx, t.db, rows, func(d *document) error { return out.add(ctx, d.copied(), d.size) }); err != nil {
			return err
		}
		return out.flush(ctx)
	})
}
