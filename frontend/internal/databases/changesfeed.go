package databases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"settee/frontend/internal/access"
	"settee/frontend/internal/web"
	"settee/pkg/budget"
	"settee/pkg/docstore"
	"settee/pkg/redact"
)

const (
	// heldBack is how long a row is held back at most, while later changes are read that are not shown.
	heldBack = time.Second
	// rightsInterval is the least time between two checks whether the rights of the feed's user have changed.
	rightsInterval = time.Second
)

// feed is a changes feed that is being sent by the goroutine of its request. It has no other goroutine. While it
// waits it keeps only its parameters in memory.
type feed struct {
	endpoints *Endpoints
	db        *docstore.Database
	r         *http.Request
	request   *changesRequest

	out    *web.Stream
	format feedFormat

	since     docstore.Sequence // all changes up to it were sent or skipped
	remaining int               // rows until the limit
	read      int64             // rows so far
	first     bool              // no change was read yet

	sent    time.Time // when something was last sent or held back
	unsent  bool      // rows are held back
	flushed time.Time
	waiting time.Time // when the wait for the next row began; zero: it has not begun

	filterRequest string // what a filter function gets as the request, as JSON; empty: not made yet

	rights  access.Fingerprint // of its user, when the feed began
	checked time.Time          // when rights was last compared
}

func newFeed(e *Endpoints, w http.ResponseWriter, r *http.Request, db *docstore.Database, request *changesRequest) *feed {
	format := formatOf(request.kind)
	if request.kind == feedEventSource {
		w.Header().Set("Cache-Control", "no-cache")
	}
	now := time.Now()
	return &feed{
		endpoints: e, db: db, r: r, request: request,
		out: web.NewStream(w, r, http.StatusOK, format.contentType), format: format,
		since: request.since, remaining: request.limit, first: true,
		sent: now, flushed: now,
	}
}

// run sends the feed until it ends.
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
		if err := f.takeMemory(); err != nil {
			if f.out.Begun() && f.request.kind != feedNormal {
				return f.end("0") // the client asks again
			}
			return f.fail(err)
		}
		whole, err := f.readOn()
		if isMissing(err) && f.request.kind != feedNormal && f.out.Begun() {
			return f.end("0") // the database was deleted
		}
		if err != nil {
			return f.fail(web.StoreFailure(err))
		}
		if f.isOver(whole) {
			return f.stop(whole)
		}
		more, err := f.wait()
		if err != nil {
			return err
		}
		if more {
			more, err = f.keepsRights()
		}
		if err != nil {
			return err
		}
		if !more {
			return f.end("0")
		}
	}
}

// noteRights records the rights of the user at the beginning of a feed that may take long.
func (f *feed) noteRights() (err error) {
	if f.request.kind == feedNormal {
		return nil
	}
	f.checked = time.Now()
	f.rights, err = f.endpoints.Guard.Fingerprint(f.r, f.db)
	return err
}

// keepsRights reports whether the feed may go on: the rights of its user are those at its beginning. Otherwise the
// client has to make a new request.
func (f *feed) keepsRights() (bool, error) {
	now := time.Now()
	if now.Sub(f.checked) < rightsInterval {
		return true, nil
	}
	f.checked = now
	found, err := f.endpoints.Guard.Fingerprint(f.r, f.db)
	if isMissing(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking who may follow a changes feed: %w", err)
	}
	return found == f.rights, nil
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
	f.sent, f.unsent, f.waiting = time.Now(), true, time.Time{}
	return nil
}

// pulse sends a heartbeat or the rows that are held back, if it is time to, while the feed reads changes that it
// does not show.
func (f *feed) pulse() error {
	now := time.Now()
	switch {
	case f.request.heartbeat > 0 && now.Sub(f.sent) >= f.request.heartbeat:
		return f.beat()
	case f.unsent && now.Sub(f.flushed) >= heldBack:
		return f.flush()
	}
	return nil
}

func (f *feed) beat() error {
	if err := f.out.Text(f.format.heartbeat); err != nil {
		return err
	}
	f.sent = time.Now()
	return f.flush()
}

func (f *feed) flush() error {
	f.unsent, f.flushed = false, time.Now()
	return f.out.Flush()
}

// wait waits for a change after since. more is false if the feed ends instead: its timeout has passed, the database
// was deleted, its place is needed for another request, or the node is going away. In the last two cases the client
// makes a new request, and a load balancer sends it to another node.
func (f *feed) wait() (more bool, err error) {
	if err := f.flush(); err != nil {
		return false, err
	}
	f.out.Idle()
	if f.waiting.IsZero() {
		f.waiting = time.Now()
	}
	ctx, done := f.endpoints.Connections.Wait(f.r, web.ForChange)
	defer done()
	for {
		err := f.waitUntil(ctx, f.due())
		switch {
		case f.r.Context().Err() != nil:
			return false, web.ErrClientGone
		case errors.Is(context.Cause(ctx), web.ErrNoRoom): // even if there is a change, which the next request of the client finds
			return false, nil
		case err == nil:
			return true, nil
		case isMissing(err), errors.Is(err, docstore.ErrClosed), errors.Is(err, web.ErrGoingAway):
			return false, nil
		case !errors.Is(err, context.DeadlineExceeded):
			return false, fmt.Errorf("waiting for a change: %w", err)
		case f.request.heartbeat == 0:
			return false, nil
		}
		if goesOn, err := f.keepsRights(); !goesOn || err != nil {
			return false, err
		}
		if err := f.beat(); err != nil {
			return false, err
		}
	}
}

// due returns when the feed ends or sends a heartbeat.
func (f *feed) due() time.Time {
	if f.request.heartbeat > 0 {
		return f.sent.Add(max(f.request.heartbeat, f.endpoints.Connections.Pace(f.r)))
	}
	return f.waiting.Add(f.request.timeout)
}

// waitUntil waits for a change until a time. If the time has passed it returns an error even if there is a change:
// a feed whose filter passes none of many changes has to end, too.
func (f *feed) waitUntil(ctx context.Context, due time.Time) error {
	if !time.Now().Before(due) {
		return cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
	}
	ctx, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	return f.db.WaitChange(ctx, f.since)
}

// fail ends the feed with a failure of its request. If the feed has begun, the failure follows its rows as an
// object of its own, as in CouchDB before 2.0, and there is no last_seq. So a client does not take it for the end,
// and a replicator reads the reason. Other errors are returned.
func (f *feed) fail(err error) error {
	var refused *web.Failure
	if !f.out.Begun() || !errors.As(err, &refused) {
		return err
	}
	zerolog.Ctx(f.r.Context()).Info().Str("reason", redact.Text(refused.Reason)).Msg("a changes feed was ended early")
	line := web.Appender{To: f.out}
	line.Raw(f.format.beforeError).Raw(`{"code":`).Number(int64(refused.Status))
	line.Raw(`,"error":`).Value(refused.Code).Raw(`,"reason":`).Value(refused.Reason).Raw("}").Raw(f.format.afterError)
	if line.Err != nil {
		return line.Err
	}
	return f.out.End()
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
func (f *feed) end(n string) error {
	if f.format.tail != nil {
		if err := f.out.Text(f.format.tail(f.since.String(), n)...); err != nil {
			return err
		}
	}
	if err := f.out.Text("\n"); err != nil { // CouchDB ends all chunked answers with it
		return err
	}
	return f.out.End()
}
