package migrate

import (
	"context"
	"fmt"
)

// Stranded says what an interrupted call has left of a database.
type Stranded struct {
	Database string
	Nowhere  int  // jobs that were stopped at one server, and that the other one does not have
	Paused   bool // settee's database is paused
}

// Warnings returns what an operator should know about it, a text for each fact.
func (s Stranded) Warnings() (all []string) {
	if s.Paused {
		all = append(all, "the database "+s.Database+" is paused in settee")
	}
	if s.Nowhere > 0 {
		all = append(all, counted(s.Nowhere, "job")+" of "+s.Database+" run nowhere now")
	}
	return all
}

// Stranded returns what calls that were interrupted have left of a database.
func (m *Mover) Stranded(ctx context.Context, db string) (Stranded, error) {
	t := &transfer{Mover: m, from: m.CouchDB, to: m.Settee, db: db}
	s, err := t.stranded(ctx)
	if err != nil {
		err = fmt.Errorf("looking at what is left of the database %q: %w", db, err)
	}
	return s, err
}

func (t *transfer) stranded(ctx context.Context) (Stranded, error) {
	s := Stranded{Database: t.db}
	for _, left := range []*Server{t.CouchDB, t.Settee} {
		exists, err := left.has(ctx, t.db)
		if err != nil {
			return s, err
		}
		if !exists {
			continue
		}
		n, err := t.nowhere(ctx, left)
		if err != nil {
			return s, err
		}
		s.Nowhere += n
		if left == t.Settee {
			record, err := t.readPause(ctx)
			if err != nil {
				return s, err
			}
			s.Paused = record != nil
		}
	}
	return s, nil
}

// nowhere returns the number of documents that were deleted at a server because they moved, and that the other one does
// not have.
func (t *transfer) nowhere(ctx context.Context, left *Server) (n int, err error) {
	err = left.pages(ctx, t.db, func(rows []row) error {
		rows, err := t.unstarted(ctx, left, rows)
		if err != nil {
			return err
		}
		return left.fetch(ctx, t.db, rows, func(doc *document) error {
			if doc.moved() {
				n++
			}
			return nil
		})
	})
	return n, err
}
