// Package worker runs a replication job once: it reads the changes feed of the source, finds out which
// revisions the target does not have, copies them, and records in checkpoints how far it came.
//
// [Run] is all of it. Who decides that a job is to run, holds its lock and stores its state is the
// caller, to whom a run answers through a [Reporter]; the package knows nothing of jobs, stores and
// configuration files.
//
// # The way of a change
//
//	feed     one goroutine reads rows of _changes, and gathers them into batches: full ones while catching
//	         up, whatever there is on a live feed
//	diff     _revs_diff says what the target lacks of a batch
//	read     _bulk_get reads that, and documents without attachments are gathered into portions
//	write    _bulk_docs writes a portion
//	single   what has attachments, what the source's _bulk_get does not answer, and design documents go one
//	         revision at a time, several at once
//	passage  batches end in any order; the sequence they are recorded up to is that of the feed's order
//
// In each of the four steps WorkerProcesses batches, or portions of them, are at a time: while one is
// written the next is read, so that neither database waits for the round trips of the other. A step that
// does not get on holds up those before it. Attachments are streamed. Documents pass as the bytes that came.
// A large attachment holds up nothing but the batch that it is in, and of that nothing but its end: other
// documents are written meanwhile, and other batches go on. Goroutines and memory for batches are there only
// while there are batches: a continuous replication that waits for changes has three goroutines, and takes
// less than 64 KiB beside its connection.
//
// # Memory
//
// What a run holds is bounded by its configuration, whatever the documents are:
//
//	(4 × worker_processes + 1) × 1 MiB  rows, and what the target has of them, or 4 times the largest row (16 MiB)
//	worker_processes × 6 MiB            documents that are read, and the portions that are gathered and written
//	http_connections × 2 MiB            documents that are read one by one, and buffers of requests
//	2 × 3 × the largest document        documents of more than a megabyte, of which a run holds two at a time;
//	                                    Config.MaxDocument bounds them
//
// Go's collector may let as much garbage lie there again. A job with few and small documents has a small part
// of it.
//
// # What a target takes
//
// Requests to the target have at most a megabyte, unless they have one larger document. When the target says
// that one is too large (413), or hangs up on one of more than 64 KiB, it comes in halves, or as large as one
// that was taken, and those after it are as small. They grow by an eighth after eight that went well, and after
// twice as many each time that was in vain, up to 128. One document that is too large in itself counts as
// refused.
//
// # What a checkpoint promises
//
// A checkpoint is a document `_local/<base id>` on both sides, in CouchDB's format, so that either
// replicator goes on where the other one ended. A checkpoint with a sequence is written when every
// revision that the feed announced up to there is on the target and was committed, or was refused by the
// target, which Stats counts and [Config.ListRefused] was told of before. The run fails rather than pass
// over a revision that it cannot read, or one that the target fails to write; but not for one that the feed
// does not announce any more when it is asked again. Nor is one written when one of the databases was
// deleted and made anew meanwhile, as far as the server lets that be seen: by its instance_start_time, or
// by an earlier checkpoint that is gone. One that was written at that very moment is taken back, if not by its run
// then by the next one.
//
// # Peers that lie
//
// An answer that makes no sense ends the run with an error which names the request and whose it was. What the
// package couch does not see is whether a feed ends: one that sends more changes than the source has
// documents, or nothing but heartbeats for ten connection timeouts where no filter leaves anything out, is
// given up. With a filter, a feed that is to end may have nothing but heartbeats for five minutes, and for as long
// again as a filter could take for the changes that the source says are left, a day at most. An attachment whose
// bytes do not match its digest does not reach the target. Without a working _bulk_get documents are read one by one.
//
// # Why a run does not move
//
// Each report says what the run is doing, see [replicator.Activity]: which request of which endpoint is
// repeated, with which error and when, whether the endpoint asked for that, that no change passes the
// filter, that the target takes nothing.
//
// # How a run ends
//
//	one-shot, at the feed's end     nil
//	Job.Stop is closed              ErrStopped, after a last checkpoint
//	the context ends                context.Cause of it, at once and without a checkpoint
//	the Reporter returns an error   that error, likewise
//	the filter's code has changed   ErrIDChanged, at the next checkpoint, or when it would have been due
//	anything else                   *Error
//
// Every goroutine of a run has ended when Run returns.
package worker
