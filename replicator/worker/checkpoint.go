package worker

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"time"

	"settee/pkg/jsontext"
	"settee/replicator"
)

const (
	// maxHistory is the number of sessions in a checkpoint, as in CouchDB.
	maxHistory = 50
	// maxResult is the maximum size in bytes of Result.History, which is stored with the job's state.
	maxResult = 60_000
	// maxCounter is the largest counter of a checkpoint that is believed. Statistics are added to it.
	maxCounter = 1 << 53
)

var beginning = json.RawMessage("0")

// checkpoint has the members of a checkpoint document that are used. The zero value stands for a missing document.
type checkpoint struct {
	rev     string
	session string
	seq     json.RawMessage // source_last_seq; nil if missing or malformed
	version json.RawMessage
	docIDs  docIDsStats // only in replications by document ids
	history []session   // newest first
	// about identifies the databases, in the target's checkpoint only.
	about instances
}

// checkpoints are the checkpoints that a run goes on from and writes. One goroutine at a time writes them.
type checkpoints struct {
	// These are written during begin and only read afterwards.
	id      replicator.ID
	session string          // 32 hex digits
	start   json.RawMessage // where the feed begins
	earlier []session       // the history before start

	latest record // the checkpoint as last read or written
	wrote  bool   // this run has written a checkpoint
}

func newSessionID() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

// instances has the instance_start_time of both databases, or nil where it is unknown.
type instances struct {
	Source json.RawMessage `json:"source,omitempty"`
	Target json.RawMessage `json:"target,omitempty"`
}

// session is an entry of a checkpoint's history.
type session struct {
	id    string
	start json.RawMessage // start_last_seq; nil if missing or malformed
	seq   json.RawMessage // recorded_seq
	stats replicator.Stats
	ended time.Time // end_time
	raw   json.RawMessage
}

// docIDsStats are members that checkpoints of replications by document ids repeat outside the history, since CouchDB
// 0.11.
type docIDsStats struct {
	StartTime string `json:"start_time,omitempty"`
	EndTime   string `json:"end_time,omitempty"`
	*replicator.DocCounts
}

// entry is a history entry to be written.
type entry struct {
	SessionID    string          `json:"session_id"`
	StartTime    string          `json:"start_time"`
	EndTime      string          `json:"end_time"`
	StartLastSeq json.RawMessage `json:"start_last_seq"`
	EndLastSeq   json.RawMessage `json:"end_last_seq"`
	RecordedSeq  json.RawMessage `json:"recorded_seq"`
	replicator.CheckpointStats
}

// record is a checkpoint to be written, or, with OK, the answer to POST /_replicate.
type record struct {
	OK        bool `json:"ok,omitempty"`
	NoChanges bool `json:"no_changes,omitempty"`

	ID  string `json:"_id,omitempty"`
	Rev string `json:"_rev,omitempty"`

	SessionID     string          `json:"session_id,omitempty"`
	SourceLastSeq json.RawMessage `json:"source_last_seq,omitempty"`
	Version       json.RawMessage `json:"replication_id_version,omitempty"`
	docIDsStats
	History []json.RawMessage `json:"history,omitempty"`

	// About is in the target's checkpoint only; see run.record.
	About *instances `json:"about,omitempty"`
}

// parseCheckpoint reads a checkpoint document. Members that CouchDB would not write count as missing, so a foreign
// document can only make the run copy more.
func parseCheckpoint(doc json.RawMessage) checkpoint {
	var c checkpoint
	fields := members(doc)
	c.rev = text(fields["_rev"])
	c.session = text(fields["session_id"])
	c.seq = sequence(fields["source_last_seq"])
	c.version = fields["replication_id_version"]
	c.docIDs = docIDsStats{
		StartTime: text(fields["start_time"]), EndTime: text(fields["end_time"]),
		DocCounts: docCounts(fields),
	}
	about := members(fields["about"])
	c.about = instances{Source: about["source"], Target: about["target"]}
	var entries []json.RawMessage
	if json.Unmarshal(fields["history"], &entries) != nil {
		return c
	}
	for _, raw := range entries[:min(len(entries), maxHistory)] {
		fields := members(raw)
		s := session{
			id: text(fields["session_id"]), raw: raw,
			start: sequence(fields["start_last_seq"]), seq: sequence(fields["recorded_seq"]),
		}
		if fields == nil || s.id == "" {
			continue
		}
		s.stats = statsOf(fields)
		s.ended, _ = http.ParseTime(text(fields["end_time"]))
		c.history = append(c.history, s)
	}
	return c
}

// members returns the members of a JSON object, or nil for any other value.
func members(raw json.RawMessage) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return nil
	}
	return fields
}

// statsOf returns the counters of a history entry.
func statsOf(fields map[string]json.RawMessage) replicator.Stats {
	counter := func(name string) int64 {
		if n := count(fields[name]); n != nil && *n >= 0 && *n <= maxCounter {
			return *n
		}
		return 0
	}
	return replicator.Stats{
		RevisionsChecked: counter("missing_checked"), MissingRevisionsFound: counter("missing_found"),
		DocCounts: replicator.DocCounts{
			DocsRead: counter("docs_read"), DocsWritten: counter("docs_written"), DocWriteFailures: counter("doc_write_failures"),
		},
		BulkGetDocs: counter("bulk_get_docs"), BulkGetAttempts: counter("bulk_get_attempts"),
	}
}

func text(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

func count(raw json.RawMessage) *int64 {
	var n *int64
	if json.Unmarshal(raw, &n) != nil {
		return nil
	}
	return n
}

// docCounts returns the counters of documents, or nil if one is missing or not a number.
func docCounts(fields map[string]json.RawMessage) *replicator.DocCounts {
	read, written, failures := count(fields["docs_read"]), count(fields["docs_written"]), count(fields["doc_write_failures"])
	if read == nil || written == nil || failures == nil {
		return nil
	}
	return &replicator.DocCounts{DocsRead: *read, DocsWritten: *written, DocWriteFailures: *failures}
}

// sequence returns raw if it can be a sequence: a string, a number or an array.
func sequence(raw json.RawMessage) json.RawMessage {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == `""` {
		return nil
	}
	switch first := raw[0]; {
	case first == '"', first == '[', first == '-', first >= '0' && first <= '9':
		return raw
	}
	return nil
}

// latest returns the history entry of the session that wrote the checkpoint, or a zero session.
func (c *checkpoint) latest() session {
	for _, s := range c.history {
		if s.id == c.session {
			return s
		}
	}
	return session{}
}

// commonAncestor returns the sequence up to which both checkpoints agree that everything was copied, and the sessions
// before it. It returns nil if they have nothing in common.
//
// As in CouchDB, that is the sequence of the session that wrote both, or else of the newest session in both histories.
// If the two sides differ on a session, the earlier state counts: a run that ended between its two writes leaves the
// target ahead, and a target restored from a backup is behind.
func commonAncestor(source, target checkpoint) (json.RawMessage, []session) {
	if source.session != "" && source.session == target.session && source.seq != nil && target.seq != nil {
		if target.latest().before(source.latest()) {
			return target.seq, target.history
		}
		return source.seq, source.history
	}
	theirs := make(map[string]session, len(target.history))
	for _, s := range target.history {
		if _, double := theirs[s.id]; !double {
			theirs[s.id] = s
		}
	}
	for i, ours := range source.history {
		other, common := theirs[ours.id]
		if !common {
			continue
		}
		if other.before(ours) {
			ours = other
		}
		if ours.seq == nil {
			return nil, nil
		}
		return ours.seq, append([]session{ours}, source.history[i+1:]...)
	}
	return nil, nil
}

// before reports whether s is an earlier state of the same session. Its counter and end time grow with each checkpoint.
func (s session) before(other session) bool {
	if checked, others := s.stats.RevisionsChecked, other.stats.RevisionsChecked; checked != others {
		return checked < others
	}
	return s.ended.Before(other.ended)
}

// newRecord returns the checkpoint of a session that has reached seq.
func newRecord(e entry, seq json.RawMessage, before []session, byDocIDs bool) record {
	rec := record{
		SessionID: e.SessionID, SourceLastSeq: seq, Version: json.RawMessage("4"),
		History: make([]json.RawMessage, 0, maxHistory),
	}
	if byDocIDs {
		rec.docIDsStats = docIDsStats{
			StartTime: e.StartTime, EndTime: e.EndTime, DocCounts: new(e.DocCounts),
		}
	}
	rec.History = append(rec.History, encode(e))
	for _, s := range before[:min(len(before), maxHistory-1)] {
		rec.History = append(rec.History, s.raw)
	}
	return rec
}

// recordOf converts a checkpoint that was read.
func recordOf(c checkpoint) record {
	rec := record{SessionID: c.session, SourceLastSeq: c.seq, Version: c.version, docIDsStats: c.docIDs}
	for _, s := range c.history {
		rec.History = append(rec.History, s.raw)
	}
	return rec
}

// result returns the answer to POST /_replicate, without the oldest sessions if it would be too large.
func (rec record) result(noChanges bool) json.RawMessage {
	rec.OK, rec.NoChanges, rec.ID, rec.Rev = true, noChanges, "", ""
	for {
		encoded := encode(rec)
		switch {
		case len(encoded) <= maxResult:
			return encoded
		case len(rec.History) == 0:
			// The sequence itself is too large.
			return encode(record{OK: true, NoChanges: noChanges, SessionID: rec.SessionID})
		}
		rec.History = rec.History[:len(rec.History)-1]
	}
}

// encode encodes a value of this package as JSON.
func encode(value any) json.RawMessage {
	text, err := jsontext.Encode(value)
	if err != nil {
		panic("worker: " + err.Error()) // value has only strings, numbers and valid JSON
	}
	return text
}

func httpTime(t time.Time) string { return t.UTC().Format(http.TimeFormat) }
