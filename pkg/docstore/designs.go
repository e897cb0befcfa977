package docstore

import (
	"settee/pkg/kv"
)

// Design is a design document that is not deleted.
type Design struct {
	ID string
	// Rev is its winning revision.
	Rev Rev
}

// readDesigns starts reading the design documents, if the write has a check. A change of one conflicts with the write.
func (w *writer) readDesigns() (await func() error) {
	if w.opts.Check == nil {
		return func() error { return nil }
	}
	within := nameRange(w.db.keys.index, "_design/", "_design0", false, true)
	read := w.tx.GetRange(within, kv.RangeOptions{})
	return func() error {
		pairs, err := read.Slice()
		if err != nil {
			return err
		}
		w.designs = make([]Design, len(pairs))
		for i, pair := range pairs {
			row, _, err := w.db.parseIndex(pair)
			if err != nil {
				return err
			}
			w.designs[i] = Design{row.ID, row.Rev}
		}
		return nil
	}
}

// check calls the check of the write for a revision that is to be added.
func (w *writer) check(d *docWrite, p *prepared, l *leaf) error {
	if w.opts.Check == nil {
		return nil
	}
	change := d.change(l, p.Body, d.tree.Winner())
	change.Parent = p.Rev
	if w.opts.Replicated {
		if parent := replaced(d.tree, l); parent != nil {
			change.Parent = Rev(parent.Rev())
		}
	}
	return w.opts.Check(p.index, change, w.designs)
}
