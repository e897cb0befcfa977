package replicator

import (
	"encoding/json"
	"fmt"
	"time"
)

// The fields of a document that record the outcome of its job. All others are the user's.
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

// DocumentStats returns the statistics for the job's document.
func (s *JobState) DocumentStats() DocumentStats {
	progress := s.Progress()
	progress.SourceSeq, progress.ThroughSeq = nil, nil
	return DocumentStats{Progress: progress, StartTime: s.StartTime}
}

// SetDocumentStats sets the progress to the statistics of a document whose job ended in another
// system.
func (s *JobState) SetDocumentStats(stats DocumentStats) {
	s.StartTime, s.ChangesPending, s.CheckpointedSourceSeq = stats.StartTime, stats.ChangesPending, stats.CheckpointedSourceSeq
	s.Stats = Stats{
		RevisionsChecked: stats.RevisionsChecked, MissingRevisionsFound: stats.MissingRevisionsFound,
		DocCounts:   DocCounts{DocsRead: stats.DocsRead, DocsWritten: stats.DocsWritten, DocWriteFailures: stats.DocWriteFailures},
		BulkGetDocs: stats.BulkGetDocs, BulkGetAttempts: stats.BulkGetAttempts,
	}
}

// UpdateDocument returns the text of the job's document after the job has come into this state,
// at LastUpdated. It writes these fields:
//
//	job        _replication_state  _reason  _stats   _replication_id
//	completed  completed           removed  set      kept if it is the job's, else removed
//	failed     failed              set      removed  kept if it is the job's, else removed
//	running    triggered           removed  removed  set
//	crashing   error               set      removed  set, null if not known
//	pending    kept                kept     kept     kept
//
// It also writes `_replication_state_time` (RFC 3339, UTC, whole seconds) if the state changes or has no time yet.
// Running and crashing are written only with update_docs = true. Every other byte of the text is
// kept. The error is a *ParseError if text is not a JSON object.
func (s *JobState) UpdateDocument(text []byte) ([]byte, error) {
	state, edits, err := s.documentEdits()
	if err != nil || edits == nil {
		return text, err
	}
	doc, err := splitObject(text)
	if err != nil {
		return nil, err
	}
	f := doc.fields(fieldState, fieldStateTime, fieldID)
	first := []edit{{fieldState, encodeJSON(state)}}
	if _, dated := f.values[fieldStateTime]; !dated || f.textIfAny(fieldState) != string(state) {
		at := wholeSeconds(s.LastUpdated).Format(time.RFC3339)
		first = append(first, edit{fieldStateTime, encodeJSON(at)})
	}
	if state.Terminal() && f.textIfAny(fieldID) != s.ReplicationID {
		edits = append(edits, edit{fieldID, nil}) // another system has written it
	}
	return doc.edited(append(first, edits...)), nil
}

// documentEdits returns the document state for a job in this state, and the other changes to the
// document; nil if there are none.
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

// ClearDocumentState returns the text of a document without the fields that record the outcome of
// its job; every other byte is kept. CouchDB does this to a document that an older version left
// triggered or in error. The error is a *ParseError if text is not a JSON object.
func ClearDocumentState(text []byte) ([]byte, error) {
	doc, err := splitObject(text)
	if err != nil {
		return nil, err
	}
	return doc.edited([]edit{
		{fieldState, nil}, {fieldStateTime, nil}, {fieldReason, nil}, {fieldID, nil}, {fieldStats, nil},
	}), nil
}
