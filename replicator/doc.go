// Package replicator defines replications: how a definition is parsed, which ids it has, which
// states its job goes through, and what a job stores of it. It does no I/O and imports nothing of
// this project except packages without I/O, so the nodes that accept replications and the nodes
// that run them share one definition.
//
// # From text to a job
//
// [ParseRequest] parses the body of POST /_replicate, [ParseBody] a document of a replicator
// database. Both return a [Replication], or a [*ParseError] whose text names the field and says
// what it may be. A Replication holds only what was asked for: options that were not given stay
// unset, and the node that runs the job supplies its defaults.
//
// # Documents and their jobs
//
// A [Document] has at most one job. [Document.Effect] says what a write of the document does to
// that job. [JobState.UpdateDocument] writes the outcome of the job into the document. The other
// contents of a document belong to its user: only the `_replication_` fields and `owner` are ever
// written.
//
// # Periodic replications
//
// A document with Schedule or Every is a one-shot replication that runs again and again
// ([Replication.Periodic]). Its job never completes. When a run has come to its end, the job is
// pending again, queued for the next time ([Replication.NextRun]):
//
//	pending, until its time -> running -> pending, until the next time
//	                              |
//	                              +-----> crashing, until a retry or the next time -> running
//
// The next time is kept in the job layer alone, as the time for which the job is queued, so it
// outlives all nodes. A time that comes while no node runs leaves one job that is due, however many
// times follow it. The document gets no state when a run ends, like the document of a continuous
// replication: completed would mean that nothing follows. With update_docs = true it says triggered
// or error.
//
// The times are in the definition, so a document that changes them starts its job anew, but not in
// the ids: it shares its checkpoints with the same replication without times. A run that has begun,
// crashed or come due before the change takes place at once after it.
//
// # Ids
//
// A replication has two ids. The job id ([PersistentJobID], [Replication.JobID]) is known as soon
// as the definition is. The replication id ([Replication.ID]) covers everything that can change
// the result, including the source text of a filter function. It names the checkpoints and equals
// the version 4 id of CouchDB 3.x for the same server uuid.
//
// # Stored forms
//
// The job layer keeps two JSON objects for each job: [JobArgs], written when the job is added,
// and [JobState], written while it runs. Times in them are in UTC and whole seconds.
//
// # Credentials
//
// Only [Endpoint] holds passwords. It hides them from fmt and encoding/json; [JobArgs.Stored]
// returns the form with credentials, for the job layer. Error texts go through [redact.Text]
// before they are stored or shown.
package replicator
