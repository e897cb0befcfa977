package replicator

// Stats are the counters of a replication, over all runs with one replication id. Their JSON form
// is the form of the `info` object in CouchDB's listings.
type Stats struct {
	RevisionsChecked      int64 `json:"revisions_checked"`
	MissingRevisionsFound int64 `json:"missing_revisions_found"`
	DocCounts
	BulkGetDocs     int64 `json:"bulk_get_docs"`
	BulkGetAttempts int64 `json:"bulk_get_attempts"`
}

// CheckpointStats are the same counters in the form of a checkpoint's history entry. Each type
// converts to the other.
type CheckpointStats struct {
	RevisionsChecked      int64 `json:"missing_checked"`
	MissingRevisionsFound int64 `json:"missing_found"`
	DocCounts
	BulkGetDocs     int64 `json:"bulk_get_docs"`
	BulkGetAttempts int64 `json:"bulk_get_attempts"`
}

// DocCounts are the counters of documents: read from the source, written to the target, and refused by the target.
type DocCounts struct {
	DocsRead         int64 `json:"docs_read"`
	DocsWritten      int64 `json:"docs_written"`
	DocWriteFailures int64 `json:"doc_write_failures"`
}

// Attempted reports whether a document was written or refused.
func (c DocCounts) Attempted() bool { return c.DocsWritten+c.DocWriteFailures > 0 }

// counters returns all counters, in the same order for all Stats.
func (s *Stats) counters() [7]*int64 {
	return [...]*int64{
		&s.RevisionsChecked, &s.MissingRevisionsFound, &s.DocsRead, &s.DocsWritten, &s.DocWriteFailures,
		&s.BulkGetDocs, &s.BulkGetAttempts,
	}
}

// Add adds the counters of other.
func (s *Stats) Add(other Stats) {
	for i, n := range s.counters() {
		*n += *other.counters()[i]
	}
}

// Max returns the larger counter of each kind.
func (s Stats) Max(other Stats) Stats {
	for i, n := range s.counters() {
		*n = max(*n, *other.counters()[i])
	}
	return s
}

// Subtract subtracts the counters of other.
func (s *Stats) Subtract(other Stats) {
	for i, n := range s.counters() {
		*n -= *other.counters()[i]
	}
}
