package migrate

import (
	"context"
	"fmt"
	"slices"
)

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
	other := t.other(left)
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

// belongs reports whether a document of a server was deleted because it moved to the other server of this call.
func (t *transfer) belongs(left *Server, doc *document) bool {
	m := doc.moved()
	return m != nil && (t.TakeOver || m.ID == t.ids[t.other(left)])
}

// revive writes the children of deleted documents, and those that a server does not take to the one that they left.
func (t *transfer) revive(ctx context.Context, left, to *Server, rows []row) error {
	reasons := map[string]string{}
	out := batch{to: to, db: t.db, refused: func(r refusal) error {
		reasons[r.ID] = r.Error + ": " + r.Reason
		return nil
	}}
	written := map[string]string{}
	if err := left.fetch(ctx, t.db, rows, func(doc *document) error {
		if !t.belongs(left, doc) {
			return nil // it was deleted, or has moved elsewhere
		}
		t.counts.Began = true
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
