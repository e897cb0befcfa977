package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"time"

	"settee/pkg/couch"
	"settee/pkg/retry"
	"settee/replicator"
)

const (
	// beatsPerTimeout is the number of heartbeats per connection timeout, as in CouchDB.
	beatsPerTimeout = 3
	// patientTimeouts is the length of patience, in connection timeouts.
	patientTimeouts = 10
	// quietFor is how long a feed may pass no change through a filter before the run checks how far the source has got.
	quietFor = replicator.FilterQuiet
	// maxSeqInterval is the largest number of rows of a feed that ends for which the source makes one sequence. That
	// saves CouchDB most of the processor time of a feed. If the feed is cut off, fewer rows than that are read again.
	maxSeqInterval = 50
	// pendingInterval is the time between two requests for the number of changes left.
	pendingInterval = 30 * time.Second
	// firstQuestion is when a run asks for the first time. Shorter runs never ask.
	firstQuestion = time.Second
)

// feedItem is a group of rows of the changes feed, or the end of a feed.
type feedItem struct {
	rows []couch.Row // their sequences must not be kept
	live bool        // from a feed that waits for changes

	end bool            // there are no more for now
	seq json.RawMessage // of the end: everything up to it was read; nil if the last row has it
}

// reader reads the changes feed of a run.
type reader struct {
	r     *run
	to    *intake
	since json.RawMessage // sequence of the last row read
	rows  int64
	over  func() // called when a feed that was cut off is open again, and when readFeed has returned
	cut   bool   // a feed was cut off; so that the next begins after the last row, each row needs a sequence

	reached     bool            // the source has just answered, so that it counts as reached while a live feed is opened
	checkpoints *recurring      // the checkpoints of the run; nil if it cannot park
	whole       context.Context // as in copying

	lasted  time.Duration // how long the last feed was open
	quiet   *time.Timer   // fires if a live feed passes nothing through its filter; nil without filter
	silence *silence      // of a filtered feed that ends; nil means another feed
}

// errQuiet ends a live feed whose filter has passed nothing for quietFor.
var errQuiet = errors.New("no change has come through the filter")

// readFeed reads the changes feed. A continuous replication first catches up with a feed that ends. That feed gives
// full batches, and its last sequence covers the changes that a filter left out. A live feed never gives that sequence,
// so after quietFor without a row a feed that ends takes its place. A run that is asked to park closes its live feed for
// that.
func (f *reader) readFeed(ctx context.Context) error {
	f.since, f.over = f.r.start, func() {}
	backoff := retry.Backoff{First: f.r.retryBase} // between live feeds that end
	if !f.r.liveFirst() {
		if err := f.follow(ctx, false); err != nil || !f.r.rep.Continuous {
			return err
		}
		f.r.caughtUp()
	}
	f.reached = true
	for {
		before := f.rows
		err := f.follow(ctx, true)
		switch {
		case errors.Is(err, errQuiet):
			err = f.follow(ctx, false)
			f.reached = err == nil
			f.r.caughtUp()
		case errors.Is(err, errPark):
			if err = f.park(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		// A server may end a live feed at any time, but must not keep the run busy with that.
		if f.rows > before || f.wasAlive() {
			backoff.Reset()
		}
		if err := retry.Wait(ctx, backoff.Next()); err != nil {
			return err
		}
	}
}

// follow reads a feed to its end. If the feed is cut off, follow opens it again after the last row, as many times in a
// row as a request may be repeated.
func (f *reader) follow(ctx context.Context, live bool) error {
	failures, since, backoff := 0, time.Time{}, retry.Backoff{First: f.r.retryBase}
	for {
		before := f.rows
		err := f.once(ctx, live)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errQuiet), errors.Is(err, errPark):
			return err
		}
		// A feed that was alive was cut off by the network or by a proxy's time limit. On an idle database that may
		// happen any number of times.
		alive := live && f.wasAlive() && !errors.Is(err, couch.ErrStalled)
		if f.rows > before || alive || failures == 0 {
			failures, since = 0, time.Now()
			backoff.Reset()
		}
		if failures++; failures > 1 {
			f.r.notIdle(false)
		}
		if !isCut(err) || failures > f.r.retries {
			return f.r.source.failed(replicator.RequestReadChanges, err)
		}
		f.cut = true
		pause := backoff.Next()
		f.over = f.r.repeating(f.r.source, err, failures+1, f.r.retries+1, since, pause)
		if err := retry.Wait(ctx, pause); err != nil {
			return err
		}
	}
}

// wasAlive reports whether the last feed was open for at least one heartbeat interval.
func (f *reader) wasAlive() bool { return f.lasted >= f.r.heartbeat() }

// isCut reports whether an open feed was cut off, by the network or by the server. The request that opens a feed has
// retries of its own.
func isCut(err error) bool {
	e, ok := errors.AsType[*couch.Error](err)
	return ok && e.Status == http.StatusOK && e.Temporary()
}

// once opens the feed and reads it. It returns nil at the end of the feed and an error if the feed is cut off.
func (f *reader) once(ctx context.Context, live bool) error {
	f.lasted = 0
	switch {
	case live && (f.r.filtered || f.r.parking != nil):
		return f.onceLive(ctx)
	case !live && f.r.filtered:
		return f.onceFiltered(ctx)
	}
	return f.read(ctx, ctx, live)
}

// onceLive is once for a live feed that the run may end itself: with errQuiet or errPark.
func (f *reader) onceLive(ctx context.Context) error {
	reading, end := context.WithCancelCause(ctx)
	defer end(nil)
	if f.r.filtered {
		f.quiet = time.AfterFunc(quietFor, func() { end(errQuiet) })
		defer func() {
			f.quiet.Stop()
			f.quiet = nil
		}()
	}
	if f.r.parking != nil {
		f.r.parking.live(end)
		defer f.r.liveClosed()
		if f.reached {
			f.reached = false
			f.r.liveAsked()
		}
	}
	return f.read(ctx, reading, true)
}

// read opens the feed, and passes its rows to the intake until reading ends.
func (f *reader) read(ctx, reading context.Context, live bool) error {
	feed, err := f.open(reading, live)
	f.over()
	f.over = func() {}
	if err != nil {
		return err
	}
	defer func() { _ = feed.Close() }() // it was only read
	opened, length := time.Now(), feedLength{r: f.r, live: live}
	defer func() { f.lasted = time.Since(opened) }()
	f.r.feedOpened(live)
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
		if err == nil {
			err = length.count(ctx, len(rows))
		}
		if err == nil {
			err = f.take(ctx, rows, live)
		}
		if err != nil {
			return err
		}
	}
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
		if !f.cut {
			options.SeqInterval = seqInterval(f.r.batchSize)
		}
	}
	ctx, span := f.r.root(ctx, "replication feed")
	feed, err := f.r.source.db.Changes(ctx, options)
	f.r.endSpan(span, err)
	return feed, err
}

// seqInterval returns the interval of sequences for a size of batches, so that the last row of a full batch has one. It
// is 0 if each row needs one.
func seqInterval(batch int) int {
	for n := min(batch, maxSeqInterval); n > 1; n-- {
		if batch%n == 0 {
			return n
		}
	}
	return 0
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

// lastSequence returns a copy of the last sequence in rows, or nil.
func lastSequence(rows []couch.Row) json.RawMessage {
	for _, row := range slices.Backward(rows) {
		if row.Seq != nil {
			return bytes.Clone(row.Seq)
		}
	}
	return nil
}

// ended passes the end of the feed to the intake. Without a filter, the last sequence of a feed without rows is
// ignored: the spelling of a cluster's sequence may change from one answer to the next.
func (f *reader) ended(ctx context.Context, feed *couch.Changes, live bool) error {
	end := feedItem{end: true, live: live}
	if last := sequence(feed.LastSeq()); last != nil {
		f.since = last
		if f.r.filtered || f.rows > 0 || string(f.r.start) == `"now"` {
			end.seq = last
		}
	}
	if left, ok := feed.Pending(); ok {
		f.r.setLeft(left, f.rows)
	}
	return f.to.take(ctx, end)
}

// feedOptions returns the options that select the changes of the replication.
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
		return o, newError(r.source.coded(replicator.FaultInvalid, replicator.RequestReadChanges, "query_params: "+err.Error()), err)
	}
	for _, name := range []string{"descending", "style", "timeout"} { // feed and since are replaced
		query.Del(name)
	}
	o.Query = query
	return o, nil
}

// feedLength counts the rows of a feed that ends, which has one row per document. It detects a server that sends rows
// without end.
type feedLength struct {
	r              *run
	live           bool
	rows, believed int64
}

// manyRows is the number of rows accepted without a check, and the tolerance of the check.
const manyRows = 10_000

func (l *feedLength) count(ctx context.Context, rows int) error {
	if l.rows += int64(rows); l.live || l.rows <= max(l.believed, manyRows) {
		return nil
	}
	info, err := l.r.source.db.Info(ctx)
	if err != nil {
		return l.r.source.failed(replicator.RequestOpen, err)
	}
	// Shards of a cluster may send rows twice, and some servers do not count documents.
	documents := info.DocCount + info.DocDelCount
	if l.believed = 2*documents + manyRows; documents == 0 {
		l.believed = math.MaxInt64
	}
	if l.rows <= l.believed {
		return nil
	}
	return newError(l.r.source.coded(replicator.FaultMalformed, replicator.RequestReadChanges, fmt.Sprintf(
		"the changes feed of %s does not end: it has sent %d changes of %d documents", l.r.source.uri, l.rows, documents)), couch.ErrMalformed)
}

// patience is how long an unfiltered feed that ends may send nothing but heartbeats.
func (r *run) patience() time.Duration { return patientTimeouts * r.connectionTimeout }

// heartbeat is the interval of heartbeats.
func (r *run) heartbeat() time.Duration {
	return max(r.connectionTimeout/beatsPerTimeout, time.Millisecond)
}

// pendingQuestion asks the source how many changes follow the last one read. It stops if the source does not know. It
// asks only if more was read since the last answer, except with a filter, which may hide new changes.
type pendingQuestion struct{ useless bool }

func (q *pendingQuestion) ask(ctx context.Context, r *run) {
	if q.useless {
		return
	}
	if rows, yes := r.keptUp(); yes {
		r.setLeft(0, rows)
		return
	}
	ctx = context.WithValue(ctx, aside{}, true)
	r.mu.Lock()
	since, rows, known := r.read, r.rowsRead, r.left != nil && r.leftAt == r.rowsRead
	r.mu.Unlock()
	if known && !r.filtered {
		return
	}
	left, known, err := r.pendingSince(ctx, since)
	switch {
	case err != nil: // the reader of the feed reports lasting errors
	case !known:
		q.useless = true
	default:
		r.setLeft(left, rows)
	}
}

// readSince returns the sequence up to which the feed was read.
func (r *run) readSince() json.RawMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read
}

// pendingSince asks how many changes follow a sequence. As in CouchDB, changes that a filter leaves out count.
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
