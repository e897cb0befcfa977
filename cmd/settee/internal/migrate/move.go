package migrate

import (
	"context"
	"fmt"
)

// Mover moves replication documents.
type Mover struct {
	CouchDB, Settee *Server
	// TakeOver says that documents that have moved to a database of another store belong to these servers, because that
	// store is lost. Without it such documents are left alone, and Move and Back return an error if there are any.
	TakeOver bool
	Tell     func(Event) error
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
	ids      map[*Server]string                                                  // of the database, from its records
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

// other returns the server of the two that is not s.
func (m *Mover) other(s *Server) *Server {
	if s == m.CouchDB {
		return m.Settee
	}
	return m.CouchDB
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
	r, err := t.Settee.readRecord(ctx, t.db)
	if err != nil || r.Pause == nil {
		return err
	}
	// A way back was interrupted. What it has deleted here, and not written there, runs here again.
	if err := t.start(ctx, t.to, t.to); err != nil {
		return err
	}
	return t.resume(ctx)
}

func (t *transfer) back(ctx context.Context) error {
	if err := t.CouchDB.connected(ctx); err != nil {
		return err
	}
	if err := t.begin(ctx); err != nil {
		return err
	}
	if err := t.undivided(ctx); err != nil {
		return err
	}
	if err := t.identify(ctx); err != nil {
		return err
	}
	if err := t.copyDesign(ctx); err != nil {
		return err
	}
	if err := t.pause(ctx); err != nil {
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
	return t.resume(ctx)
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
