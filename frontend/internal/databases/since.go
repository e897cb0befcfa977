package databases

import (
	"context"
	"net/http"
	"strings"
	"time"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// since is where a feed begins: behind a sequence, at the latest row, or at a time. The zero value is the first row.
type since struct {
	seq docstore.Sequence
	now bool
	at  *time.Time // nil: none
}

// timeForm is the form of a time, in UTC, as in CouchDB.
const timeForm = "2006-01-02T15:04:05Z"

// readSince reads where a feed begins; now stands for the latest row. What a browser that connects again says
// (Last-Event-Id) precedes what is in the URL. A feed that descends begins at the end, whatever it says.
func readSince(r *http.Request, q *web.Query, kind feedKind) (since, error) {
	text := "0"
	for _, name := range []string{"since", "last-event-id"} {
		if q.Has(name) {
			text = q.Text(name)
		}
	}
	if seen := r.Header.Get("Last-Event-Id"); seen != "" && kind == feedEventSource {
		text = seen
	}
	switch {
	case q.Switch("descending"):
		return since{}, nil
	case text == "now":
		return since{now: true}, nil
	case isTime(text):
		at, err := time.Parse(timeForm, text)
		if err != nil {
			return since{}, web.BadRequest("invalid_time_format")
		}
		return since{at: &at}, nil
	}
	// The ids of events are JSON, as in CouchDB.
	seq, err := docstore.ParseSequence(strings.TrimSuffix(strings.TrimPrefix(text, `"`), `"`))
	if err != nil {
		return since{}, web.BadRequest("Malformed sequence supplied in 'since' parameter.")
	}
	return since{seq: seq}, nil
}

// isTime reports whether a text looks like a time: it has the length and the separators of timeForm. CouchDB takes such a text
// for a time, whatever is between them.
func isTime(text string) bool {
	if len(text) != len(timeForm) {
		return false
	}
	for i, c := range []byte(timeForm) {
		if (c < '0' || c > '9') && text[i] != c {
			return false
		}
	}
	return true
}

// find returns the sequence behind which a feed begins and, if wanted is true, the sequence of the latest row. latest and before
// read the sequences of the latest row, and of one before a time.
func (s since) find(r *http.Request, wanted bool, latest func(context.Context) (docstore.Sequence, error),
	before func(context.Context, time.Time) (docstore.Sequence, error),
) (seq, last docstore.Sequence, err error) {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	if wanted || s.now {
		if last, err = latest(ctx); err != nil {
			return seq, last, err
		}
	}
	switch {
	case s.now:
		return last, last, nil
	case s.at != nil:
		seq, err = before(ctx, *s.at)
		return seq, last, err
	}
	return s.seq, last, nil
}
