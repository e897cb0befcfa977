package frontend

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

	"settee/pkg/docstore"
	"settee/pkg/redact"
)

const (
	// heldBack is how long a row is held back at most, while changes behind it are read that are
	// not shown.
	heldBack = time.Second
	// standingLasts is how long a feed goes on before it looks again who may follow it.
	standingLasts = time.Second
)

// feed is a changes feed that is being sent: by the goroutine of its request, which has no
// other. While it waits it keeps nothing but what it was asked for.
type feed struct {
	h       *Handler
	db      *docstore.Database
	r       *http.Request
	request *changesRequest

	out    *stream
	format feedFormat

	since     docstore.Sequence // all changes up to it were dealt with
	remaining int               // rows, of the limit
	read      int64             // rows
	first     bool              // nothing was read yet

	sent    time.Time // when something was last sent, or held back
	unsent  bool      // rows are held back
	flushed time.Time
	waiting time.Time // since when there was no row; zero: there was one since it last waited

	standing standing  // of its user, as the feed began
	stood    time.Time // when that was last looked at
}

func newFeed(h *Handler, w http.ResponseWriter, r *http.Request, db *docstore.Database, request *changesRequest) *feed {
	format := formatOf(request.kind)
	if request.kind == feedEventSource {
		w.Header().Set("Cache-Control", "no-cache")
	}
	now := time.Now()
	return &feed{
		h: h, db: db, r: r, request: request,
		out: newStream(w, r, http.StatusOK, format.contentType), format: format,
		since: request.since, remaining: request.limit, first: true,
		sent: now, flushed: now,
	}
}

// run sends the feed until it ends.
func (f *feed) run() error {
	if f.r.Method == http.MethodHead {
		return f.out.flush()
	}
	if err := f.stand(); err != nil {
		return docFailure(err)
	}
	if err := f.out.text(f.format.head); err != nil {
		return err
	}
	for {
		whole, err := f.readOn()
		if isMissing(err) && f.request.kind != feedNormal && f.out.begun {
			return f.end("0") // there is nothing that could be pending
		}
		if err != nil {
			return f.fail(docFailure(err))
		}
		if f.isOver(whole) {
			return f.stop(whole)
		}
		more, err := f.wait()
		if err != nil {
			return err
		}
		if more {
			more, err = f.stands()
		}
		if err != nil {
			return err
		}
		if !more {
			return f.end("0")
		}
	}
}

// stand notes how its user stands, if the feed may go on for long.
func (f *feed) stand() (err error) {
	if f.request.kind == feedNormal {
		return nil
	}
	f.stood = time.Now()
	f.standing, err = f.h.standing(f.r, f.db)
	return err
}

// stands reports whether the feed may go on: what says who may follow it is as it was when the feed
// began. Otherwise its client has to ask again.
func (f *feed) stands() (bool, error) {
	now := time.Now()
	if now.Sub(f.stood) < standingLasts {
		return true, nil
	}
	f.stood = now
	found, err := f.h.standing(f.r, f.db)
	if isMissing(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking who may follow a changes feed: %w", err)
	}
	return found == f.standing, nil
}

// isOver reports whether the feed does not wait for more. whole says that there is nothing
// more at present.
func (f *feed) isOver(whole bool) bool {
	switch {
	case !whole, f.request.kind == feedNormal, f.request.descending:
		return true
	}
	return f.request.kind == feedLongpoll && f.remaining < f.request.limit
}

// readOn sends the changes that there are behind since. whole is false if it left some out:
// the limit was reached, or the node is going away.
func (f *feed) readOn() (whole bool, err error) {
	if f.remaining == 0 {
		return false, nil
	}
	reading := f.db.Changes(f.options())
	f.first = false
	defer func() { f.since = reading.Last() }()
	for row, err := range reading.All(f.r.Context()) {
		if err != nil {
			return false, err
		}
		f.read++
		if err := f.change(&row); err != nil {
			return false, err
		}
		// A client that asks for what there is takes less for all of it.
		if f.remaining == 0 || f.h.isDraining() && f.request.kind != feedNormal {
			return false, nil
		}
	}
	return true, nil
}

// options says how the changes behind since are read.
func (f *feed) options() docstore.ChangesOptions {
	request := f.request
	opts := docstore.ChangesOptions{
		Since: f.since, Descending: request.descending,
		Documents: request.documents || request.filter.selector != nil, Conflicts: request.conflicts,
	}
	opts.Conflicts = opts.Conflicts && opts.Documents
	if request.filter.all() && request.limit < noLimit {
		opts.Limit = f.remaining
	}
	if f.first && request.filter.ids != nil {
		// What comes later is little: it is looked through for these.
		opts.IDs = slices.AppendSeq([]string{}, maps.Keys(request.filter.ids))
	}
	return opts
}

// change sends a change, if the filter lets it pass.
func (f *feed) change(row *docstore.ChangeRow) error {
	if row.Document != nil {
		row.Document.DeletedConflicts = nil // nobody can ask for these here
	}
	revs, err := f.passing(f.r.Context(), row)
	if err != nil {
		return err
	}
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

// pulse keeps the feed alive while it reads what it does not show.
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
	if err := f.out.text(f.format.heartbeat); err != nil {
		return err
	}
	f.sent = time.Now()
	return f.flush()
}

func (f *feed) flush() error {
	f.unsent, f.flushed = false, time.Now()
	return f.out.flush()
}

// wait waits for a change behind since. more is false if the feed ends without: it waited as
// long as it was to, the database was deleted, others need the room, so that the client has to ask
// again, or the node is going away, so that the client comes again to another one.
func (f *feed) wait() (more bool, err error) {
	if err := f.flush(); err != nil {
		return false, err
	}
	f.out.buffer = nil // it may be for hours
	if f.waiting.IsZero() {
		f.waiting = time.Now()
	}
	ctx, cancel := context.WithCancelCause(f.r.Context())
	defer cancel(nil)
	defer context.AfterFunc(f.h.draining, func() { cancel(errGoingAway) })()
	defer f.h.connections.wait(f.r, waitsForChange, func() { cancel(errNoRoom) })()
	for {
		err := f.waitUntil(ctx, f.due())
		switch {
		case f.r.Context().Err() != nil:
			return false, errClientGone
		case errors.Is(context.Cause(ctx), errNoRoom): // even if there is a change: the next request gets it
			return false, nil
		case err == nil:
			return true, nil
		case isMissing(err), errors.Is(err, docstore.ErrClosed), errors.Is(err, errGoingAway):
			return false, nil
		case !errors.Is(err, context.DeadlineExceeded):
			return false, fmt.Errorf("waiting for a change: %w", err)
		case f.request.heartbeat == 0:
			return false, nil
		}
		if goesOn, err := f.stands(); !goesOn || err != nil {
			return false, err
		}
		if err := f.beat(); err != nil {
			return false, err
		}
	}
}

// due is when the feed ends or sends a heartbeat.
func (f *feed) due() time.Time {
	if f.request.heartbeat > 0 {
		return f.sent.Add(f.request.heartbeat)
	}
	return f.waiting.Add(f.request.timeout)
}

// waitUntil waits for a change up to a time. Behind that there is none, even if there is one:
// where changes are many, and none passes the filter, the feed has to end all the same.
func (f *feed) waitUntil(ctx context.Context, due time.Time) error {
	if !time.Now().Before(due) {
		return cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
	}
	ctx, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	return f.db.WaitChange(ctx, f.since)
}

// fail ends the feed with what was wrong with its request. If it has begun, the error follows its rows as an
// object of its own, as in CouchDB before 2.0, and there is no last_seq: a client does not take that for the end,
// and a replicator reads the reason. Other errors are the caller's.
func (f *feed) fail(err error) error {
	var refused *failure
	if !f.out.begun || !errors.As(err, &refused) {
		return err
	}
	zerolog.Ctx(f.r.Context()).Info().Str("reason", redact.Text(refused.reason)).Msg("a changes feed was ended early")
	line := appender{to: f.out}
	line.raw(f.format.beforeError).raw(`{"code":`).number(int64(refused.status))
	line.raw(`,"error":`).value(refused.code).raw(`,"reason":`).value(refused.reason).raw("}").raw(f.format.afterError)
	if line.err != nil {
		return line.err
	}
	return f.out.end()
}

// stop ends the feed where it was read to.
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

// stopDescending ends a feed with as many pending changes as there are before what was read.
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

// end sends the end of the feed. n is what is pending, as JSON.
func (f *feed) end(n string) error {
	if f.format.tail != nil {
		if err := f.out.text(f.format.tail(f.since.String(), n)...); err != nil {
			return err
		}
	}
	if err := f.out.text("\n"); err != nil { // as behind all that CouchDB sends in pieces
		return err
	}
	return f.out.end()
}
