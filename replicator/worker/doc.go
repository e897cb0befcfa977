// Package worker runs a replication job once: it reads the changes feed of the source, finds out which
// revisions the target does not have, copies them, and records in checkpoints how far it came.
//
// [Run] is all of it. Who decides that a job is to run, holds its lock and stores its state is the
// caller, to whom a run answers through a [Reporter]; the package knows nothing of jobs, stores and
// configuration files.
//
// # The way of a change
//
//	feed     one goroutine reads rows of _changes
//	batches  rows are gathered: full ones while catching up, whatever there is on a live feed
//	workers  WorkerProcesses goroutines take a batch each: _revs_diff, then _bulk_get into _bulk_docs;
//	         what has attachments, what the source's _bulk_get does not answer, and design documents go
//	         one revision at a time, several at once
//	passage  batches end in any order; the sequence they are recorded up to is that of the feed's order
//
// Queues between them are bounded by the size of a batch. In memory are, for each worker, the rows of its
// batch, and for each of its requests that read or write documents up to a megabyte of them (or one larger
// document); attachments are streamed. Documents pass as the bytes that came.
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
// by an earlier checkpoint that is gone. One that was written at that very moment is taken back.
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
