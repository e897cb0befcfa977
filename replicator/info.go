package replicator

import "encoding/json"

// Info is the `info` object of a job in listings. It has the progress of a job, or the error of
// one that is crashing or failed. The job of a periodic replication also has the counters of its last run alone. CouchDB does
// not have those.
type Info struct {
	Error string `json:"error,omitempty"`
	*Progress
	LastRun *Stats `json:"last_run,omitempty"`
	// Mirror sums up the databases of a mirror.
	Mirror *MirrorInfo `json:"mirror,omitempty"`
}

// SumUp adds the summary of a mirror's databases. It returns a new Info if i is nil.
func (i *Info) SumUp(progress *MirrorProgress, summary *MirrorSummary) *Info {
	if i == nil {
		i = &Info{}
	}
	i.Mirror = &MirrorInfo{MirrorSummary: summary}
	if progress != nil {
		i.Mirror.MirrorProgress = *progress
	}
	if i.Progress != nil && summary != nil {
		i.DocsRead, i.DocsWritten, i.DocWriteFailures = summary.DocsRead, summary.DocsWritten, summary.DocWriteFailures
	}
	return i
}

// Progress is the progress of a job, in the form of CouchDB's listings and of
// `_replication_stats` in documents. SourceSeq and ThroughSeq are left out if nil; other unknown
// values are null. Sequences are strings, as in CouchDB: the sequence itself if it is one, and
// otherwise its JSON text.
type Progress struct {
	RevisionsChecked      int64           `json:"revisions_checked"`
	MissingRevisionsFound int64           `json:"missing_revisions_found"`
	DocsRead              int64           `json:"docs_read"`
	DocsWritten           int64           `json:"docs_written"`
	ChangesPending        *int64          `json:"changes_pending"`
	DocWriteFailures      int64           `json:"doc_write_failures"`
	BulkGetDocs           int64           `json:"bulk_get_docs"`
	BulkGetAttempts       int64           `json:"bulk_get_attempts"`
	CheckpointedSourceSeq json.RawMessage `json:"checkpointed_source_seq"`
	SourceSeq             json.RawMessage `json:"source_seq,omitempty"`
	ThroughSeq            json.RawMessage `json:"through_seq,omitempty"`
}

// Info returns what listings show of the job, or nil (null in JSON) if it never ran and has no
// error. As in CouchDB, it is empty ({}) for a document that completed elsewhere and has no statistics.
func (s *JobState) Info() *Info {
	switch completed := s.State == StateCompleted; {
	case s.Error != "" && (s.State == StateCrashing || s.State == StateFailed):
		return &Info{Error: cleanReason(s.Error)}
	case s.StartTime.IsZero() && !completed:
		return nil
	case s.StartTime.IsZero() && s.Stats == Stats{}:
		return &Info{}
	}
	progress := s.Progress()
	if s.State.Terminal() {
		progress.SourceSeq, progress.ThroughSeq = nil, nil
	}
	return &Info{Progress: &progress, LastRun: s.LastRun}
}

// Progress returns the progress. As in CouchDB, a run that does not yet know where it starts has the source's
// sequence and the checkpointed one "0", and no sequence of changes that were processed.
func (s *JobState) Progress() Progress {
	return Progress{
		RevisionsChecked:      s.Stats.RevisionsChecked,
		MissingRevisionsFound: s.Stats.MissingRevisionsFound,
		DocsRead:              s.Stats.DocsRead,
		DocsWritten:           s.Stats.DocsWritten,
		ChangesPending:        s.ChangesPending,
		DocWriteFailures:      s.Stats.DocWriteFailures,
		BulkGetDocs:           s.Stats.BulkGetDocs,
		BulkGetAttempts:       s.Stats.BulkGetAttempts,
		CheckpointedSourceSeq: shownSeq(s.CheckpointedSourceSeq, lowestSeq),
		SourceSeq:             shownSeq(s.SourceSeq, lowestSeq),
		ThroughSeq:            shownSeq(s.ThroughSeq, nil),
	}
}

// lowestSeq is the sequence before all changes.
var lowestSeq = json.RawMessage(`"0"`)

// shownSeq returns a sequence as a string, and missing if it is nil. null stays null.
func shownSeq(seq, missing json.RawMessage) json.RawMessage {
	switch {
	case len(seq) == 0:
		return missing
	case seq[0] == '"', string(seq) == "null":
		return seq
	}
	return encodeJSON(string(seq))
}
