// Package fdbjobs runs background jobs on an ordered transactional store: a
// durable queue from which the processes of a cluster take jobs, one holder at a
// time, and in which nothing is lost when one of them dies.
//
// # Jobs
//
// A job has a type, an id that is unique within it, and an owner, in whose queue
// it waits. Its args are a JSON object that whoever adds the job writes; its
// state is one that whoever processes it writes. The layer looks into neither. A
// job is [Pending] (queued), [Running] (held under a lock) or [Finished].
//
// Creation works inside the caller's own transaction, so that a job can be added
// with whatever it belongs to:
//
//	err := db.Transact(ctx, func(tx kv.Transaction) error {
//		return replications.Add(tx, fdbjobs.Spec{ID: id, Owner: owner, Args: args, Token: token})
//	})
//
// Processing is [Type.Accept], which waits for a job and returns it [Held], then
// [Held.Update] as often as there is something to say, and at least every third of
// the type's timeout, and [Held.Finish] or [Held.Resubmit]. Each of them can
// carry writes of the caller's, which are made only while the lock is held.
//
// # What can go wrong
//
// A processor that dies stops updating its job. The activity monitor
// ([Type.RunMonitor], any number of them) queues a job again that was not updated
// for the type's timeout. A processor that is only slow, or cut off from the
// store, must not go on then: the context of a Held ends, by the processor's own
// monotonic clock, three quarters of the timeout after its last successful update
// began. An update of a job whose lock is gone is [ErrHalt].
//
// A commit whose result is unknown is repeated by the store, and each call here
// recognises its own earlier commit: accept by the locks, which are drawn before,
// finish and resubmit by the lock that they leave in the row, add by its token.
//
// # Keys
//
// All below the layer's prefix, as tuples. A versionstamp is the place of a
// commit among all commits, so a row that has one lies behind all earlier rows.
//
//	(data,    type, id)                 -> row: see below
//	(state,   type, id)                 -> state, a JSON object
//	(args,    type, id, n)              -> chunk n of the args
//	(delayed, type, scheduled, id)      -> owner    pending, not yet due; seconds since the epoch
//	(ready,   type, owner, stamp, id)   -> ""       pending and due, by when it became so
//	(owners,  type, owner)              -> ""       owners with rows in ready, and some that had
//	(active,  type, stamp, id)          -> ""       running, by last update
//	(status,  type, status, id)         -> ""       all jobs, by status
//	(count,   type, status)             -> int64    how many; little-endian
//	(transitions, type, stamp, id)      -> status   appended when a status changes, or a running
//	                                                job is added again; trimmed
//	(trimmed, type)                     -> version  transitions up to it may be gone
//	(timeout, type)                     -> seconds
//	(watch_ready, type)                 -> counter  changed whenever something is queued
//	(watch_transitions, type)           -> counter  changed with every transition
//
// A row is the tuple
//
//	(sequence, status, lock, generation, owner, scheduled, resubmit, token)
//
// where sequence is the stamp of the job's row in ready or active, and null if it
// has neither. The state has a key of its own because a value has at most 100,000
// bytes, which a state may take alone.
//
// Invariants, which [Type.put] keeps, the one function that writes them:
//
//   - a pending job has one row in delayed or ready, a running one has one in
//     active, a finished one in none of them;
//   - a row in ready, active or status agrees with the job's own row;
//   - the counts agree with the rows of status;
//   - every owner with rows in ready has one in owners.
//
// # The queue
//
// It has two levels. A job whose time has not come waits in delayed, by time. When
// it has come, any process moves it to its owner's ready queue, whose order is that
// of arrival. Owners are served in turn. Within an owner's queue a claim looks at
// a small window at the head without conflicting on it, picks at random, and
// conflicts only on what it picked: many processes can take from one queue at a
// time.
//
// The acceptors of a process share one claimer, which takes jobs for all of them
// in one transaction and waits for more with one watch.
//
// Rows leave a queue at its head, and a store passes over removed rows as slowly
// as over others for a while. Readers of ready and active therefore begin where
// their last reading began; nothing can have appeared below that, because stamps
// only grow. Times in delayed come from the clocks of those who wrote them, which
// may differ: its readers go back by a minute, and to the start now and then.
package fdbjobs
