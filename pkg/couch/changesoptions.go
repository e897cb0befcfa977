package couch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Feed is a kind of changes feed.
type Feed string

const (
	// FeedNormal ends with the last change.
	FeedNormal Feed = "normal"
	// FeedContinuous does not end, except with Limit.
	FeedContinuous Feed = "continuous"
)

const (
	// silentBeats is the number of missed heartbeats after which a feed is stalled.
	silentBeats = 3
	// serverTimeout is the time after which CouchDB ends a live feed without heartbeats ([chttpd] changes_timeout).
	serverTimeout = 60 * time.Second
)

// ChangesOptions selects the changes to read. The zero value reads all present changes.
type ChangesOptions struct {
	Feed Feed // default: FeedNormal
	// Since is the sequence after which the feed begins, as the server gave it (Row.Seq, LastSeq, UpdateSeq). Empty:
	// the feed begins with the first change.
	Since json.RawMessage
	// AllLeaves requests all leaves of each document (style=all_docs), not only the winner.
	AllLeaves bool
	// Heartbeat requests a heartbeat whenever there was no change for this long. A feed that is silent for three times
	// as long is stalled. FeedNormal needs heartbeats too, because a filter may leave out many changes. If the server
	// refuses them or SeqInterval, the feed goes without both.
	Heartbeat time.Duration
	// Patience, if not 0, is how long a feed may send nothing but heartbeats before it is stalled. A filter may leave
	// out a great many changes.
	Patience time.Duration
	Limit    int // default: no limit
	// SeqInterval asks for a sequence only in every row whose number, counted from 1, is a multiple of it, because making
	// one costs CouchDB more than the rest of a row. Servers may ignore it. Default: in every row. It is for feeds without
	// Limit.
	SeqInterval int

	// At most one of these three is set.
	DocIDs   []string        // documents with these ids (filter _doc_ids)
	Selector json.RawMessage // documents that match a selector (filter _selector)
	Filter   string          // a filter function, "ddoc/name", or "_view" or "_design"

	// Query has the parameters of the filter function, and the view of "_view".
	Query url.Values
}

// request returns the request for these options.
func (o ChangesOptions) request(connectionTimeout time.Duration) (*request, error) {
	q := maps.Clone(o.Query)
	if q == nil {
		q = url.Values{}
	}
	r := &request{method: http.MethodGet, path: "_changes", query: q, noSlot: true, feed: true}
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
		"limit":        o.limit(),
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
	if o.Feed != FeedNormal {
		r.encoding = identityEncoding
	}
	return r, o.filter(r)
}

// filter adds the parameters that select documents.
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
		r.body = bytesBody([]byte(`{"selector":`), o.Selector, []byte("}"))
	case o.Filter != "":
		r.query.Set("filter", o.Filter)
	}
	if r.body != nil {
		r.method, r.content = http.MethodPost, jsonType
	}
	return nil
}

// idle returns how long the feed may be silent.
func (o ChangesOptions) idle(connectionTimeout time.Duration) time.Duration {
	beats := silentBeats * o.Heartbeat
	switch {
	case o.Feed == FeedNormal:
		return max(beats, connectionTimeout)
	case o.Heartbeat > 0:
		return beats
	}
	return serverTimeout + connectionTimeout
}

// sequenceParameter encodes a sequence for a query as CouchDB expects it: a string without its quotes, any other value
// as JSON.
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

// limit returns the parameter limit. CouchDB puts sequences in the rows before which the rest of the limit is a multiple
// of seq_interval. Without a limit these are the first row and, usually, every seq_interval-th after it.
func (o ChangesOptions) limit() int64 {
	const most = 100_000_000_000_000 // CouchDB's default
	if interval := int64(o.SeqInterval); interval > 0 && o.Limit == 0 {
		return most - most%interval - 1
	}
	return int64(o.Limit)
}

// plain returns the options without parameters that a server need not know: heartbeat, seq_interval, and the limit that goes
// with the latter.
func (o ChangesOptions) plain() ChangesOptions {
	o.Heartbeat, o.SeqInterval = 0, 0
	return o
}

// isPlain reports whether plain would change nothing.
func (o ChangesOptions) isPlain() bool { return o.Heartbeat == 0 && o.SeqInterval == 0 }
