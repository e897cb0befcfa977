package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"settee/pkg/couch"
)

const (
	// beatsPerTimeout is how many heartbeats a feed sends per connection timeout, as in CouchDB.
	beatsPerTimeout = 3
	// patientTimeouts is how many connection timeouts patience lasts.
	patientTimeouts = 10
	// maxPause bounds the wait before a feed is opened again.
	maxPause = time.Minute
	// quietFor is how long a filter may let nothing through before the feed is asked how far it has looked.
	quietFor = 5 * time.Minute
	// pendingInterval is the time between two questions for how many changes are left.
	pendingInterval = 30 * time.Second
)

// feedItem is some rows of the changes feed, or the end of a feed.
type feedItem struct {
	rows []couch.Row // their sequences are not to be kept
	live bool        // the rows come from a feed that waits for changes

	end bool            // there are no more for now
	seq json.RawMessage // the end's: up to where all changes were read; nil if the last row's says as much
}

// reader reads the changes feed of a run.
type reader struct {
	r     *run
	to    *intake
	since json.RawMessage // after the last row that was read
	rows  int64
	over  func() // what is called when a feed that broke off is open again

	lasted  time.Duration // how long the latest feed was open
	quiet   *time.Timer   // runs while a filter lets nothing through of a live feed; nil without one
	silence *silence      // of a filtered feed that is to end; nil without one
}

// errQuiet ends a live feed of which a filter has let nothing through for some time.
var errQuiet = errors.New("no change has come through the filter")

// readFeed reads the changes feed. A continuous replication first catches up with a feed that ends: its
// rows come in full batches, and its end says up to where a filter found nothing. A live feed never says that
// while it is alive; so one that is quiet for long gives way to one that ends.
func (r *run) readFeed(ctx context.Context, to *intake) error {
	f := &reader{r: r, to: to, since: r.start, over: func() {}}
	defer func() { f.over() }()
	if err := f.follow(ctx, false); err != nil || !r.rep.Continuous {
		return err
	}
	pause := r.retryBase
	for {
		before := f.rows
		err := f.follow(ctx, true)
		if errors.Is(err, errQuiet) {
			err = f.follow(ctx, false)
		}
		if err != nil {
			return err
		}
		// A server may end a live feed when it likes, but not keep the run busy with that.
		if f.rows > before || f.wasAlive() {
			pause = r.retryBase
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, maxPause)
	}
}

// follow reads a feed to its end. One that breaks off is opened again after the last row that was read,
// so many times in a row as a request may be repeated.
func (f *reader) follow(ctx context.Context, live bool) error {
	failures := 0
	var since time.Time // of the first of them
	for {
		before := f.rows
		err := f.once(ctx, live)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, errQuiet) {
			return err
		}
		// One that was alive was cut by the network, or by a proxy that gives no answer more time: a database that
		// is idle may meet that any number of times.
		alive := live && f.wasAlive() && !errors.Is(err, couch.ErrStalled)
		if f.rows > before || alive || failures == 0 {
			failures, since = 0, time.Now()
		}
		failures++
		if !isCut(err) || failures > f.r.retries {
			return f.r.source.failed(codePlain, err)
		}
		pause := min(f.r.retryBase<<min(failures-1, 16), maxPause)
		f.over = f.r.repeating(f.r.source, err, failures+1, f.r.retries+1, since, pause)
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// wasAlive reports whether the latest feed was open for at least the time between two heartbeats.
func (f *reader) wasAlive() bool { return f.lasted >= f.r.heartbeat() }

// isCut reports whether a feed that had begun was broken off, by the network or by the server. One that
// cannot be opened was tried often enough.
func isCut(err error) bool {
	e, ok := errors.AsType[*couch.Error](err)
	return ok && e.Status == 200 && !errors.Is(err, couch.ErrMalformed) && !errors.Is(err, couch.ErrLimit) &&
		!errors.Is(err, couch.ErrTooSlow)
}

// once opens the feed and reads it until it ends, with nil, or breaks off.
func (f *reader) once(ctx context.Context, live bool) error {
	f.lasted = 0
	reading := ctx
	switch {
	case !f.r.filtered:
	case live:
		within, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		f.quiet = time.AfterFunc(quietFor, func() { cancel(errQuiet) })
		defer func() {
			f.quiet.Stop()
			f.quiet = nil
		}()
		reading = within
	default:
		return f.onceFiltered(ctx)
	}
	return f.read(ctx, reading, live)
}

// read opens the feed and reads it, while reading lasts.
func (f *reader) read(ctx, reading context.Context, live bool) error {
	feed, err := f.open(reading, live)
	f.over()
	f.over = func() {}
	if err != nil {
		return err
	}
	defer feed.Close()
	defer func(opened time.Time) { f.lasted = time.Since(opened) }(time.Now())
	f.r.feedOpened(live)
	return f.pass(ctx, feed, live)
}

func (f *reader) open(ctx context.Context, live bool) (*couch.Changes, error) {
	options, err := f.r.feedOptions()
	if err != nil {
		return nil, err
	}
	options.Since = f.since
	if live {
		options.Feed = couch.FeedContinuous
	} else if !f.r.filtered {
		options.Patience = f.r.patience()
	}
	return f.r.source.db.Changes(ctx, options)
}

// pass passes on what the feed says. This is where a replication waits for changes: the less there is on
// the stack, the smaller it may be.
func (f *reader) pass(ctx context.Context, feed *couch.Changes, live bool) error {
	length := feedLength{r: f.r, live: live}
	for {
		if f.silence != nil {
			f.silence.begin()
		}
		rows, err := feed.NextRows()
		if f.silence != nil {
			f.silence.end()
		}
		if err == io.EOF {
			return f.ended(ctx, feed, live)
		}
		if err != nil {
			return err
		}
		if err := length.count(ctx, len(rows)); err != nil {
			return err
		}
		if err := f.take(ctx, rows, live); err != nil {
			return err
		}
	}
}

func (f *reader) take(ctx context.Context, rows []couch.Row, live bool) error {
	if err := f.to.take(ctx, feedItem{rows: rows, live: live}); err != nil {
		return err
	}
	f.rows += int64(len(rows))
	if f.quiet != nil {
		f.quiet.Reset(quietFor)
	}
	if seq := lastSequence(rows); seq != nil {
		f.since = seq
	}
	return nil
}

// lastSequence returns a copy of the last sequence that rows have, or nil.
func lastSequence(rows []couch.Row) json.RawMessage {
	for _, row := range slices.Backward(rows) {
		if row.Seq != nil {
			return bytes.Clone(row.Seq)
		}
	}
	return nil
}

// ended passes on that the feed has ended. Where no filter leaves rows out, a feed without a row says
// nothing new: the spelling of a cluster's sequence may differ from one answer to the next.
func (f *reader) ended(ctx context.Context, feed *couch.Changes, live bool) error {
	end := feedItem{end: true, live: live}
	if last := sequence(feed.LastSeq()); last != nil {
		f.since = last
		if f.r.filtered || f.rows > 0 || string(f.r.start) == `"now"` {
			end.seq = last
		}
	}
	if left, ok := feed.Pending(); ok {
		f.r.setLeft(left)
	}
	return f.to.take(ctx, end)
}

// feedOptions says which changes the replication is about.
func (r *run) feedOptions() (couch.ChangesOptions, error) {
	o := couch.ChangesOptions{
		AllLeaves: !r.rep.WinningRevsOnly,
		Heartbeat: r.heartbeat(),
		DocIDs:    r.rep.DocIDs, Selector: r.rep.Selector, Filter: r.rep.Filter,
	}
	if o.Filter == "" {
		return o, nil
	}
	query, err := parameters(r.rep.QueryParams)
	if err != nil {
		return o, newError(codePlain, err, "query_params: %s", err)
	}
	// These are not the filter's, and would make of the feed another than is read here.
	for _, name := range []string{
		"attachments", "att_encoding_info", "conflicts", "descending", "doc_ids", "filter", "include_docs",
		"last-event-id", "limit", "seq_interval", "style", "timeout",
	} {
		query.Del(name)
	}
	o.Query = query
	return o, nil
}

// feedLength counts the rows of a feed that ends: one for each document. A server that sends more of them
// than it has documents would go on for ever.
type feedLength struct {
	r              *run
	live           bool
	rows, believed int64
}

// manyRows is how many rows are believed without asking, and how many more than there should be.
const manyRows = 10_000

func (l *feedLength) count(ctx context.Context, rows int) error {
	if l.rows += int64(rows); l.live || l.rows <= max(l.believed, manyRows) {
		return nil
	}
	info, err := l.r.source.db.Info(ctx)
	if err != nil {
		return l.r.source.failed(codePlain, err)
	}
	// The shards of a cluster may send some twice, and not every server counts.
	documents := info.DocCount + info.DocDelCount
	if l.believed = 2*documents + manyRows; documents == 0 {
		l.believed = math.MaxInt64
	}
	if l.rows <= l.believed {
		return nil
	}
	return newError(codePlain, couch.ErrMalformed, "http_request_failed: %s: the changes feed of %s does not end: it has sent %d changes of %d documents",
		l.r.source.side, l.r.source.uri, l.rows, documents)
}

// patience is how long a feed that is to end, and leaves nothing out, may have nothing but heartbeats.
func (r *run) patience() time.Duration { return patientTimeouts * r.connectionTimeout }

// heartbeat is how long a changes feed may be silent.
func (r *run) heartbeat() time.Duration {
	return max(r.connectionTimeout/beatsPerTimeout, time.Millisecond)
}

// wait waits, or returns the cause of ctx.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pendingQuestion asks the source how many changes lie beyond what was read. A server that does not know is
// asked once. Where all that is known was read there is no need to ask, but with a filter, which may keep
// all that is new from being read.
type pendingQuestion struct {
	asked   json.RawMessage // since when the last answer was
	useless bool
}

func (q *pendingQuestion) ask(ctx context.Context, r *run) {
	if q.useless {
		return
	}
	ctx = context.WithValue(ctx, aside{}, true)
	since := r.readSince()
	if bytes.Equal(since, q.asked) && !r.filtered {
		return
	}
	left, known, err := r.pendingSince(ctx, since)
	switch {
	case err != nil: // who reads the feed will meet it, if it lasts
	case !known:
		q.useless = true
	default:
		q.asked = since
		r.setLeftSince(since, left)
	}
}

// readSince is the sequence up to which the feed was read.
func (r *run) readSince() json.RawMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read == nil {
		return r.start
	}
	return r.read
}

// pendingSince asks how many changes there are after a sequence. As in CouchDB, those that a filter
// leaves out count: only the server's filter could tell.
func (r *run) pendingSince(ctx context.Context, since json.RawMessage) (int64, bool, error) {
	feed, err := r.source.db.Changes(ctx, couch.ChangesOptions{Since: since, Limit: 1})
	if err != nil {
		return 0, false, err
	}
	defer feed.Close()
	var rows int64
	for {
		_, err := feed.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, false, err
		}
		rows++
	}
	left, known := feed.Pending()
	return left + rows, known, nil
}
