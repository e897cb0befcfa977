// Package replicator says what a replication is: how its definition is parsed,
// how it is named, which states it goes through, and what a job stores of it.
// It does no I/O and imports nothing of this project, so that the nodes that
// accept replications and the nodes that run them mean the same by one.
//
// # From text to a job
//
// [ParseRequest] reads the body of POST /_replicate, [ParseDocument] a document
// of a replicator database. Both give a [Replication], or a [*ParseError] whose
// text names the field and says what it may be. A Replication holds what was
// asked for, not what a node is configured to do: options that were not given
// stay unset, and the node that runs the job supplies its defaults.
//
// # Documents and their jobs
//
// A [Document] has one job at most. [Document.Effect] says what a write of it does
// to that job, [JobState.UpdateDocument] what the end of the job writes into it.
// The texts of documents belong to their users: what is written into them changes
// no byte but those of the `_replication_` fields and of `owner`.
//
// # Names
//
// A replication has two ids. The job id ([PersistentJobID], [Replication.JobID])
// is known as soon as the definition is. The replication id ([Replication.ID])
// covers everything that can change the result, the source text of a filter
// function included; it names the checkpoints and equals the version 4 id of
// CouchDB 3.x for the same server uuid, byte for byte.
//
// # Stored forms
//
// The job layer keeps two JSON objects for each job: [JobArgs], written by
// whoever adds the job, and [JobState], written by whoever runs it. Times in
// them are in UTC and whole seconds.
//
// # Credentials
//
// Passwords live in [Endpoint] and nowhere else. Endpoint hides them from fmt and from
// encoding/json; what the job layer stores is [JobArgs.Stored]. Error texts go through
// [redact.Text] before they are stored or shown.
package replicator
