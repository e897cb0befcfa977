package couch

const (
	// maxRows is how many rows of a feed are read at a time.
	maxRows = 64
	// fewRows is how many rows a feed has room for while it waits.
	fewRows = 4
)

// plainRows reads rows, at most so many, that are whole in the window, and spelled as CouchDB spells those of
// documents with one leaf. It reports whether there are any.
//
// The strings of all are made together: of rows in a feed's thousands it is the memory that takes time.
func (c *Changes) plainRows(most int) bool {
	var ends [maxRows]struct{ id, rev int } // in text
	rows, text := c.rows[:0], c.text[:0]
	for len(rows) < most {
		b := c.j.ahead()
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
		c.j.passed(at+row.end, len(b))
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

// nextPlain returns where in b, which begins after a row, the next one begins, if there is one.
func (c *Changes) nextPlain(b []byte) int {
	at := pastBlank(b, 0)
	if !c.live && at < len(b) && b[at] == ',' {
		return pastBlank(b, at+1)
	}
	if c.live {
		return at
	}
	return len(b)
}

// spelledRow is a row as it lies in the window.
type spelledRow struct {
	seq     []byte // with its quotes
	id, rev []byte
	deleted bool
	end     int
}

// parsePlainRow reads the row that b begins with, if it is spelled in this one way.
func parsePlainRow(b []byte) (row spelledRow, ok bool) {
	const seq, id, rev, last, deleted = `{"seq":"`, `","id":"`, `","changes":[{"rev":"`, `"}]`, `,"deleted":true`
	if row.seq, row.end, ok = textAfter(b, 0, seq); !ok {
		return row, false
	}
	row.seq = b[len(seq)-1 : min(row.end+1, len(b))]
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

// textAfter returns what follows before, which is at b[at], up to the first byte that needs a closer look, and
// where that is.
func textAfter(b []byte, at int, before string) (text []byte, end int, ok bool) {
	if !follows(b, at, before) {
		return nil, at, false
	}
	at += len(before)
	end = pastPlain(b, at)
	return b[at:end], end, true
}

// follows reports whether text is at b[at].
func follows(b []byte, at int, text string) bool {
	return len(b)-at >= len(text) && string(b[at:at+len(text)]) == text
}
