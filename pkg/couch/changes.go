package couch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Feed is a kind of changes feed.
type Feed string

const (
	// FeedNormal ends with the last change there is.
	FeedNormal Feed = "normal"
	// FeedLongpoll is FeedNormal, but waits for a change if there is none.
	FeedLongpoll Feed = "longpoll"
	// FeedContinuous does not end, unless with Timeout or Limit.
	FeedContinuous Feed = "continuous"
)

const (
	// maxRow is the size in bytes of the largest row of a feed: one with some 200,000 leaves.
	maxRow = 16 << 20
	// silentBeats is how many heartbeats may be missed before a feed is declared stalled.
	silentBeats = 3
	// serverTimeout is after how long CouchDB ends a live feed that asks for neither a heartbeat nor a
	// timeout ([chttpd] changes_timeout).
	serverTimeout = 60 * time.Second
)

// ChangesOptions says which changes to read. The zero value reads all, as they are now.
type ChangesOptions struct {
	Feed Feed // default: FeedNormal
	// Since is the sequence after which to begin, as a server gave it (Row.Seq, LastSeq, UpdateSeq).
	// Empty: from the beginning.
	Since json.RawMessage
	// AllLeaves asks for all leaves of each document (style=all_docs), not the winner only.
	AllLeaves bool
	// Heartbeat asks for a sign of life whenever there was no change for so long. A feed that is silent
	// for three times that is stalled. Servers filter without a word, so that FeedNormal needs it too.
	Heartbeat time.Duration
	// Patience, if not 0, is how long nothing but signs of life may come before the feed is stalled. A filter
	// may leave out a great many changes.
	Patience time.Duration
	// Timeout ends FeedLongpoll and FeedContinuous when there was no change for so long, on servers that
	// know it. CouchDB ignores it where there is a heartbeat.
	Timeout time.Duration
	Limit   int // default: no limit
	// SeqInterval asks for a sequence on every so manieth row only: the others have none.
	SeqInterval int

	// At most one of these three is set.
	DocIDs   []string        // the documents of these ids (filter _doc_ids)
	Selector json.RawMessage // the documents that match a selector (filter _selector)
	Filter   string          // a filter function, "ddoc/name", or "_view" or "_design"

	// Query has the parameters of the filter function, and the view of "_view".
	Query url.Values
}

// Row is one change.
type Row struct {
	// Seq is the change's sequence: a number, a string or an array. Nil if the server left it out, as
	// it does between two multiples of SeqInterval.
	Seq json.RawMessage
	// ID is empty of a document that nobody can read: old releases of CouchDB let some in.
	ID      string
	Revs    []string // the winner, or all leaves
	Deleted bool     // the winner is
}

// Changes is a feed. It is not safe for concurrent use; what ends a Next that waits is its context.
type Changes struct {
	p       *response
	j       *jsonReader
	live    bool // one row after the other, without an array around
	beats   bool // between rows come signs of life
	inside  bool // the array of rows was entered
	lastSeq json.RawMessage
	pending *int64
	quiet   quiet
	number  int64 // the last row's sequence, if that was a number
	rows    []Row // what some returns
	text    []byte
	err     error // of Next, from its first on
}

// Changes opens a feed. It uses no slot of MaxConnections.
func (d *Database) Changes(ctx context.Context, o ChangesOptions) (*Changes, error) {
	r, err := o.request(d.cfg.ConnectionTimeout)
	if err != nil {
		return nil, err
	}
	p, err := d.stream(ctx, r)
	if err != nil {
		return nil, err
	}
	c := newChanges(p, o.Feed)
	c.p = p
	c.quiet.patience = o.Patience
	c.beats = o.Heartbeat > 0 || c.live || o.Feed == FeedLongpoll
	return c, nil
}

func newChanges(r io.Reader, feed Feed) *Changes {
	c := &Changes{live: feed == FeedContinuous}
	if feed == FeedNormal || feed == "" {
		c.j = newJSONReader(r, bulkWindow)
	} else {
		c.j = newLiveReader(r)
	}
	c.j.blank = 0 // heartbeats
	c.j.onBlank = c.quiet.more
	return c
}

// Next returns the next change, and waits for it on a live feed. After the last one the error is
// io.EOF. A feed that breaks off, however politely, wraps io.ErrUnexpectedEOF; one that falls silent
// wraps [ErrStalled]. After an error all later calls return the same.
func (c *Changes) Next() (Row, error) {
	rows, err := c.some(1)
	if err != nil {
		return Row{}, err
	}
	row := rows[0]
	row.Seq = bytes.Clone(row.Seq)
	return row, nil
}

// NextRows is Next for the changes that have come already: it returns at least one, and waits for that, and
// at most 64. The slice and the rows' sequences are good until the next call: who keeps one makes a copy.
func (c *Changes) NextRows() ([]Row, error) { return c.some(maxRows) }

// some returns at most so many changes.
func (c *Changes) some(most int) ([]Row, error) {
	if c.err != nil {
		return nil, c.err
	}
	c.j.forget()
	// Thousands of goroutines may wait here. What is read then has its place on the stack only when there is
	// something to read.
	err := c.await()
	if err == nil {
		err = c.next(most)
	}
	if err == nil {
		c.quiet.end()
		return c.rows, nil
	}
	return nil, c.end(err)
}

// await waits for the beginning of a row of a live feed. What is wrong with it is for next to say.
func (c *Changes) await() error {
	if !c.live {
		return nil
	}
	if len(c.j.ahead()) == 0 && cap(c.rows) > fewRows {
		c.rows, c.text = nil, nil
	}
	return c.begin()
}

// end notes how the feed ended, and returns what Next is to say of it.
func (c *Changes) end(err error) error {
	if c.err = err; err != io.EOF {
		c.err = c.explain(err)
	}
	if c.p != nil {
		if c.err == io.EOF {
			c.p.finish()
		} else {
			c.err = c.p.fail(c.err)
			c.p.Close()
		}
	}
	c.j.free()
	return c.err
}

// explain says what an error means for the feed. Whatever the network did to it, it was cut.
func (c *Changes) explain(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the changes feed was cut: %w", err)
	}
	given := c.p != nil && c.p.outer.Err() != nil
	for _, ours := range []error{ErrMalformed, ErrLimit, ErrStalled, errGaveUp} {
		given = given || errors.Is(err, ours)
	}
	if given {
		return fmt.Errorf("reading the changes feed: %w", err)
	}
	return fmt.Errorf("the changes feed was cut: %w: %w", io.ErrUnexpectedEOF, err)
}

// LastSeq is the sequence up to which the feed was read, once Next has returned io.EOF: the place to go
// on from. With a filter it may lie beyond the last row's.
func (c *Changes) LastSeq() json.RawMessage { return c.lastSeq }

// Pending is how many changes were left when the feed ended, if the server says so.
func (c *Changes) Pending() (int64, bool) {
	if c.pending == nil {
		return 0, false
	}
	return *c.pending, true
}

// Close gives up what was not read. It may be called more than once.
func (c *Changes) Close() error {
	if c.err == nil {
		c.err = errors.New("the changes feed is closed")
		c.j.free()
	}
	if c.p == nil {
		return nil
	}
	return c.p.Close()
}

// next reads at most so many rows.
func (c *Changes) next(most int) error {
	if !c.live {
		if !c.inside {
			if err := c.enter(); err != nil {
				return err
			}
			c.inside = true
		}
		c.resting(true)
		ok, err := c.j.element()
		c.resting(false)
		if err != nil {
			return c.lateRefusal(err)
		}
		if !ok {
			return c.leave()
		}
	}
	if c.plainRows(most) {
		return nil
	}
	row, err := c.nextRow()
	if err == nil {
		err = c.ascends(row.Seq)
	}
	c.rows = append(c.rows, row)
	return err
}

// nextRow reads a row, however it is spelled.
func (c *Changes) nextRow() (Row, error) {
	if c.live {
		return c.nextLine()
	}
	row, _, err := c.row()
	return row, err
}

// row reads a row. If it is none for want of an id, raw has its bytes, until the next call.
func (c *Changes) row() (row Row, raw []byte, err error) {
	// Most are whole in the window.
	row, end, err := parseRow(c.j.ahead())
	if end == notWhole && c.j.widen() {
		row, end, err = parseRow(c.j.ahead())
	}
	if err == nil && c.j.passed(end, maxRow) {
		return row, nil, nil
	}
	if raw, err = c.j.value(maxRow); err != nil {
		return Row{}, nil, err
	}
	row, _, err = parseRow(raw)
	return row, raw, err
}

// nextLine reads a row of a continuous feed, which ends with an object that has last_seq.
func (c *Changes) nextLine() (Row, error) {
	row, raw, err := c.row()
	if err == nil || !isObject(raw) {
		return row, err
	}
	end := false
	members(raw, func(m member) bool {
		end = end || string(m.key) == "last_seq"
		return !end
	})
	if !end {
		return row, err
	}
	err = nil
	members(raw, func(m member) bool {
		err = c.tail(string(m.key), raw[m.value:m.end])
		return err == nil
	})
	if err == nil {
		err = io.EOF
	}
	return Row{}, err
}

// enter reads up to the rows of a feed that is one object. What stands before them may be its tail.
func (c *Changes) enter() error {
	if err := c.begin(); err != nil {
		return err
	}
	return c.j.openResults(c.readTail)
}

// begin waits for the first byte of what comes next.
func (c *Changes) begin() error {
	c.resting(true)
	defer c.resting(false)
	_, err := c.j.next()
	return err
}

// resting says whether the feed may have nothing to say but that it is alive.
func (c *Changes) resting(may bool) {
	if c.beats {
		c.p.dog.rest(may)
	}
}

// leave reads from the end of the rows to the end of the feed, and returns io.EOF if all is well.
func (c *Changes) leave() error {
	for {
		name, ok, err := c.j.member()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if err := c.readTail(name); err != nil {
			return err
		}
	}
	if c.lastSeq == nil {
		return fmt.Errorf("%w: no last_seq", ErrMalformed)
	}
	return io.EOF
}

func (c *Changes) readTail(name string) error {
	raw, err := c.j.value(maxRow)
	if err != nil {
		return err
	}
	return c.tail(name, raw)
}

// tail takes a member of the feed that is not a row.
func (c *Changes) tail(name string, raw []byte) error {
	switch name {
	case "last_seq":
		c.lastSeq = bytes.Clone(raw)
	case "pending":
		// null has been seen; nothing depends on it.
		if n, err := count(raw); err == nil {
			c.pending = &n
		}
	case "error":
		return &gaveUp{code: words(raw)}
	}
	return nil
}

// lateRefusal looks for CouchDB's last words: an error that it meets after the feed has begun follows
// the rows as an object of its own, without a comma. It has a status (code), an error and a reason.
func (c *Changes) lateRefusal(err error) error {
	if !errors.Is(err, ErrMalformed) {
		return err
	}
	if b, peekErr := c.j.peek(); peekErr != nil || b != '{' {
		return err
	}
	raw, readErr := c.j.value(maxRow)
	if readErr != nil {
		return err
	}
	if _, _, rowErr := parseRow(raw); errors.Is(rowErr, errGaveUp) {
		return rowErr
	}
	return err
}

// parseRow reads the row that b begins with, and returns where it ends, or what checkValue says of bytes
// that are not JSON. Its sequence's bytes are those of b.
func parseRow(b []byte) (Row, int, error) {
	var row Row
	var last gaveUp
	named := false
	if !isObject(b) {
		return row, 0, fmt.Errorf("%w: a row that is not an object", ErrMalformed)
	}
	scan := scanMembers(b)
	m := &scan.member
	for scan.next() {
		var err error
		switch value := b[m.value:m.end]; string(m.key) {
		case "seq":
			if string(value) != "null" {
				row.Seq = value
			}
		case "id":
			named = true
			row.ID, err = unquote(value)
		case "deleted":
			row.Deleted, err = flag(value)
		case "changes":
			row.Revs, err = parseRevs(value)
		case "code":
			if n, err := count(value); err == nil && n < 600 {
				last.status = int(n)
			}
		case "error":
			last.code = words(value)
		case "reason":
			last.reason = words(value)
		}
		if err != nil {
			return row, 0, fmt.Errorf("row of %q, member %s: %w", row.ID, m.key, err)
		}
	}
	end := scan.over()
	switch {
	case end < 0:
		return row, end, fmt.Errorf("%w: a row that is not JSON", ErrMalformed)
	case !named && last.code != "":
		e := last
		return row, 0, &e
	case !named:
		return row, 0, fmt.Errorf("%w: a row without an id: %s", ErrMalformed, excerpt(string(b[:end])))
	case len(row.Revs) == 0:
		return row, 0, fmt.Errorf("%w: the row of %q has no revision", ErrMalformed, row.ID)
	}
	return row, end, nil
}

// parseRevs reads [{"rev": "1-a"}, ...], which is known to be JSON.
func parseRevs(raw []byte) ([]string, error) {
	const before, after = `[{"rev":"`, `"}]`
	// Most documents have one leaf.
	if rev, ok := bytes.CutPrefix(raw, []byte(before)); ok {
		if rev, ok = bytes.CutSuffix(rev, []byte(after)); ok && pastPlain(rev, 0) == len(rev) {
			return []string{string(rev)}, nil
		}
	}
	var revs []string
	err := eachObject(raw, func(change []byte) (err error) {
		members(change, func(m member) bool {
			if string(m.key) == "rev" {
				var rev string
				if rev, err = unquote(change[m.value:m.end]); err == nil {
					revs = append(revs, rev)
				}
			}
			return err == nil
		})
		return err
	})
	return revs, err
}

// eachObject calls visit for each element of raw, which must be an array of objects.
func eachObject(raw []byte, visit func([]byte) error) error {
	if !isArray(raw) {
		return fmt.Errorf("%w: not an array", ErrMalformed)
	}
	var err error
	elements(raw, func(element []byte) bool {
		if !isObject(element) {
			err = fmt.Errorf("%w: not an object", ErrMalformed)
			return false
		}
		err = visit(element)
		return err == nil
	})
	return err
}

// request makes the request of these options.
func (o ChangesOptions) request(connectionTimeout time.Duration) (*request, error) {
	q := maps.Clone(o.Query)
	if q == nil {
		q = url.Values{}
	}
	r := &request{method: http.MethodGet, path: "_changes", query: q, noSlot: true}
	if o.Feed == "" {
		o.Feed = FeedNormal
	}
	q.Set("feed", string(o.Feed))
	if len(o.Since) > 0 {
		since, err := sequenceParameter(o.Since)
		if err != nil {
			return nil, err
		}
		q.Set("since", since)
	}
	if o.AllLeaves {
		q.Set("style", "all_docs")
	}
	for name, value := range map[string]int64{
		"heartbeat":    o.Heartbeat.Milliseconds(),
		"timeout":      o.Timeout.Milliseconds(),
		"limit":        int64(o.Limit),
		"seq_interval": int64(o.SeqInterval),
	} {
		if value < 0 {
			return nil, fmt.Errorf("changes feed: %s is negative", name)
		}
		if value > 0 {
			q.Set(name, strconv.FormatInt(value, 10))
		}
	}
	r.idle = o.idle(connectionTimeout)
	r.identity = o.Feed != FeedNormal
	return r, o.filter(r)
}

// filter adds what selects documents.
func (o ChangesOptions) filter(r *request) error {
	set := 0
	for _, is := range []bool{o.DocIDs != nil, o.Selector != nil, o.Filter != ""} {
		if is {
			set++
		}
	}
	if set > 1 {
		return errors.New("changes feed: more than one of document ids, selector and filter")
	}
	switch {
	case o.DocIDs != nil:
		r.query.Set("filter", "_doc_ids")
		r.body = bytesBody(appendStrings([]byte(`{"doc_ids":`), o.DocIDs, '}'))
	case o.Selector != nil:
		if !json.Valid(o.Selector) {
			return errors.New("changes feed: the selector is not JSON")
		}
		r.query.Set("filter", "_selector")
		r.body = pieces{[]byte(`{"selector":`), o.Selector, []byte("}")}
	case o.Filter != "":
		r.query.Set("filter", o.Filter)
	}
	if r.body != nil {
		r.method, r.content = http.MethodPost, jsonType
	}
	return nil
}

// idle is how long the feed may be silent.
func (o ChangesOptions) idle(connectionTimeout time.Duration) time.Duration {
	beats := silentBeats * o.Heartbeat
	switch {
	case o.Feed == FeedNormal:
		return max(beats, connectionTimeout)
	case o.Heartbeat > 0:
		return beats
	case o.Timeout > 0:
		return o.Timeout + connectionTimeout
	}
	return serverTimeout + connectionTimeout
}

// sequenceParameter spells a sequence as CouchDB wants it in a query: a string without its quotes, all
// else as JSON.
func sequenceParameter(seq json.RawMessage) (string, error) {
	seq = bytes.TrimSpace(seq)
	if !json.Valid(seq) {
		return "", errors.New("changes feed: since is not JSON")
	}
	if seq[0] == '"' {
		return unquote(seq)
	}
	return string(seq), nil
}

// appendStrings appends a JSON array of strings, and end.
func appendStrings(b []byte, list []string, end ...byte) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(b, s)
	}
	b = append(b, ']')
	return append(b, end...)
}
