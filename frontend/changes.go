package frontend

import (
	"context"
	"crypto/md5"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"settee/pkg/config"
	"settee/pkg/docstore"
)

// changesRoutes are the paths of changes feeds.
func (h *Handler) changesRoutes(r *mux.Router) {
	changes := h.inDatabase(h.changes)
	r.Handle("/{db}/_changes", h.endpoint(methods{http.MethodGet: changes, http.MethodPost: changes}))
}

// feedKind is how a feed is sent, and when it ends.
type feedKind string

const (
	feedNormal      feedKind = "normal"      // what there is
	feedLongpoll    feedKind = "longpoll"    // what there is, or, if that is nothing, what comes next
	feedContinuous  feedKind = "continuous"  // what there is and all that comes, a line for each
	feedEventSource feedKind = "eventsource" // the same as server-sent events
)

const (
	// noLimit is CouchDB's. It shows in which rows have a sequence (seq_interval).
	noLimit = 1_000_000_000_000_000
	// normalHeartbeat is how long a feed that does not wait is silent at most, while it
	// reads changes that it does not show.
	normalHeartbeat = 5 * time.Second
	// minHeartbeat is how often a feed sends heartbeats at most: a client that asks for more
	// often gets these. Without it a few feeds keep a processor busy.
	minHeartbeat = 100 * time.Millisecond
)

// changesRequest is what a feed was asked for.
type changesRequest struct {
	kind       feedKind
	since      docstore.Sequence
	now        bool // since is the last change
	limit      int
	descending bool
	interval   int // every so many rows have their sequence

	leaves      bool // style=all_docs: the changes of a row are all leaves, not the winner alone
	documents   bool // include_docs, and
	conflicts   bool // what they are shown with
	attachments bool
	encodings   bool

	heartbeat time.Duration // 0: none
	timeout   time.Duration // how long it waits for a row, if there are no heartbeats

	filter changesFilter
}

// changes answers GET and POST /{db}/_changes.
func (h *Handler) changes(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	request, err := h.changesRequest(w, r, db)
	if err != nil {
		return err
	}
	// From here on the connection is read only to notice that the client hangs up.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if request.now || request.kind == feedNormal {
		last, err := lastSequence(r, db)
		if err != nil {
			return err
		}
		if request.now {
			request.since = last
		}
		if request.kind == feedNormal && unchanged(w, r, feedTag(db, last)) {
			return nil
		}
	}
	return newFeed(h, w, r, db, request).run()
}

func lastSequence(r *http.Request, db *docstore.Database) (docstore.Sequence, error) {
	ctx, cancel := storeContext(r)
	defer cancel()
	last, err := db.UpdateSequence(ctx)
	if err != nil {
		return last, docFailure(err)
	}
	return last, nil
}

// feedTag is the same while a feed of the database is.
func feedTag(db *docstore.Database, last docstore.Sequence) string {
	sum := md5.Sum([]byte(db.Instance() + last.String()))
	return `"` + strings.ToUpper(new(big.Int).SetBytes(sum[:]).Text(36)) + `"`
}

// unchanged sets an entity tag, and answers a client that has what it stands for.
func unchanged(w http.ResponseWriter, r *http.Request, tag string) bool {
	w.Header().Set("ETag", tag)
	if r.Method == http.MethodPost {
		return false
	}
	for known := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if known = strings.TrimSpace(known); known == "*" || strings.TrimPrefix(known, "W/") == tag {
			w.WriteHeader(http.StatusNotModified)
			return true
		}
	}
	return false
}

// changesRequest reads the query and the body of a request.
func (h *Handler) changesRequest(w http.ResponseWriter, r *http.Request, db *docstore.Database) (*changesRequest, error) {
	q := newQuery(r)
	request := &changesRequest{
		limit:       q.count("limit", noLimit),
		descending:  q.flag("descending", false),
		interval:    q.count("seq_interval", 1),
		documents:   q.flag("include_docs", false),
		conflicts:   q.flag("conflicts", false),
		attachments: q.flag("attachments", false),
		encodings:   q.flag("att_encoding_info", false),
	}
	if request.interval == 0 {
		q.refuse("`seq_interval` must be a whole number of at least 1")
	}
	request.kind = q.feedKind()
	switch style := q.text("style"); style {
	case "", "main_only":
	case "all_docs":
		request.leaves = true
	default:
		q.refuse("`style` must be main_only or all_docs")
	}
	request.heartbeat, request.timeout = q.patience(config.ChangesTimeout.Get(h.config.Current()))
	if request.kind == feedNormal && request.heartbeat == 0 {
		request.heartbeat = normalHeartbeat
	}
	if q.err != nil {
		return nil, q.err
	}
	if err := request.readSince(r, q); err != nil {
		return nil, err
	}
	body, err := h.changesBody(w, r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := storeContext(r)
	defer cancel()
	request.filter, err = readFilter(ctx, q, body, db)
	return request, err
}

func (q *query) feedKind() feedKind {
	switch feed := q.text("feed"); feed {
	case "":
		return feedNormal
	case "live":
		return feedContinuous
	case "normal", "longpoll", "continuous", "eventsource":
		return feedKind(feed)
	}
	if q.err == nil {
		q.err = badRequest("Supported `feed` types: normal, continuous, live, longpoll, eventsource")
	}
	return ""
}

// patience reads how long a feed that waits is silent. Where there are heartbeats, it does
// not end for want of changes.
func (q *query) patience(standard time.Duration) (heartbeat, timeout time.Duration) {
	timeout = standard
	if q.has("timeout") {
		timeout = min(standard, q.milliseconds("timeout"))
	}
	if text := q.text("heartbeat"); text == "true" {
		heartbeat = standard
	} else if q.has("heartbeat") {
		if heartbeat = min(standard, q.milliseconds("heartbeat")); heartbeat == 0 {
			q.refuse("Invalid heartbeat value. Expecting a positive integer value (in milliseconds).")
		}
	}
	if heartbeat > 0 {
		heartbeat = max(heartbeat, minHeartbeat)
	}
	return heartbeat, timeout
}

func (q *query) milliseconds(name string) time.Duration {
	const most = 1 << 40 // so that it can be multiplied
	return time.Duration(min(q.count(name, 0), most)) * time.Millisecond
}

// readSince reads where the feed begins. What a browser saw last, when it connects again,
// comes before what the URL says.
func (c *changesRequest) readSince(r *http.Request, q *query) error {
	since := "0"
	for _, name := range []string{"since", "last-event-id"} {
		if q.has(name) {
			since = q.text(name)
		}
	}
	if seen := r.Header.Get("Last-Event-Id"); seen != "" && c.kind == feedEventSource {
		since = seen
	}
	if since == "now" {
		c.now = true
		return nil
	}
	// The ids of events are JSON, as CouchDB's are.
	since = strings.TrimSuffix(strings.TrimPrefix(since, `"`), `"`)
	seq, err := docstore.ParseSequence(since)
	if err != nil {
		return badRequest("Malformed sequence supplied in 'since' parameter.")
	}
	c.since = seq
	return nil
}

// changesBody reads the body of a POST; nil is none.
func (h *Handler) changesBody(w http.ResponseWriter, r *http.Request) (map[string]json.RawMessage, error) {
	if r.Method != http.MethodPost {
		return nil, nil
	}
	body, err := h.readJSON(w, r)
	if err != nil || len(body) == 0 {
		return nil, err
	}
	return parseObject(body)
}

// pendingMost is how many changes are counted.
const pendingMost = 10_000

// pending is how many changes there are behind a sequence, as JSON: null if that is more
// than are counted.
func pending(ctx context.Context, db *docstore.Database, since docstore.Sequence) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
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
