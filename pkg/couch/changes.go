package couch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"settee/pkg/jsontext"
)

const (
	// maxRow is the maximum size of a row in bytes. A row of 16 MiB has some 200,000 leaves.
	maxRow = 16 << 20
	// maxRowRest is the number of bytes that are skipped after that.
	maxRowRest = 256 << 20
	// maxUnclear is the maximum number of rows in a row that are not understood. A feed with more is malformed as a whole.
	maxUnclear = 100
)

// Row is one change.
type Row struct {
	// Seq is the change's sequence: a number, a string or an array. It is nil if the server left it out.
	Seq json.RawMessage
	// ID is empty for some documents that old releases of CouchDB accepted. They cannot be read.
	ID      string
	Revs    []string // the winner, or all leaves
	Deleted bool     // whether the winner is deleted
	// Err says why the row is not understood, although the feed can be read on. Then Revs is empty, and ID and Seq are there
	// as far as they are understood. It is an [ErrMalformed] or an [ErrLimit].
	Err error
}

// Changes is a changes feed. It is not safe for concurrent use. The context ends a waiting Next.
type Changes struct {
	p       *response
	j       answerReader
	live    bool // rows come without an array around them
	beats   bool // the feed has heartbeats
	inside  bool // the array of rows was entered
	lastSeq json.RawMessage
	pending *int64
	quiet   quiet
	number  int64 // the last row's sequence, if it is a number
	unclear int   // rows that were not understood since the last one that was
	rows    []Row // buffer of some
	text    []byte
	err     error // the first error of Next
}

// Changes opens a feed. It uses no slot of MaxConnections.
func (d *Database) Changes(ctx context.Context, o ChangesOptions) (*Changes, error) {
	return d.changes(ctx, "_changes", o)
}

// changes opens the feed at a path below d. If the server refuses a request with parameters that servers need not know, it
// asks once without them.
func (d *Database) changes(ctx context.Context, path string, o ChangesOptions) (*Changes, error) {
	plain := o.plain()
	if d.plainFeeds.Load() {
		o = plain
	}
	c, err := d.openChanges(ctx, path, o)
	if o.isPlain() || !mayRefuseParameters(err) {
		return c, err
	}
	if c, again := d.openChanges(ctx, path, plain); again == nil {
		d.plainFeeds.Store(true)
		return c, nil
	}
	return nil, err
}

// mayRefuseParameters reports whether err may mean that a server does not accept a parameter.
func mayRefuseParameters(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status >= 400 && e.Status < 500 && !e.Temporary() &&
		e.Status != http.StatusUnauthorized && !errors.Is(err, ErrNoDatabase)
}

func (d *Database) openChanges(ctx context.Context, path string, o ChangesOptions) (*Changes, error) {
	r, err := o.request(d.cfg.ConnectionTimeout)
	if err != nil {
		return nil, err
	}
	r.path = path
	p, err := d.stream(ctx, r)
	if err != nil {
		return nil, err
	}
	p.settle()
	c := newChanges(p, o.Feed)
	c.p = p
	c.quiet.patience = o.Patience
	c.beats = o.Heartbeat > 0 || c.live
	return c, nil
}

func newChanges(r io.Reader, feed Feed) *Changes {
	c := &Changes{live: feed == FeedContinuous}
	if c.live {
		c.j = asAnswer(jsontext.NewLiveReader(r))
	} else {
		c.j = newAnswerReader(r, jsontext.Window)
	}
	c.j.Blank = 0 // heartbeats
	c.j.OnBlank = c.quiet.more
	return c
}

// Next returns the next change. On a live feed it waits for one. After the last change the error is io.EOF. The error
// wraps io.ErrUnexpectedEOF if the feed is cut off, even if the connection ends properly, and [ErrStalled] if the feed
// falls silent. After an error all later calls return the same error.
func (c *Changes) Next() (Row, error) {
	rows, err := c.some(1)
	if err != nil {
		return Row{}, err
	}
	row := rows[0]
	row.Seq = bytes.Clone(row.Seq)
	return row, nil
}

// NextRows waits like Next, and returns all changes that have already arrived: at least one and at most 64. The slice
// and the sequences are valid until the next call.
func (c *Changes) NextRows() ([]Row, error) { return c.some(maxRows) }

// some returns at most n changes.
func (c *Changes) some(most int) ([]Row, error) {
	if c.err != nil {
		return nil, c.err
	}
	c.j.Forget()
	// Thousands of goroutines may wait here, so the buffers for reading go on the stack only when there is something to
	// read.
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

// await waits for the beginning of a row of a live feed. It leaves errors to next.
func (c *Changes) await() error {
	if !c.live {
		return nil
	}
	if len(c.j.Ahead()) == 0 && cap(c.rows) > fewRows {
		c.rows, c.text = nil, nil
	}
	return c.begin()
}

// end records how the feed ended, and returns the error for Next.
func (c *Changes) end(err error) error {
	c.err = endFeed(c.p, "changes feed", err)
	c.j.Free()
	return c.err
}

// Any reports whether the feed has a row, and closes the feed.
func (c *Changes) Any() (bool, error) {
	defer c.Close()
	_, err := c.Next()
	if err == io.EOF {
		return false, nil
	}
	return err == nil, err
}

// endFeed ends the answer of a feed that has ended with err, and returns the error for the caller. p is nil in tests.
func endFeed(p *response, feed string, err error) error {
	if err != io.EOF {
		err = explainFeed(p, feed, err)
	}
	switch {
	case p == nil:
	case err == io.EOF:
		p.finish()
	default:
		err = p.fail(err)
		p.Close()
	}
	return err
}

// explainFeed converts an error of a feed. A network failure means that the feed was cut off. p is nil in tests.
func explainFeed(p *response, feed string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the %s was cut: %w", feed, err)
	}
	given := p != nil && p.outer.Err() != nil
	for _, ours := range []error{ErrMalformed, ErrLimit, ErrStalled, errGaveUp} {
		given = given || errors.Is(err, ours)
	}
	if given {
		return fmt.Errorf("reading the %s: %w", feed, err)
	}
	return fmt.Errorf("the %s was cut: %w: %w", feed, io.ErrUnexpectedEOF, err)
}

// LastSeq returns the sequence up to which the feed was read, after Next has returned io.EOF. With a filter it may be
// later than the last row's.
func (c *Changes) LastSeq() json.RawMessage { return c.lastSeq }

// Pending returns the number of changes left when the feed ended, if the server gave it.
func (c *Changes) Pending() (int64, bool) {
	if c.pending == nil {
		return 0, false
	}
	return *c.pending, true
}

// Close abandons the rest of the feed. It may be called more than once.
func (c *Changes) Close() error {
	if c.err == nil {
		c.err = errors.New("the changes feed is closed")
		c.j.Free()
	}
	if c.p == nil {
		return nil
	}
	return c.p.Close()
}

// next reads at most n rows.
func (c *Changes) next(most int) error {
	if !c.live {
		if !c.inside {
			if err := c.enter(); err != nil {
				return err
			}
			c.inside = true
		}
		c.resting(true)
		ok, err := c.j.Element()
		c.resting(false)
		if err != nil {
			return c.lateRefusal(err)
		}
		if !ok {
			return c.leave()
		}
	}
	if c.plainRows(most) {
		c.unclear = 0
		return nil
	}
	row, err := c.nextRow()
	if err == nil {
		err = c.ascends(row.Seq)
	}
	c.rows = append(c.rows, row)
	return err
}

// nextRow reads a row in any spelling. A row that is not understood is one with an Err, unless there are too many.
func (c *Changes) nextRow() (row Row, err error) {
	if c.live {
		row, err = c.nextLine()
	} else {
		row, _, err = c.row()
	}
	failure, ok := errors.AsType[unclear](err)
	if !ok {
		if err == nil {
			c.unclear = 0
		}
		return row, err
	}
	if c.unclear++; c.unclear > maxUnclear {
		return row, failure.error
	}
	if c.p != nil {
		failure.error = c.p.fail(failure.error)
	}
	row.Revs, row.Err = nil, failure.error
	return row, nil
}

// unclear is the error of a row that is not understood in a feed that can be read on.
type unclear struct{ error }

func (u unclear) Unwrap() error { return u.error }

// row reads a row. If it is not understood, raw has its bytes, valid until the next call.
func (c *Changes) row() (row Row, raw []byte, err error) {
	row, end, err := parseRow(c.j.Ahead())
	if end == jsontext.NotWhole && c.j.Widen() {
		row, end, err = parseRow(c.j.Ahead())
	}
	if err == nil && c.j.Passed(end, maxRow) {
		return row, nil, nil
	}
	raw, err = c.j.Value(maxRow)
	if errors.Is(err, ErrLimit) {
		row, _, _ = parseRow(c.j.Begun()) // its id and sequence come before the rest
		if rest := c.j.SkipRest(maxRowRest); errors.Is(rest, ErrLimit) {
			return Row{}, nil, err
		} else if rest != nil {
			return Row{}, nil, rest
		}
		return row, nil, unclear{err}
	}
	if err != nil {
		return Row{}, nil, err
	}
	row, _, err = parseRow(raw)
	return row, raw, err
}

// nextLine reads a row of a continuous feed. The feed ends with an object that has last_seq.
func (c *Changes) nextLine() (Row, error) {
	row, raw, err := c.row()
	if err == nil || !isObject(raw) {
		return row, err
	}
	end := false
	for m := range jsontext.Members(raw) {
		end = end || string(m.Key) == "last_seq"
	}
	if !end {
		return row, err
	}
	for m := range jsontext.Members(raw) {
		if err := c.tail(string(m.Key), raw[m.Value:m.End]); err != nil {
			return Row{}, err
		}
	}
	return Row{}, io.EOF
}

// enter reads up to the rows of a feed that is one object. Members before the rows are like the members of the tail.
func (c *Changes) enter() error {
	if err := c.begin(); err != nil {
		return err
	}
	return c.j.openArray("results", func(name string) error {
		err := c.readTail(name)
		if errors.Is(err, errGaveUp) {
			return &gaveUp{} // an answer without rows may be of any service, which is not quoted
		}
		return err
	})
}

// begin waits for the first byte of the next row.
func (c *Changes) begin() error {
	c.resting(true)
	defer c.resting(false)
	_, err := c.j.Next()
	return err
}

// resting records whether the feed may send nothing but heartbeats.
func (c *Changes) resting(may bool) {
	if c.beats {
		c.p.dog.rest(may)
	}
}

// leave reads from the end of the rows to the end of the feed. It returns io.EOF on success.
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
	raw, err := c.j.Value(maxRow)
	if err != nil {
		return err
	}
	return c.tail(name, raw)
}

// tail reads a member of the feed that is not a row.
func (c *Changes) tail(name string, raw []byte) error {
	switch name {
	case "last_seq":
		c.lastSeq = bytes.Clone(raw)
	case "pending":
		// Servers have sent null. The value is optional.
		if n, err := count(raw); err == nil {
			c.pending = &n
		}
	case "error":
		return &gaveUp{code: words(raw)}
	}
	return nil
}

// lateRefusal looks for an error that CouchDB met after the feed had begun. It follows the rows as an object of its
// own, without a comma, and has a status (code), an error and a reason.
func (c *Changes) lateRefusal(err error) error {
	if !errors.Is(err, ErrMalformed) {
		return err
	}
	if b, peekErr := c.j.Peek(); peekErr != nil || b != '{' {
		return err
	}
	raw, readErr := c.j.Value(maxRow)
	if readErr != nil {
		return err
	}
	if _, _, rowErr := parseRow(raw); errors.Is(rowErr, errGaveUp) {
		return rowErr
	}
	return err
}

// parseRow reads the row at the beginning of b. It returns where the row ends, or a code of jsontext.End if b is not
// JSON. The sequence shares the bytes of b. The error is an unclear if b begins with JSON that is not a row.
func parseRow(b []byte) (Row, int, error) {
	var row Row
	var last gaveUp
	var failure error // the first
	named := false
	if !isObject(b) {
		return row, 0, unclear{fmt.Errorf("%w: a row that is not an object", ErrMalformed)}
	}
	scan := jsontext.WalkObject(b)
	m := &scan.Member
	for scan.Name() && scan.Check() {
		var err error
		switch value := b[m.Value:m.End]; string(m.Key) {
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
		if err != nil && failure == nil {
			failure = fmt.Errorf("row of %q, member %s: %w", shortened(row.ID), m.Key, err)
		}
	}
	end := scan.Over()
	switch {
	case end < 0:
		return row, end, fmt.Errorf("%w: a row that is not JSON", ErrMalformed)
	case !named && last.code != "":
		e := last
		return row, 0, &e
	case failure != nil:
		return row, 0, unclear{failure}
	case !named:
		return row, 0, unclear{fmt.Errorf("%w: a row without an id: %w", ErrMalformed, quoted(string(b[:end])))}
	case len(row.Revs) == 0:
		return row, 0, unclear{fmt.Errorf("%w: the row of %q has no revision", ErrMalformed, shortened(row.ID))}
	}
	return row, end, nil
}

// parseRevs reads [{"rev": "1-a"}, ...], which is valid JSON.
func parseRevs(raw []byte) ([]string, error) {
	const before, after = `[{"rev":"`, `"}]`
	// Most documents have one leaf.
	if rev, ok := bytes.CutPrefix(raw, []byte(before)); ok {
		if rev, ok = bytes.CutSuffix(rev, []byte(after)); ok && jsontext.PastPlain(rev, 0) == len(rev) {
			return []string{string(rev)}, nil
		}
	}
	var revs []string
	if !isArray(raw) {
		return nil, fmt.Errorf("%w: not an array", ErrMalformed)
	}
	for _, change := range jsontext.Elements(raw) {
		if !isObject(change) {
			return revs, fmt.Errorf("%w: not an object", ErrMalformed)
		}
		for m := range jsontext.Members(change) {
			if string(m.Key) != "rev" {
				continue
			}
			rev, err := unquote(change[m.Value:m.End])
			if err != nil {
				return revs, err
			}
			revs = append(revs, rev)
		}
	}
	return revs, nil
}
