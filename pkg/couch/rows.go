package couch

import "settee/pkg/jsontext"

const (
	// maxRows is the maximum number of rows read at a time.
	maxRows = 64
	// fewRows is the capacity for rows of a waiting feed.
	fewRows = 4
)

// plainRows reads at most n rows that are whole in the window and spelled as CouchDB spells rows of documents with one
// leaf. It reports whether there are any.
//
// All strings share one allocation, because allocations dominate the time of reading a feed.
func (c *Changes) plainRows(most int) bool {
	var ends [maxRows]struct{ id, rev int } // in text
	rows, text := c.rows[:0], c.text[:0]
	for len(rows) < most {
		b := c.j.Ahead()
		at := 0
		if len(rows) > 0 {
			at = c.nextPlain(b)
		}
		row, ok := parsePlainRow(b[at:])
		if !ok {
			break
		}
		text = append(text, row.id...)
		ends[len(rows)].id = len(text)
		text = append(text, row.rev...)
		ends[len(rows)].rev = len(text)
		rows = append(rows, Row{Seq: row.seq, Deleted: row.deleted})
		c.j.Passed(at+row.end, len(b))
	}
	c.rows, c.text = rows, text
	all := string(text)
	revs := make([]string, len(rows))
	start := 0
	for i := range rows {
		id, rev := ends[i].id, ends[i].rev
		rows[i].ID, revs[i] = all[start:id], all[id:rev]
		rows[i].Revs = revs[i : i+1 : i+1]
		start = rev
	}
	return len(rows) > 0
}

// nextPlain returns where the next row begins in b, which begins after a row, if there is one.
func (c *Changes) nextPlain(b []byte) int {
	at := jsontext.PastBlank(b, 0)
	if !c.live && at < len(b) && b[at] == ',' {
		return jsontext.PastBlank(b, at+1)
	}
	if c.live {
		return at
	}
	return len(b)
}

// spelledRow is a row in the window.
type spelledRow struct {
	seq     []byte // with its quotes; nil means null
	id, rev []byte
	deleted bool
	end     int
}

// parsePlainRow reads the row at the beginning of b, if it has this spelling.
func parsePlainRow(b []byte) (row spelledRow, ok bool) {
	const seq, null, id, rev, last, deleted = `{"seq":"`, `{"seq":null`, `,"id":"`, `","changes":[{"rev":"`, `"}]`, `,"deleted":true`
	if follows(b, 0, null) {
		row.end = len(null)
	} else {
		if row.seq, row.end, ok = textAfter(b, 0, seq); !ok || !follows(b, row.end, `"`) {
			return row, false
		}
		row.end++
		row.seq = b[len(seq)-1 : row.end]
	}
	if row.id, row.end, ok = textAfter(b, row.end, id); !ok || len(row.id) == 0 {
		return row, false
	}
	if row.rev, row.end, ok = textAfter(b, row.end, rev); !ok || !follows(b, row.end, last) {
		return row, false
	}
	row.end += len(last)
	if row.deleted = follows(b, row.end, deleted); row.deleted {
		row.end += len(deleted)
	}
	ok = follows(b, row.end, "}")
	row.end++
	return row, ok
}

// textAfter returns the text after before, which is at b[at], up to the first byte that is not plain, and the index of
// that byte.
func textAfter(b []byte, at int, before string) (text []byte, end int, ok bool) {
	if !follows(b, at, before) {
		return nil, at, false
	}
	at += len(before)
	end = jsontext.PastPlain(b, at)
	return b[at:end], end, true
}

// follows reports whether text is at b[at].
func follows(b []byte, at int, text string) bool {
	return len(b)-at >= len(text) && string(b[at:at+len(text)]) == text
}
