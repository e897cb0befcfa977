package replicator

import (
	"encoding/json"
	"fmt"
	"time"
)

// The fields that say in a document what became of its job. All others are the
// user's.
const (
	fieldState     = "_replication_state"
	fieldStateTime = "_replication_state_time"
	fieldReason    = "_replication_state_reason"
	fieldID        = "_replication_id"
	fieldStats     = "_replication_stats"
)

// DocumentStats is the value of `_replication_stats`.
type DocumentStats struct {
	Progress
	StartTime time.Time `json:"start_time,omitzero"`
}

// MarshalJSON writes the time in UTC and whole seconds.
func (s DocumentStats) MarshalJSON() ([]byte, error) {
	type plain DocumentStats
	s.StartTime = wholeSeconds(s.StartTime)
	return json.Marshal(plain(s))
}

// DocumentStats returns what a document is told of the work that its job has done.
func (s *JobState) DocumentStats() DocumentStats {
	return DocumentStats{Progress: s.Progress(), StartTime: s.StartTime}
}

// SetDocumentStats takes over what a document was told of the work of a job that ended elsewhere.
func (s *JobState) SetDocumentStats(stats DocumentStats) {
	s.StartTime, s.ChangesPending, s.CheckpointedSourceSeq = stats.StartTime, stats.ChangesPending, stats.CheckpointedSourceSeq
	s.Stats = Stats{
		RevisionsChecked: stats.RevisionsChecked, MissingRevisionsFound: stats.MissingRevisionsFound,
		DocsRead: stats.DocsRead, DocsWritten: stats.DocsWritten, DocWriteFailures: stats.DocWriteFailures,
		BulkGetDocs: stats.BulkGetDocs, BulkGetAttempts: stats.BulkGetAttempts,
	}
}

// UpdateDocument returns the text of the job's document as it is when the job has
// come into this state, at LastUpdated. The fields that it writes are
//
//	job        _replication_state  _reason  _stats  _replication_id
//	completed  completed           removed  set     as it was
//	failed     failed              set      removed as it was
//	running    triggered           removed  removed set
//	crashing   error               set      removed set, null if not known
//	pending    as it was           as it was ...
//
// and `_replication_state_time` (RFC 3339, UTC, whole seconds) where the state is
// another than before. Running and crashing are only for update_docs = true. Every
// other byte of the text stays. The error is a *ParseError if text is no
// JSON object.
func (s *JobState) UpdateDocument(text []byte) ([]byte, error) {
	state, edits, err := s.documentEdits()
	if err != nil || edits == nil {
		return text, err
	}
	doc, err := splitObject(text)
	if err != nil {
		return nil, err
	}
	f := doc.fields(fieldState, fieldStateTime)
	first := []edit{{fieldState, encodeJSON(state)}}
	if _, dated := f.values[fieldStateTime]; !dated || f.textIfAny(fieldState) != string(state) {
		at := wholeSeconds(s.LastUpdated).Format(time.RFC3339)
		first = append(first, edit{fieldStateTime, encodeJSON(at)})
	}
	return doc.edited(append(first, edits...)), nil
}

// documentEdits returns the state that a document has for a job in this state, and
// what else changes in it; nil if nothing does.
func (s *JobState) documentEdits() (DocumentState, []edit, error) {
	reason := encodeJSON(cleanReason(s.Error))
	switch s.State {
	case StateCompleted:
		stats, err := json.Marshal(s.DocumentStats())
		if err != nil {
			return "", nil, fmt.Errorf("writing the statistics of a replication: %w", err)
		}
		return DocumentCompleted, []edit{{fieldReason, nil}, {fieldStats, stats}}, nil
	case StateFailed:
		return DocumentFailed, []edit{{fieldReason, reason}, {fieldStats, nil}}, nil
	case StateRunning:
		return DocumentTriggered, []edit{{fieldReason, nil}, {fieldID, encodeJSON(s.ReplicationID)}, {fieldStats, nil}}, nil
	case StateCrashing:
		id := json.RawMessage("null")
		if s.ReplicationID != "" {
			id = encodeJSON(s.ReplicationID)
		}
		return DocumentError, []edit{{fieldReason, reason}, {fieldID, id}, {fieldStats, nil}}, nil
	}
	return "", nil, nil
}

// ClearDocumentState returns the text of a document without the fields that say
// what became of its job, and with every other byte as it was. CouchDB does so with
// a document that an older version left triggered or in error. The error is a
// *ParseError if text is no JSON object.
func ClearDocumentState(text []byte) ([]byte, error) {
	doc, err := splitObject(text)
	if err != nil {
		return nil, err
	}
	return doc.edited([]edit{
		{fieldState, nil}, {fieldStateTime, nil}, {fieldReason, nil}, {fieldID, nil}, {fieldStats, nil},
	}), nil
}
