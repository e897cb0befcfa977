package databases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"settee/frontend/internal/access"
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/redact"
)

const (
	// heldBack is how long a row is held back at most, while later changes are read that are not shown.
	heldBack = time.Second
	// rightsInterval is the least time between two checks whether the rights of the feed's user have changed.
	rightsInterval = time.Second
)

// sending is a feed while it is sent: its rows, its heartbeats, and its waits for the next row.
type sending struct {
	endpoints *Endpoints
	r         *http.Request
	out       *web.Stream
	kind      feedKind
	format    feedFormat
	patience

	of   *docstore.Database              // whose security object decides about rights; nil means feeds of administrators
	next func(ctx context.Context) error // waits for the next row

	sent    time.Time // when something was last sent or held back
	unsent  bool      // rows are held back
	flushed time.Time
	waiting time.Time // when the wait for the next row began; zero: it has not begun

	rights  access.Fingerprint // of its user, when the feed began
	checked time.Time          // when rights was last compared
}

func newSending(e *Endpoints, w http.ResponseWriter, r *http.Request, kind feedKind, format feedFormat, p patience) sending {
	if kind == feedEventSource {
		w.Header().Set("Cache-Control", "no-cache")
	}
	// From now on the connection is read only to notice that the client hangs up.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	now := time.Now()
	return sending{
		endpoints: e, r: r, out: web.NewStream(w, r, http.StatusOK, format.contentType), kind: kind, format: format,
		patience: p, sent: now, flushed: now,
	}
}

// hold notes that a row was sent, which may be held back.
func (f *sending) hold() { f.sent, f.unsent, f.waiting = time.Now(), true, time.Time{} }

// noteRights records the rights of the user at the beginning of a feed that may take long.
func (f *sending) noteRights() (err error) {
	if f.kind == feedNormal {
		return nil
	}
	f.checked = time.Now()
	f.rights, err = f.endpoints.Guard.Fingerprint(f.r, f.of)
	return err
}

// keepsRights reports whether the feed may go on: its user still has the rights from its beginning. Otherwise
// the client has to make a new request.
func (f *sending) keepsRights() (bool, error) {
	now := time.Now()
	if now.Sub(f.checked) < rightsInterval {
		return true, nil
	}
	f.checked = now
	var found access.Fingerprint
	var err error
	kv.OnOwnStack(func() { found, err = f.endpoints.Guard.Fingerprint(f.r, f.of) })
	if isMissing(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking who may follow a changes feed: %w", err)
	}
	return found == f.rights, nil
}

// pulse sends a heartbeat or the rows that are held back, if it is time to, while the feed reads changes that it
// does not show.
func (f *sending) pulse() error {
	now := time.Now()
	switch {
	case f.heartbeat > 0 && now.Sub(f.sent) >= f.heartbeat:
		return f.beat()
	case f.unsent && now.Sub(f.flushed) >= heldBack:
		return f.flush()
	}
	return nil
}

func (f *sending) beat() error {
	if err := f.out.Text(f.format.heartbeat); err != nil {
		return err
	}
	f.sent = time.Now()
	return f.flush()
}

func (f *sending) flush() error {
	f.unsent, f.flushed = false, time.Now()
	return f.out.Flush()
}

// wait waits for a change after since. more is false if the feed ends instead: its timeout has passed, the database
// was deleted, its place is needed for another request, or the node is going away. In the last two cases the client
// makes a new request, and a load balancer sends it to another node.
func (f *sending) wait() (more bool, err error) {
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
		if over, more, err := f.waited(ctx, f.waitUntilDue(ctx)); over {
			return more, err
		}
	}
}

// waited decides what follows after a wait in ctx that has ended with err: the end of wait, with more and an error, or a
// heartbeat, which it sends.
func (f *sending) waited(ctx context.Context, err error) (over, more bool, _ error) {
	switch {
	case f.r.Context().Err() != nil:
		return true, false, web.ErrClientGone
	case errors.Is(context.Cause(ctx), web.ErrNoRoom): // even if there is a change, which the next request of the client finds
		return true, false, nil
	case err == nil:
		return true, true, nil
	case isMissing(err), errors.Is(err, docstore.ErrClosed), errors.Is(err, web.ErrGoingAway):
		return true, false, nil
	case !errors.Is(err, context.DeadlineExceeded):
		return true, false, fmt.Errorf("waiting for a change: %w", err)
	case f.heartbeat == 0:
		return true, false, nil
	}
	if goesOn, err := f.keepsRights(); !goesOn || err != nil {
		return true, false, err
	}
	err = f.beat()
	return err != nil, false, err
}

// due returns when the feed ends or sends a heartbeat.
func (f *sending) due() time.Time {
	if f.heartbeat > 0 {
		return f.sent.Add(max(f.heartbeat, f.endpoints.Connections.Pace(f.r)))
	}
	return f.waiting.Add(f.timeout)
}

// waitUntilDue waits for a change until the feed ends or sends a heartbeat. If the time for that has passed it returns an
// error even if there is a change: a feed whose filter passes none of many changes has to end, too.
func (f *sending) waitUntilDue(ctx context.Context) error {
	ctx, cancel, err := f.untilDue(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	return f.next(ctx)
}

func (f *sending) untilDue(ctx context.Context) (context.Context, context.CancelFunc, error) {
	due := f.due()
	if !time.Now().Before(due) {
		return nil, nil, cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
	}
	ctx, cancel := context.WithDeadline(ctx, due)
	return ctx, cancel, nil
}

// fail ends the feed with a failure of its request. If the feed has begun, the failure follows its rows as an
// object of its own, as in CouchDB before 2.0, and there is no last_seq. So a client does not take it for the end,
// and a replicator reads the reason. Other errors are returned.
func (f *sending) fail(err error) error {
	var refused *web.Failure
	if !f.out.Begun() || !errors.As(err, &refused) {
		return err
	}
	zerolog.Ctx(f.r.Context()).Info().Str("reason", redact.Text(refused.Reason)).Msg("a feed was ended early")
	line := web.Appender{To: f.out}
	line.Raw(f.format.beforeError).Raw(`{"code":`).Number(int64(refused.Status))
	line.Raw(`,"error":`).Value(refused.Code).Raw(`,"reason":`).Value(refused.Reason).Raw("}").Raw(f.format.afterError)
	if line.Err != nil {
		return line.Err
	}
	return f.out.End()
}

// end sends the end of the feed: its last sequence, and the number of pending rows, as JSON.
func (f *sending) end(last docstore.Sequence, pending string) error {
	if f.format.tail != nil {
		if err := f.out.Text(f.format.tail(last.String(), pending)...); err != nil {
			return err
		}
	}
	if err := f.out.Text("\n"); err != nil { // CouchDB ends all chunked answers with it
		return err
	}
	return f.out.End()
}
