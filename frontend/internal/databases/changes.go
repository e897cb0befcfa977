package databases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/docstore"
)

// feedKind is how a feed is sent, and when it ends.
type feedKind string

const (
	feedNormal      feedKind = "normal"      // the changes that there are
	feedLongpoll    feedKind = "longpoll"    // the changes that there are; if there are none, the next ones
	feedContinuous  feedKind = "continuous"  // all changes, until the client hangs up, one per line
	feedEventSource feedKind = "eventsource" // continuous, as server-sent events
)

const (
	// noLimit is the default limit of CouchDB. It is visible: seq_interval counts rows from it.
	noLimit = 1_000_000_000_000_000
	// normalHeartbeat is the longest silence of a normal feed, while it reads changes that it does not show.
	normalHeartbeat = 5 * time.Second
	// minHeartbeat is the shortest interval between heartbeats. A client that asks for a shorter one gets this one,
	// because a few feeds with very short intervals would keep a processor busy.
	minHeartbeat = 100 * time.Millisecond
)

// changesRequest has the parameters of a feed.
type changesRequest struct {
	kind       feedKind
	since      since
	limit      int
	descending bool
	interval   int // one row in so many has a sequence

	leaves      bool // style=all_docs: a row has all leaves, not only the winner
	documents   bool // include_docs
	conflicts   bool // _conflicts of the documents
	attachments bool
	encodings   bool

	patience

	filter changesFilter
	body   map[string]json.RawMessage // nil: there is none
}

// patience is how long a feed may be silent.
type patience struct {
	heartbeat time.Duration // 0: none
	timeout   time.Duration // how long it waits for a row, if it has no heartbeats
}

// Changes answers GET and POST /{db}/_changes.
func (e *Endpoints) Changes(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	f, err := e.openFeed(w, r, db)
	if f == nil {
		return err
	}
	return f.run()
}

// openFeed returns the feed that a request asks for. If there is no need to send one, it answers the request and returns
// nil.
func (e *Endpoints) openFeed(w http.ResponseWriter, r *http.Request, db *docstore.Database) (*feed, error) {
	request, err := e.changesRequest(w, r, db)
	if err != nil {
		return nil, err
	}
	since, last, err := request.since.find(r, request.kind == feedNormal, db.UpdateSequence, db.SequenceBefore)
	if err != nil {
		return nil, web.StoreFailure(err)
	}
	if request.kind == feedNormal && unchanged(w, r, db, last) {
		return nil, nil
	}
	return newFeed(e, w, r, db, request, since), nil
}

// unchanged sets the entity tag of a normal feed, which changes with each change in the database. It reports whether it
// has answered a client that has the feed already.
func unchanged(w http.ResponseWriter, r *http.Request, db *docstore.Database, last docstore.Sequence) bool {
	tag := digestTag([]byte(db.Instance() + last.String()))
	w.Header().Set("ETag", tag)
	switch {
	case r.Method == http.MethodPost:
		return false
	case r.Header.Get("If-None-Match") == "*": // of feeds alone, as CouchDB does not know it
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	return web.NotModified(w, r, tag)
}

// changesRequest reads the query and the body of a request.
func (e *Endpoints) changesRequest(w http.ResponseWriter, r *http.Request, db *docstore.Database) (request *changesRequest, err error) {
	q := web.NewQuery(r)
	request = &changesRequest{
		limit:       readCount(q, "limit", noLimit, reasonOfChanges),
		descending:  q.Switch("descending"),
		interval:    1,
		documents:   q.Switch("include_docs"),
		conflicts:   q.Switch("conflicts"),
		attachments: q.Switch("attachments"),
		encodings:   q.Switch("att_encoding_info"),
	}
	if n, err := strconv.Atoi(q.Text("seq_interval")); err == nil && n > 0 {
		request.interval = n
	} else if q.Has("seq_interval") {
		q.Fail(web.BadRequest("`seq_interval` must be a whole number of at least 1"))
	}
	request.kind = readKind(q, "live", "normal, continuous, live, longpoll, eventsource")
	switch style := q.Text("style"); style {
	case "", "main_only":
	case "all_docs":
		request.leaves = true
	default:
		q.Refuse("`style` must be main_only or all_docs")
	}
	request.patience = readPatience(q, request.kind, config.ChangesTimeout.Get(e.Settings.Current()), reasonOfChanges)
	if q.Err != nil {
		return nil, q.Err
	}
	if request.since, err = readSince(r, q, request.kind); err != nil {
		return nil, err
	}
	body, err := e.changesBody(w, r)
	if err != nil {
		return nil, err
	}
	request.body = body
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	request.filter, err = e.readFilter(ctx, q, body, db)
	return request, err
}

// countReason returns the reason why a feed refuses a count. isNumber: it is a whole number, below 0.
type countReason func(name string, isNumber bool) string

// reasonOfChanges is the reason of _changes, in the words of releases of CouchDB after 3.5.2.
func reasonOfChanges(name string, isNumber bool) string {
	if isNumber {
		return "The " + name + " value should be a non-negative integer"
	}
	return "The " + name + " parameter should be a non-negative integer"
}

// readCount returns a parameter that is a whole number of at least 0, and missing if there is none. As in CouchDB it may
// have a sign, and any number of digits.
func readCount(q *web.Query, name string, missing int, reason countReason) int {
	if !q.Has(name) {
		return missing
	}
	n, err := strconv.ParseInt(q.Text(name), 10, 64)
	notNumber := errors.Is(err, strconv.ErrSyntax) // one that int64 cannot hold is its nearest
	if notNumber || n < 0 {
		q.Fail(web.BadRequest(reason(name, !notNumber)))
		return missing
	}
	return int(min(n, math.MaxInt))
}

// readKind reads the parameter feed. live, if not empty, is another name of a continuous feed. supported names all.
func readKind(q *web.Query, live, supported string) feedKind {
	switch feed := q.Text("feed"); feed {
	case "":
		return feedNormal
	case "normal", "longpoll", "continuous", "eventsource":
		return feedKind(feed)
	case live:
		return feedContinuous
	}
	q.Fail(web.BadRequest("Supported `feed` types: " + supported))
	return ""
}

// readPatience reads how long a feed that waits may be silent. standard is the longest time, and the default. A
// feed with heartbeats does not end because of silence.
func readPatience(q *web.Query, kind feedKind, standard time.Duration, reason countReason) patience {
	const most = 1 << 40 // the product does not overflow
	timeout := readCount(q, "timeout", most, reason)
	p := patience{timeout: min(standard, time.Duration(min(timeout, most))*time.Millisecond)}
	if text := q.Text("heartbeat"); text == "true" {
		p.heartbeat = standard
	} else if q.Has("heartbeat") {
		n, err := strconv.ParseInt(text, 10, 64)
		switch {
		case errors.Is(err, strconv.ErrSyntax):
			q.Fail(web.BadRequest("Invalid heartbeat value. Expecting a positive integer value (in milliseconds)."))
		case n <= 0: // also one that int64 cannot hold
			q.Fail(web.BadRequest("The heartbeat value should be a positive integer (in milliseconds)."))
		}
		p.heartbeat = min(standard, time.Duration(min(n, most))*time.Millisecond)
	}
	if p.heartbeat > 0 {
		p.heartbeat = max(p.heartbeat, minHeartbeat)
	} else if kind == feedNormal {
		p.heartbeat = normalHeartbeat
	}
	return p
}

// changesBody reads the body of a POST, and returns nil if there is none.
func (e *Endpoints) changesBody(w http.ResponseWriter, r *http.Request) (map[string]json.RawMessage, error) {
	if r.Method != http.MethodPost {
		return nil, nil
	}
	body, err := web.ReadJSON(w, r, e.Settings.Current())
	if err != nil || len(body) == 0 {
		return nil, err
	}
	return web.ParseObject(body)
}

// pendingMost is the most changes that are counted.
const pendingMost = 10_000

// pending returns the number of changes after a sequence, as JSON. It is null if there are more than pendingMost.
func pending(ctx context.Context, db *docstore.Database, since docstore.Sequence) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, web.StoreTimeout)
	defer cancel()
	n, err := db.CountChanges(ctx, since, pendingMost+1)
	switch {
	case err != nil:
		return "", fmt.Errorf("counting changes: %w", err)
	case n > pendingMost:
		return "null", nil
	}
	return strconv.Itoa(n), nil
}
