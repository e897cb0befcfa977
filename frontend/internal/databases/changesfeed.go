package databases

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"settee/frontend/internal/web"
	"settee/pkg/budget"
	"settee/pkg/docstore"
)

// feed is a changes feed that is being sent by the goroutine of its request. It has no other goroutine. While it
// waits it keeps only its parameters in memory.
type feed struct {
	sending
	db      *docstore.Database
	request *changesRequest

	since     docstore.Sequence // all changes up to it were sent or skipped
	remaining int               // rows until the limit
	read      int64             // rows so far
	first     bool              // no change was read yet

	filterRequest string // what a filter function gets as the request, as JSON; empty: not made yet
}

func newFeed(e *Endpoints, w http.ResponseWriter, r *http.Request, db *docstore.Database, request *changesRequest, since docstore.Sequence) *feed {
	f := &feed{
		sending: newSending(e, w, r, request.kind, formatOf(request.kind), request.patience),
		db:      db, request: request,
		since: since, remaining: request.limit, first: true,
	}
	f.of = db
	f.next = func(ctx context.Context) error { return db.WaitChange(ctx, f.since) }
	return f
}

// run sends the feed until it ends.
//
// Thousands of feeds wait below run, most of them for runs of this node. A stack of 16 KiB shrinks to half of that if 3,296
// bytes are in use, or less, all of net/http's included. So run and the functions on the way to it leave what they do before
// and after the wait to others.
func (f *feed) run() error {
	if f.r.Method == http.MethodHead {
		return f.out.Flush()
	}
	if err := f.noteRights(); err != nil {
		return web.StoreFailure(err)
	}
	if err := f.out.Text(f.format.head); err != nil {
		return err
	}
	for {
		if over, err := f.sendOn(); over {
			return err
		}
		if over, err := f.goOn(f.wait()); over {
			return err
		}
	}
}

// sendOn sends the changes that there are, and reports whether the feed ends instead of waiting for more. Then it returns
// the error of run.
func (f *feed) sendOn() (over bool, _ error) {
	if err := f.takeMemory(); err != nil {
		if f.out.Begun() && f.request.kind != feedNormal {
			return true, f.end("0") // the client asks again
		}
		return true, f.fail(err)
	}
	whole, err := f.readOn()
	if isMissing(err) && f.request.kind != feedNormal && f.out.Begun() {
		return true, f.end("0") // the database was deleted
	}
	if err != nil {
		return true, f.fail(web.StoreFailure(err))
	}
	if f.isOver(whole) {
		return true, f.stop(whole)
	}
	return false, nil
}

// goOn reports whether the feed ends after wait has returned more and err. Then it returns the error of run.
func (f *feed) goOn(more bool, err error) (over bool, _ error) {
	if err == nil && more {
		more, err = f.keepsRights()
	}
	switch {
	case err != nil:
		return true, err
	case !more:
		return true, f.end("0")
	}
	return false, nil
}

// isOver reports whether the feed ends instead of waiting for more. whole: all changes that there are were read.
func (f *feed) isOver(whole bool) bool {
	switch {
	case !whole, f.request.kind == feedNormal, f.request.descending:
		return true
	}
	return f.request.kind == feedLongpoll && f.remaining < f.request.limit
}

// readOn sends the changes after since. whole is false if some are left, because the limit was reached or the node
// is going away.
func (f *feed) readOn() (whole bool, err error) {
	if f.remaining == 0 {
		return false, nil
	}
	reading := f.db.Changes(f.options())
	f.first = false
	if f.request.filter.function != nil {
		return f.readFiltered(reading)
	}
	defer func() { f.since = reading.Last() }()
	for row, err := range reading.All(f.r.Context()) {
		if err != nil {
			return false, err
		}
		f.read++
		if err := f.change(&row); err != nil {
			return false, err
		}
		if f.stops() {
			return false, nil
		}
	}
	return true, nil
}

// takeMemory takes the memory for the changes that are read at a time. The feed gives it back while it waits. The rows that
// wake a feed are few, and part of the cost of its connection: a change may wake thousands of feeds at once.
func (f *feed) takeMemory() error {
	memory := web.MemoryOf(f.r)
	switch {
	case f.request.filter.function != nil:
		return memory.Take(f.r.Context(), pageCost+filterBytes*wholeCost, budget.Most)
	case f.request.documents || f.request.filter.readsDocuments():
		return memory.Take(f.r.Context(), pageCost, budget.All)
	}
	if !f.first {
		return nil
	}
	return memory.Take(f.r.Context(), rowsCost, budget.All)
}

// stops reports whether the feed stops before the end of the changes: the limit was reached, or the node is going away.
// In that case a normal feed goes on: its client takes the end for the last change.
func (f *feed) stops() bool {
	return f.remaining == 0 || f.endpoints.Connections.Draining() && f.request.kind != feedNormal
}

// options returns how the changes after since are read.
func (f *feed) options() docstore.ChangesOptions {
	request := f.request
	opts := docstore.ChangesOptions{
		Since: f.since, Descending: request.descending,
		Documents: request.documents || request.filter.readsDocuments(), Conflicts: request.conflicts,
		LargeBody: largeBody,
	}
	opts.Conflicts = opts.Conflicts && opts.Documents
	if request.filter.all() && request.limit < noLimit {
		opts.Limit = f.remaining
	}
	if f.first && request.filter.ids != nil {
		// Later changes are few. They are read without the index of ids, and filtered.
		opts.IDs = slices.AppendSeq([]string{}, maps.Keys(request.filter.ids))
	}
	return opts
}

// change sends a change that passes the filter.
func (f *feed) change(row *docstore.ChangeRow) error {
	if row.Document != nil {
		row.Document.DeletedConflicts = nil // feeds do not show them
	}
	revs, err := f.passing(f.r.Context(), row)
	if err != nil {
		return err
	}
	return f.sendOrPulse(row, revs)
}

// sendOrPulse sends a row, unless none of its revisions passes the filter.
func (f *feed) sendOrPulse(row *docstore.ChangeRow, revs []docstore.Rev) error {
	if len(revs) == 0 {
		return f.pulse()
	}
	if err := f.send(row, revs); err != nil {
		return err
	}
	f.remaining--
	f.hold()
	return nil
}

// stop ends the feed with its last sequence, and the number of changes after it.
func (f *feed) stop(whole bool) error {
	if whole {
		return f.end("0")
	}
	if f.request.descending {
		return f.stopDescending()
	}
	n, err := pending(f.r.Context(), f.db, f.since)
	if err != nil {
		return err
	}
	return f.end(n)
}

// stopDescending ends a descending feed with the number of changes before its last one.
func (f *feed) stopDescending() error {
	info, err := readInfo(f.r, f.db)
	if err != nil {
		return err
	}
	n := max(0, info.DocCount+info.DeletedCount-f.read)
	if n > pendingMost {
		return f.end("null")
	}
	return f.end(strconv.FormatInt(n, 10))
}

// end sends the end of the feed. n is the number of pending changes, as JSON.
func (f *feed) end(n string) error { return f.sending.end(f.since, n) }
