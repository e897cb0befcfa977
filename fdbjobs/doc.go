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
//		return mails.Add(tx, fdbjobs.Spec{ID: id, Owner: owner, Args: args, Token: token})
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
//	(args,    type, id, n)              -> chunk n of the args, as a Sealer seals them if there is one
//	(delayed, type, scheduled, id)      -> owner    pending, not yet due; seconds since the epoch
//	(ready,   type, owner, stamp, id)   -> ""       pending and due, by when it became so
//	(active,  type, stamp, id)          -> seconds  running, by last update; the timeout its holder knows
//	(expiry,  type, expires, id)        -> ""       finished, and to go by itself
//	(status,  type, part, id)           -> ""       all jobs, by status, label and tag, which are a part
//	(owned,   type, owner, part, id)    -> ""       all jobs, by owner and part
//	(listed,  type, id)                 -> JSON     what lists show of a job beside its state
//	(count,   type, part)               -> int64    how many; little-endian, as all that is added to
//	(ownedcount, type, owner, status)   -> int64    how many of an owner's
//	(ownedtagged, type, owner, status, tag) -> int64  how many of those have a tag
//	(owners,  type, owner)              -> (usage, rank, generation)
//	(waiting, type, owner)              -> ""       owners with rows in ready, and some that had
//	(ranks,   type, waits, rank, owner) -> ""       owners by usage over weight; waits is 1 or 0
//	(heads, type, owner)                -> stamp    nothing in the owner's ready queue lies below
//	(charges, type, owner)              -> int64    usage that is not in (owners) yet
//	(weights, type, owner)              -> weight   of those that have another than 1
//	(rollup,  type)                     -> (generation, time, coefficient, running) of the last roll-up
//	(claimers, type, claimer)           -> time     when a process last took jobs
//	(transitions, type, stamp, id)      -> status   appended when a status changes, or a running
//	                                                job is added again; trimmed
//	(trimmed, type)                     -> version  transitions up to it may be gone
//	(timeout, type)                     -> seconds
//	(watch_ready, type)                 -> counter  changed whenever something is queued
//	(watch_transitions, type)           -> counter  changed with every transition
//
// A row is the tuple
//
//	(sequence, status, lock, generation, owner, scheduled, resubmit, token, expires, chunks, label, tag, listed)
//
// where sequence is the stamp of the job's row in ready or active, and null if it
// has neither, chunks is how many the args have, and listed whether there is a key in
// listed. The state has a key of its own
// because a value has at most 100,000 bytes, which a state may take alone.
//
// Invariants, which [Type.put] keeps, the one function that writes them:
//
//   - a pending job has one row in delayed or ready, a running one has one in
//     active, a finished one in none of them, but one in expiry if it expires;
//   - a row in ready, active, expiry, status or owned agrees with the job's own row;
//   - the counts agree with the rows of status and of owned;
//
// and, which the functions of owners.go and rollup.go keep:
//
//   - every owner with rows in ready has a key in waiting;
//   - every owner with running or ready jobs has a row in owners, and each row in
//     owners one in ranks, at its rank, that says whether it has a key in waiting;
//   - an owner without jobs has no key but its weight, as soon as a monitor has seen it.
//
// # The queue
//
// It has two levels. A job whose time has not come waits in delayed, by time. When
// it has come, any process moves it to its owner's ready queue, whose order is that
// of arrival.
//
// The owner that has used the least for its weight is served next, and those that
// have used the same in turn. What counts as usage is the caller's: [Type.Charge] adds
// to it, [AcceptOptions].Charge does with each job taken, [Type.RollUp] lets it decay.
// Where nobody charges, owners are served in turn. A charge is an addition that
// conflicts with nothing, and becomes part of the owner's rank within a second of the
// owner's next claim, or with the roll-up; a claim adds what was charged since to those
// that it looks at.
//
// With [Usage].Running, what an owner runs counts at once, before anything was charged for
// it. A rank then has the running jobs in it that there were when it was written, so that
// it bounds nothing: a claim reads what each owner that it looks at has used, and what it
// runs. Jobs are whole and shares are not, so a part of a job that changes with time is
// added for each owner: over a while, each gets its share.
//
// A holder without room can take jobs in exchange for some that it holds
// ([AcceptOptions].Yielding), in the transaction that takes the new ones: of the owner that
// has used the most goes one, while it has used more than the one that comes. Where it is to
// hold fewer, [Type.Yield] says which go first.
//
// Within an owner's queue a claim looks at a small window at the head without
// conflicting on it, and conflicts only on what it takes. A process alone takes the
// longest waiting first. Where several take jobs, each prefers those in the window whose
// hash is its share (lane.go), so that they do not meet.
//
// The acceptors of a process share one claimer, which takes jobs for all of them
// in one transaction and waits for more with one watch.
//
// Rows leave a queue at its head, and a store passes over removed rows as slowly
// as over others for a while. Readers of ready and active therefore begin where
// their last reading began; nothing can have appeared below that, because stamps
// only grow. Times in delayed come from the clocks of those who wrote them, which
// may differ: its readers go back by a minute, and to the start now and then. Where a
// ready queue begins a claimer notes, for those who have not read it yet.
//
// A claimer keeps the rows that a window had and it did not take, and takes those next,
// while they are there, before it reads another window.
//
// # What costs how much
//
// Nothing here reads all jobs. Listing by status or owner pages through an index,
// counts are read from counters, expired jobs, overdue ones and due ones each from the
// head of their own range. [Type.RollUp] and the monitors visit owners that have jobs.
package fdbjobs
