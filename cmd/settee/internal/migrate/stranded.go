package migrate

import (
	"context"
	"fmt"
)

// Stranded says which documents of a database have moved and are not at the server to which they moved, as far as the two
// servers know.
type Stranded struct {
	Database string
	Nowhere  int  // jobs that were stopped at one server, and that the other one does not have: a call was interrupted
	Paused   bool // settee's database is paused
	// Elsewhere is the number of documents that have moved to a database of another store, and Where is the URL of its
	// server in one of their marks.
	Elsewhere int
	Where     string
}

// Warnings returns what an operator should know about an interrupted call, a text for each fact.
func (s Stranded) Warnings() (all []string) {
	if s.Paused {
		all = append(all, "the database "+s.Database+" is paused in settee")
	}
	if s.Nowhere > 0 {
		all = append(all, counted(s.Nowhere, "job")+" of "+s.Database+" run nowhere now")
	}
	return all
}

// elsewhere says what to do about documents that have moved elsewhere.
func (s Stranded) elsewhere() string {
	return fmt.Sprintf("%s of %s moved to another server, %s, where their jobs run: move them back from there. "+
		"Say --take-over if its store is lost; otherwise the jobs would run twice", counted(s.Elsewhere, "document"), s.Database, s.Where)
}

// Stranded returns which documents of a database are at neither server.
func (m *Mover) Stranded(ctx context.Context, db string) (Stranded, error) {
	t := &transfer{Mover: m, from: m.CouchDB, to: m.Settee, db: db}
	s, err := t.stranded(ctx)
	if err != nil {
		err = fmt.Errorf("looking at what is left of the database %q: %w", db, err)
	}
	return s, err
}

// stranded also notes the ids of the database.
func (t *transfer) stranded(ctx context.Context) (Stranded, error) {
	s := Stranded{Database: t.db}
	t.ids = map[*Server]string{}
	for _, server := range []*Server{t.CouchDB, t.Settee} {
		r, err := server.readRecord(ctx, t.db)
		if err != nil {
			return s, err
		}
		t.ids[server] = r.ID
		s.Paused = s.Paused || r.Pause != nil
	}
	for _, left := range []*Server{t.CouchDB, t.Settee} {
		exists, err := left.has(ctx, t.db)
		if err == nil && exists {
			err = t.lookForMoved(ctx, left, &s)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// lookForMoved counts the documents that were deleted at a server because they moved, and that the other one does not have.
func (t *transfer) lookForMoved(ctx context.Context, left *Server, s *Stranded) error {
	return left.pages(ctx, t.db, func(rows []row) error {
		rows, err := t.unstarted(ctx, left, rows)
		if err != nil {
			return err
		}
		return left.fetch(ctx, t.db, rows, func(doc *document) error {
			switch m := doc.moved(); {
			case m == nil:
			case t.belongs(left, doc):
				s.Nowhere++
			default:
				s.Elsewhere, s.Where = s.Elsewhere+1, m.To
			}
			return nil
		})
	})
}
