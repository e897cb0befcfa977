package replicator

// Stats are the counters of a replication, over all runs with one replication id. Their JSON form
// is the form of the `info` object in CouchDB's listings.
type Stats struct {
	RevisionsChecked      int64 `json:"revisions_checked"`
	MissingRevisionsFound int64 `json:"missing_revisions_found"`
	DocsRead              int64 `json:"docs_read"`
	DocsWritten           int64 `json:"docs_written"`
	DocWriteFailures      int64 `json:"doc_write_failures"`
	BulkGetDocs           int64 `json:"bulk_get_docs"`
	BulkGetAttempts       int64 `json:"bulk_get_attempts"`
}

// CheckpointStats are the same counters in the form of a checkpoint's history entry. Each type
// converts to the other.
type CheckpointStats struct {
	RevisionsChecked      int64 `json:"missing_checked"`
	MissingRevisionsFound int64 `json:"missing_found"`
	DocsRead              int64 `json:"docs_read"`
	DocsWritten           int64 `json:"docs_written"`
	DocWriteFailures      int64 `json:"doc_write_failures"`
	BulkGetDocs           int64 `json:"bulk_get_docs"`
	BulkGetAttempts       int64 `json:"bulk_get_attempts"`
}

// DocCounts are the counters of documents: read from the source, written to the target, and refused by the target.
type DocCounts struct {
	DocsRead         int64 `json:"docs_read"`
	DocsWritten      int64 `json:"docs_written"`
	DocWriteFailures int64 `json:"doc_write_failures"`
}

// Docs returns the counters of documents.
func (s Stats) Docs() DocCounts {
	return DocCounts{DocsRead: s.DocsRead, DocsWritten: s.DocsWritten, DocWriteFailures: s.DocWriteFailures}
}

// Attempted reports whether a document was written or refused.
func (c DocCounts) Attempted() bool { return c.DocsWritten+c.DocWriteFailures > 0 }

// Add adds the counters of other.
func (s *Stats) Add(other Stats) {
	s.RevisionsChecked += other.RevisionsChecked
	s.MissingRevisionsFound += other.MissingRevisionsFound
	s.DocsRead += other.DocsRead
	s.DocsWritten += other.DocsWritten
	s.DocWriteFailures += other.DocWriteFailures
	s.BulkGetDocs += other.BulkGetDocs
	s.BulkGetAttempts += other.BulkGetAttempts
}

// Max returns the larger counter of each kind.
func (s Stats) Max(other Stats) Stats {
	return Stats{
		RevisionsChecked:      max(s.RevisionsChecked, other.RevisionsChecked),
		MissingRevisionsFound: max(s.MissingRevisionsFound, other.MissingRevisionsFound),
		DocsRead:              max(s.DocsRead, other.DocsRead),
		DocsWritten:           max(s.DocsWritten, other.DocsWritten),
		DocWriteFailures:      max(s.DocWriteFailures, other.DocWriteFailures),
		BulkGetDocs:           max(s.BulkGetDocs, other.BulkGetDocs),
		BulkGetAttempts:       max(s.BulkGetAttempts, other.BulkGetAttempts),
	}
}

// Subtract subtracts the counters of other.
func (s *Stats) Subtract(other Stats) {
	s.RevisionsChecked -= other.RevisionsChecked
	s.MissingRevisionsFound -= other.MissingRevisionsFound
	s.DocsRead -= other.DocsRead
	s.DocsWritten -= other.DocsWritten
	s.DocWriteFailures -= other.DocWriteFailures
	s.BulkGetDocs -= other.BulkGetDocs
	s.BulkGetAttempts -= other.BulkGetAttempts
}
