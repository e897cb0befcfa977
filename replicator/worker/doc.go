// Package worker runs a replication job once, and verifies its outcome. It reads the changes feed of the source, asks
// the target which revisions it is missing, copies those, and records its progress in checkpoints.
//
// [Run] is the entry point. The caller decides that a job runs, holds its lock and stores its state. A run reports to
// the caller through a [Reporter]. The package knows nothing of job queues, stores and configuration files.
//
// # The way of a change
//
//	feed     one goroutine reads the rows of _changes into batches: full batches while catching up, and the
//	         rows that are there on a live feed, or that arrive within 0.1 s while other batches are copied
//	diff     _revs_diff returns the revisions of a batch that the target does not have; it is left out for most
//	         batches while the target lacks nearly everything
//	read     _bulk_get reads them, a batch of 200 revisions or more with up to four requests side by side, and
//	         documents without attachments are gathered into portions; those with small attachments are read
//	         again, with the attachments in base64, and gathered, too
//	write    _bulk_docs writes a portion; of small ones, up to four times as many are written at a time
//	single   revisions with other attachments, revisions that the source's _bulk_get does not return, and
//	         design documents are copied one revision at a time; all batches together use all
//	         HTTPConnections except two
//	again    revisions of the batch that failed, or whose write got an answer that may pass, are read afresh, and each is
//	         written alone
//	passage  batches end in any order; a checkpoint has the sequence up to which all of them have ended
//
// Each of the four steps works on up to WorkerProcesses batches or portions at a time: while one is written, the next
// is read. A slow step holds up the steps before it. Documents are passed on unchanged. Attachments are streamed, except
// small ones that the source has not compressed. A large attachment delays only the end of its own batch. Goroutines and
// memory for batches exist only while there are batches: a continuous replication that waits for changes has three
// goroutines and uses less than 64 KiB besides its connection. Reports and other periodic work have timers, which fire
// together for all runs of a process.
//
// # Memory
//
// The configuration bounds the memory of a run, however large the documents are:
//
//	(4 × worker_processes + 1) × 1 MiB  rows, and what the target has of them, or 4 times the largest row (16 MiB)
//	worker_processes × 6 MiB            documents that are read, and the portions that are gathered and written
//	http_connections × 2 MiB            documents that are being read, and buffers of requests
//	2 × 3 × the largest document        documents of more than a megabyte, of which a run holds two at a time;
//	                                    Config.MaxDocument bounds them
//
// Go's garbage collector may double that. A job with few and small documents uses a small part of it.
//
// # Questions that are left out
//
// For each revision that the target turned out to lack, four are copied without asking, at most 10,000 between two
// questions. As soon as the target has more than a tenth of what it is asked about, it is asked about everything, until
// it has lacked 10,000 revisions in a row. In a live feed the number is 64, because there it may change at any time what
// the target gets from elsewhere. Revisions that are read one by one or have attachments are always asked about, if not
// with their batch then before they are copied: attachments are large, and the answer names ancestors whose attachments
// the target has. A revision that the target was not asked about counts as missing there, as in CouchDB. It is written
// like any other, so checkpoints promise the same.
//
// The source leaves out attachments that are as old as an ancestor that the target has. That their bytes are the same only
// their digests show, so the target is asked for those of the ancestor. If they differ, if one side does not say them, or if
// the document has more than a megabyte, the revision is read again with all attachments.
//
// # The size of requests to the target
//
// A request to the target has at most a megabyte, or one document if that is larger. If the target refuses a request as
// too large (413), or closes the connection on one of more than 64 KiB, the request is split into halves, or into
// requests of a size that the target has accepted. Later requests keep to that size. The size grows by an eighth after
// eight successes. Each time that fails, the number of successes needed doubles, up to 128. A single document that is
// too large counts as refused.
//
// # Refusals
//
// A target may refuse a document for ever, and a run then goes on without it. judge tells a refusal from answers that may pass.
// A document whose write is in doubt waits until the rest of its batch is written. Then it is read again, with all of its
// attachments, and written in a request of its own, with attachments of up to 4 MiB in base64. That is done at most twice,
// until two answers in a row are the same. Before the run believes a 401 or 403 it asks GET /_session, once for each
// answer, whether the target still knows the login: CouchDB carries out what comes with a lapsed cookie without a user, and a
// validation function that asks for one refuses it. Then the next request logs in again, and the document is in doubt.
//
// # What a checkpoint promises
//
// A checkpoint is a document `_local/<base id>` on both sides, in CouchDB's format, so that CouchDB's replicator and this one
// can continue from each other's checkpoints. A checkpoint with a sequence is written only after every revision that the feed
// announced up to it was either committed on the target, or refused by it, or could not be copied for a reason of its own.
// Stats counts the latter two, and Config.ListRefused was called with them before. No checkpoint is written if one of the
// databases was deleted and created again meanwhile, which shows in its instance_start_time or in a missing checkpoint. A
// database that does not say when it was created gets an empty one at the start of the first run. A checkpoint that was written
// at that very moment is retracted, by its run or by a later one.
//
// # Failures of one document
//
// A document that cannot be read, asked about or written, and a row of the feed that is not understood, do not hold up the
// others. A revision that fails although its requests were repeated is set aside, as is a document whose write is in doubt. After
// the rest of its batch it is read afresh, and written alone. If it fails again, it is listed like a refused one, provided that it is at fault:
//
//   - the database answers, and does not say that it is missing, busy, full or closed to the user,
//   - a source gives another document, and
//   - a target has accepted another document since the batch began, in a request of its own.
//
// If the server may have refused a URL for its length, it is enough that the database answers: an id may have any length in
// CouchDB, and a request line 8 KiB. Documents with longer ids are copied in bulk, unless they are design documents or have large
// attachments.
//
// Otherwise, and after a hundred failures in a row, the run fails. So a document that the target fails to write may end runs
// while it is alone in its batch. A revision that the source announces and does not have is waited for twice, the second time
// for half a minute. A document whose multipart form is malformed is read again as JSON, with each attachment in a request of
// its own: CouchDB writes the names of attachments into the headers of parts as they are.
//
// # Malformed answers and endless feeds
//
// A malformed answer that concerns more than a document ends the run with an error that names the request and the endpoint. So
// does a feed in which more than a hundred rows in a row are not understood. A feed that sends more changes
// than the source has documents is given up. Without a filter, so is a feed that sends only heartbeats for ten
// connection timeouts. With a filter, a feed that should end may send only heartbeats for five minutes, and after that
// for as long as a filter could need for the changes that the source says are left, at most a day. An attachment whose
// bytes do not match its digest is not stored: the run compares them, or a target that is known to
// ([couch.Database.ChecksDigest]). If that target fails to write the document, the run reads it again and compares them itself,
// so that its error names the attachment. Without a working _bulk_get, documents are read one by one.
//
// # Reports
//
// A run reports its first change within a second, further ones every two seconds, and every ReportInterval if nothing
// changes. The runs of a process report at the same moments, so that a store can write the reports together. A run that
// ends before makes no report: its Result has all. Statistics add up over the runs of a replication id, as in CouchDB.
// They continue from the checkpoint or from the job, whichever counted more, and a checkpoint's history has sums.
//
// # Why a run does not move
//
// Each report says what the run is doing ([replicator.Activity]): which request to which endpoint is repeated, with
// which error and when; whether the endpoint asked for the wait; that no change passes the filter; that the target
// accepts nothing.
//
// # Traces
//
// With Config.Tracer a run makes spans. A trace is only complete when its first span ends, and a continuous run lasts for
// months, so the run's span holds only what comes before the first change. All that is repeated has traces of its own,
// whose first span is linked to the run's span and has the same attributes for the job and the replication id:
//
//	replication run           from the beginning to the end of the run
//	  replication start       the databases are opened and the checkpoints read
//	replication feed          a changes feed is opened; it ends when the answer begins
//	replication batch         from the batch's first row until all of it is written
//	  read changes            its rows arrive, and it waits for its turn
//	  compare revisions       _revs_diff
//	  read documents          _bulk_get
//	  read small attachments  _bulk_get with attachments
//	  copy single revisions   reads and writes of one revision at a time
//	  write documents         _bulk_docs
//	replication checkpoint    both databases are flushed, and the checkpoint written
//	replication park          a run that is asked to park looks for changes
//
// Below them are the spans of requests, which package couch makes. A sampler decides for each trace alone. A request that
// counts pending changes has no span. Spans have no ids of documents except in the paths of requests, and no contents.
//
// # Parking
//
// A continuous run that has nothing left to copy costs a slot, a connection and three goroutines. Its caller may ask it to end
// ([Parker]) and start it again when the source has changed. So that no change is missed, the run does this in order:
//
//  1. It closes its live feed. So no row arrives until the run ends, or goes on from the last row that it has read.
//  2. With a filter, it reads on to the end of the feed. That moves the position past what the filter leaves out, which a
//     live feed does not do. A change that passes keeps the run from parking.
//  3. It writes a checkpoint for everything that was read, unless there is one, and reads the source's update_seq.
//  4. It calls Job.Parking, where the caller notes what to watch.
//  5. It asks the source for one change after the checkpoint, whatever the filter. If there is none, the run ends.
//
// A change before the answer of step 5 is in it, and after step 4 the caller learns of changes. After any failure the run
// goes on, and opens its feed again. A change that only the filter leaves out makes a run go on once: step 2 of the next time
// passes over it. A run without checkpoints cannot park.
//
// # What a woken run leaves out
//
// A job that was parked and has one new document costs ten requests until it is parked again, if both servers say when a
// database was created, as CouchDB 3.3 and later and settee do:
//
//	source   GET _local, _changes, _bulk_get, GET of the database, PUT _local, _changes with limit=1
//	target   GET _local, _bulk_docs, _ensure_full_commit, PUT _local
//
// Both checkpoints are read, because a database that was deleted and created again has none. They take the place of what
// the databases say of themselves at a start: the target's names both. The run reads a live feed at once. Whether it asks
// _revs_diff, which is one more request, it decides by what the job's earlier runs have learned: while the target lacks
// everything, it asks about one revision in five, and after many about one in 65. At its first checkpoint the source is not asked to
// commit: servers that say when a database was created commit every write. The answer to GET of the source tells both
// whether it is still the same and its update_seq. The checkpoint is not confirmed after it is written. Should it have been
// written to a database at the moment that this was created anew, then the next run notices, at the latest before it parks.
//
// # Mirrored databases
//
// A replication that a mirror has made ([replicator.Mirrored]) creates its target with the parameters of the source: q, n
// unless the source has a single copy, and partitioned. CreateTargetParams wins. n and partitioned are left out if the target
// refuses them. A source that is not a CouchDB has no parameters.
//
// What it may do to a target that is there follows from the marks of both databases, which it reads when it opens them, with
// what the servers say they are: see mirrored.go.
//
// If asked to, it also copies the `_security` object of the source to the target when the two differ:
//
//	at the start of a run      before a document is copied: GET of both, and a PUT if they differ
//	before the run parks       after Job.Parking: GET of the source's, and nothing else if its digest is the known one
//	every SecurityInterval     the same, for a run that goes on
//
// A run that goes on from where its job was parked looks only before it parks again, so its wake costs eleven requests. A
// parked job is woken when the object changes: a CouchDB gives the database another update_seq then, although no feed has a
// row for it. Because the run reads update_seq before it announces that it parks, and the object after that, each change is
// either copied by this run or seen by the comparison of update_seq. Package watch does that.
//
// Only a change at the source is followed while a job is parked. What somebody changes at the target is overwritten by the next
// run that compares both. A server that refuses the object ends the run, with an error that names the user.
//
// # How a run ends
//
//	one-shot, at the feed's end     nil
//	asked to park                   nil, with Result.Parked, if nothing has changed since the last checkpoint
//	Job.Stop ends                   ErrStopped, after what was read is written, and a last checkpoint
//	the context ends                context.Cause of it, at once and without a checkpoint
//	the Reporter returns an error   that error, likewise
//	the filter's code has changed   ErrIDChanged, at the next checkpoint, or when it would have been due
//	anything else                   *Error
//
// Every goroutine of a run has ended when Run returns.
//
// # Verification
//
// [Verify] proves that a copy is complete, without checkpoints and without writing anything. It reads the feed of the
// source from the beginning, as a run does, with the same selection, guards and retries, and asks _revs_diff of the
// target for every leaf. What it promises if it finds no difference:
//
//   - The target has every leaf that the feed announced, as a leaf or as an ancestor of a newer revision, except those
//     that the source has replaced or removed meanwhile. Verified.Changed counts them. What was written after the feed
//     was opened need not be compared.
//   - With Attachments, both databases sent the same bytes for each attachment of a revision that is a leaf of both, and
//     described it with the same name and content type. Contents are compared uncompressed: their digests in the
//     documents differ if one side stores them compressed. A leaf that the target has replaced has no attachments there
//     to compare.
//   - With Both, the source likewise has every leaf of the target.
//
// A revision id stands for the body of a document: bodies are not compared. Replications between CouchDBs rely on that,
// too.
//
// Writers and replications may go on meanwhile. A leaf that is missing is asked about again after Verification.Wait: the
// target first, and then the source, with _all_docs for the winners and _bulk_get for other leaves. It is a difference
// if it is then still missing and still a leaf, with WinningRevsOnly the winner. Whether it is the winner, and deleted,
// is what the source says then, since the order of a filtered feed does not tell. A replication that takes longer than
// Wait for a change shows as a difference. Whether a leaf passes a filter depends only on the leaf; if the filter
// function changes, Verify fails.
//
// Documents without an id, those of rows that are not understood, and those whose id the target rejects, are missing there. An attachment that cannot be read
// although its database answers is a difference. Any other failure ends Verify.
//
// Differences are passed on at once. Verify needs the memory of a run's rows and requests, and besides
//
//	32 MiB                              batches with leaves that wait to be asked about again
//	worker_processes × 2 MiB            descriptions of attachments, or all descriptions of the largest document
//
// If more leaves wait, the feed waits for them: a database of which everything is missing takes Wait for each 32 MiB of
// ids and revisions, about 250,000 short ones.
package worker
