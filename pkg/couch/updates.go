package couch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"settee/pkg/jsontext"
)

// maxUpdate is the maximum size of a row of _db_updates in bytes. A sequence of a cluster with many shards has some
// kilobytes.
const maxUpdate = 1 << 20

// Update says that something happened to a database. A server may combine several updates of a database in one.
type Update struct {
	Database string
	// Type is "created", "updated", "deleted", or a word that a later server may have.
	Type string
	// Seq is the update's sequence: only the server that gave it can interpret it.
	Seq json.RawMessage
	// Size is the size of the row in bytes.
	Size int
}

// UpdatesLog describes the log from which a server's feed of updates comes.
type UpdatesLog struct {
	// Identity changes when the log begins anew, as it does when CouchDB's database _global_changes is deleted and created
	// again, unless that is within a second. A feed then begins with the first update of the new log, whatever its Since is,
	// and neither log has what happened between the two. It is empty if the server does not tell.
	Identity string
	// LastSeq is the sequence of the last update.
	LastSeq json.RawMessage
}

// Lacks reports whether the log ends before a sequence, so that the sequence is of another log. It can tell for servers
// whose sequences have numbers.
func (l UpdatesLog) Lacks(seq json.RawMessage) bool {
	number := sequenceNumber(seq)
	return number > 0 && sequenceNumber(l.LastSeq) < number
}

// UpdatesLog describes the log of updates. If this user cannot read it, or not the descriptions of databases
// ([Server.DatabasesInfo]), without which a feed is of little use, the error is [ErrNoUpdates] and says why in words for
// the server's administrator.
func (s *Server) UpdatesLog(ctx context.Context) (UpdatesLog, error) {
	// This comes first because servers without the request have another _db_updates, which waits for an update.
	if _, err := s.databasesInfo(ctx, nil); err != nil {
		return UpdatesLog{}, s.noUpdates(err)
	}
	var log UpdatesLog
	err := s.d.fetch(ctx, &request{
		method: http.MethodGet, path: "_db_updates", query: url.Values{"since": {"now"}, "limit": {"0"}},
	}, maxInfo, func(body []byte) error {
		var answer struct {
			LastSeq json.RawMessage `json:"last_seq"`
		}
		if err := json.Unmarshal(body, &answer); err != nil || len(answer.LastSeq) == 0 {
			return fmt.Errorf("%w: database updates without last_seq", ErrMalformed)
		}
		log.LastSeq = answer.LastSeq
		return nil
	})
	if err != nil {
		return UpdatesLog{}, s.noUpdates(err)
	}
	log.Identity, err = s.identity(ctx)
	return log, err
}

// identity returns what identifies the log: the instance of CouchDB's database of updates, or the uuid of a server that
// keeps its log elsewhere, as settee does.
func (s *Server) identity(ctx context.Context) (string, error) {
	var log struct {
		Instance json.RawMessage `json:"instance_start_time"`
	}
	if err := s.d.told(ctx, &request{path: "_global_changes"}, &log); err != nil {
		return "", err
	}
	switch instance := string(log.Instance); instance {
	case "":
	case "0", `"0"`, "null": // before CouchDB 3.3
		return "", nil
	default:
		return "_global_changes " + instance, nil
	}
	var server welcome
	err := s.d.told(ctx, &request{server: true}, &server)
	if err != nil || server.UUID == "" {
		return "", err
	}
	return "server " + server.UUID, nil
}

// noUpdates returns err, as ErrNoUpdates if the server's answer means that there is no feed for this user.
func (s *Server) noUpdates(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	var why string
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		if why = "without a user"; s.d.cfg.Username != "" {
			why = fmt.Sprintf("for the user %q", s.d.cfg.Username)
		}
		why += ", which requires an administrator of the server"
	case http.StatusNotFound:
		why = "because the server does not have it"
		if isNoDatabase(e.Reason) && s.d.couchDB.Load() {
			why = "because the server has no database _global_changes; an administrator can create it"
		}
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		why = "because the server does not have it"
	default:
		return err
	}
	return fmt.Errorf("%w %s (%w)", ErrNoUpdates, why, err)
}

// UpdatesOptions are the options of [Server.Updates].
type UpdatesOptions struct {
	// Since is the sequence after which the feed begins (Update.Seq, UpdatesLog.LastSeq). Empty: the first update.
	Since json.RawMessage
	// Heartbeat requests a heartbeat whenever there was no update for this long. A feed that is silent for three times
	// as long is stalled. Default: 30 s.
	Heartbeat time.Duration
}

// Updates is a feed of the updates of a server's databases. It is not safe for concurrent use, except for Heard. The
// context ends a waiting Next.
type Updates struct {
	p       *response
	j       answerReader
	quiet   quiet
	heard   atomic.Int64 // Unix time in nanoseconds
	since   int64        // number of the sequence at the start; 0 if it has none
	first   bool         // the next row is the first
	rewound bool
	err     error // the first error of Next
}

// Updates opens the feed GET /_db_updates?feed=continuous. [ErrNoUpdates] means that the server has none for this user,
// and [ErrUnknownSince] that it does not know Since. It uses no slot of MaxConnections.
func (s *Server) Updates(ctx context.Context, o UpdatesOptions) (*Updates, error) {
	if o.Heartbeat == 0 {
		o.Heartbeat = 30 * time.Second
	}
	r := &request{
		method: http.MethodGet, path: "_db_updates", noSlot: true, feed: true, encoding: identityEncoding, idle: silentBeats * o.Heartbeat,
		query: url.Values{"feed": {string(FeedContinuous)}, "heartbeat": {strconv.FormatInt(o.Heartbeat.Milliseconds(), 10)}},
	}
	if len(o.Since) > 0 {
		since, err := sequenceParameter(o.Since)
		if err != nil {
			return nil, err
		}
		r.query.Set("since", since)
	}
	p, err := s.d.stream(ctx, r)
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusBadRequest && len(o.Since) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrUnknownSince, err)
	}
	if err != nil {
		return nil, s.noUpdates(err)
	}
	u := newUpdates(p)
	u.p, u.since = p, sequenceNumber(o.Since)
	return u, nil
}

func newUpdates(r io.Reader) *Updates {
	u := &Updates{j: asAnswer(jsontext.NewLiveReader(r)), first: true}
	u.listen()
	u.j.Blank = 0 // heartbeats
	u.j.OnBlank = func(skipped int64) error {
		u.listen()
		return u.quiet.more(skipped)
	}
	return u
}

// listen notes that something arrived.
func (u *Updates) listen() { u.heard.Store(time.Now().UnixNano()) }

// Heard returns when the latest update or heartbeat arrived, or when the feed was opened.
func (u *Updates) Heard() time.Time { return time.Unix(0, u.heard.Load()) }

// Rewound reports whether the feed began before Since: the number of its first update is lower, because the server has
// forgotten some or all of what was before. It is known after the first Next, for servers whose sequences have numbers.
func (u *Updates) Rewound() bool { return u.rewound }

// Next waits for the next update. The error is io.EOF when the server has ended the feed properly, which a later feed can
// continue. [Changes.Next] names the other errors. After an error all later calls return the same error.
func (u *Updates) Next() (Update, error) {
	if u.err != nil {
		return Update{}, u.err
	}
	update, err := u.next()
	if err == nil {
		u.quiet.end()
		return update, nil
	}
	u.err = endFeed(u.p, "feed of database updates", err)
	u.j.Free()
	return Update{}, u.err
}

func (u *Updates) next() (Update, error) {
	u.j.Forget()
	u.resting(true)
	_, err := u.j.Next()
	u.resting(false)
	if err != nil {
		return Update{}, err
	}
	raw, err := u.j.Value(maxUpdate)
	if err != nil {
		return Update{}, err
	}
	u.listen()
	update, err := parseUpdate(raw)
	update.Size = len(raw)
	if err == nil && u.first {
		u.first = false
		number := sequenceNumber(update.Seq)
		u.rewound = number > 0 && number < u.since
	}
	return update, err
}

// resting records whether the feed may send nothing but heartbeats.
func (u *Updates) resting(may bool) {
	if u.p != nil {
		u.p.dog.rest(may)
	}
}

// Close abandons the feed. It may be called more than once.
func (u *Updates) Close() error {
	if u.err == nil {
		u.err = errors.New("the feed of database updates is closed")
		u.j.Free()
	}
	if u.p == nil {
		return nil
	}
	return u.p.Close()
}

// parseUpdate reads a row: {"db_name": ..., "type": ..., "seq": ...}, the end of the feed, {"last_seq": ...}, or an error.
func parseUpdate(raw []byte) (Update, error) {
	if !isObject(raw) {
		return Update{}, fmt.Errorf("%w: a row that is not an object", ErrMalformed)
	}
	var update Update
	var last gaveUp
	var named, ended bool
	for m := range jsontext.Members(raw) {
		var err error
		switch value := raw[m.Value:m.End]; string(m.Key) {
		case "db_name", "dbname":
			named = true
			update.Database, err = unquote(value)
		case "type":
			update.Type, err = unquote(value)
		case "seq":
			if string(value) != "null" {
				update.Seq = bytes.Clone(value)
			}
		case "last_seq":
			ended = true
		case "error":
			last.code = words(value)
		case "reason":
			last.reason = words(value)
		}
		if err != nil {
			return Update{}, fmt.Errorf("row of %q, member %s: %w", update.Database, m.Key, err)
		}
	}
	switch {
	case named:
		return update, nil
	case last.code != "":
		return Update{}, &last
	case ended:
		return Update{}, io.EOF
	}
	return Update{}, fmt.Errorf("%w: a row without the name of a database: %w", ErrMalformed, quoted(string(raw)))
}

// sequenceNumber returns the number at the beginning of a sequence: the number of updates, summed over the shards of
// CouchDB. It returns 0 if there is none.
func sequenceNumber(seq json.RawMessage) int64 {
	digits := bytes.TrimPrefix(bytes.TrimSpace(seq), []byte(`"`))
	end := 0
	for end < len(digits) && digits[end] >= '0' && digits[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(string(digits[:end]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
