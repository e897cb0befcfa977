// Package fdbjobs runs background jobs on an ordered transactional store. It is a durable queue from which the
// processes of a cluster take jobs. A job has one holder at a time, and no job is lost when its holder dies.
//
// # Jobs
//
// A job is in a [Queue]: what RFC 016 calls a job type. It has an id that is unique within the queue, and an owner, with
// whose other jobs it waits. Its args are a JSON object, written when the job is added. Its state is a JSON object that
// its processor writes. The layer interprets neither. A job is [Pending] (queued), [Running] (held under a lock) or
// [Finished].
//
// Jobs are added in the caller's own transaction, together with other writes:
//
//	err := db.Transact(ctx, func(tx kv.Transaction) error {
//		return mails.Add(tx, fdbjobs.Spec{ID: id, Owner: owner, Args: args, Token: token})
//	})
//
// [Queue.Work] calls a function with each job, and does the following by itself. [Queue.Accept] waits for a job and
// returns it [Held]. The processor calls [Held.Update] at least every third of the timeout ([Options]), and then
// [Held.Finish] or [Held.Resubmit]. Each of them can carry writes of the caller, which are made only while the lock is
// held.
//
// # Words
//
//   - owner: whose queue within the queue a job waits in. label, tag: by which jobs are listed and counted ([Part])
//   - delayed: the job is scheduled for later. ready: it is due, and in its owner's queue
//   - lock: recognises a hold of a job. heartbeat: of a holder, an update that renews the hold; of a claimer, the key by which
//     other claimers know that it takes jobs
//   - generation: how often a job was added while it ran. token: recognises an addition that is repeated
//   - acceptor: a call that waits for jobs. claimer: takes jobs for the acceptors of a process. claim: its transaction
//   - window: the first ready jobs of an owner, as a claim reads them. partition: the ready jobs that a claimer prefers
//   - served, evicted: the job that is taken, and the running job that goes for it when there is no room
//   - usage, charge, weight, roll-up, rank: see "The queue"
//   - entry, tally, facts: see [Derivation]
//
// # Failures
//
// A processor that dies stops updating its job. The activity monitor ([Queue.RunMonitor], any number of them) queues a
// job again if it was not updated for the timeout. A processor that is only slow, or cut off from the store,
// must stop before that: the context of a Held ends three quarters of the timeout after the last update that renewed its
// hold began, by the processor's own clock. An update of a job whose lock is gone returns [ErrHalt]. In a process that
// was stopped for a while, or on a machine that was suspended, the timer that ends the context is late: [Held.Check]
// looks at the clock.
//
// A process with a store that no other process can open need not wait: [Queue.RequeueAll] queues at once what the
// process before it held.
//
// The store repeats a commit whose result is unknown, and each call here recognises its own earlier commit: accept by
// the locks, which are drawn before the transaction, finish and resubmit by the lock that they leave in the row, add by
// its token. The token goes when the job is removed: if the job of an earlier commit has been removed before add runs
// again, add makes it a second time. To exclude that, let ended jobs stay for longer than an add may take
// ([Held].Expires, and a deadline for the add).
//
// A store's versions must not go back, as they do when a backup is copied into a younger cluster. New rows would come
// before old ones, and before the places where processes have begun to read, where they do not look for jobs. Close all
// layers before a store is replaced, and raise its versions (advanceversion in fdbcli) before one is opened again.
//
// # Clocks
//
// The clocks of processes may differ. A job's timeout is measured by its holder and by the activity monitor, each by
// its own clock, and so is the interval of [Queue.RollUp]. If a holder's monotonic clock and its clock of the time of
// day disagree, the one that has advanced further counts: the first stands still while a machine is suspended.
//
// The times for which jobs are scheduled, and at which they expire, are written by one process and compared by another. So a job may be taken, or be
// removed after its end, earlier or later than scheduled by as much as two clocks differ. If that is more than a
// minute, it may take another minute until a claimer sees the job. Claimers whose clocks differ by more than ten
// seconds do not share out the jobs (partition.go), and conflict more often.
//
// # Shared transactions
//
// Updates, finishes and resubmissions that a process makes at the same time share transactions (shared.go). None
// depends on the others: what fails, is lost or is too large concerns its own job alone. The functions of callers in
// one transaction see each other's writes.
//
// # What follows from a job
//
// A caller that wants to list, search or count jobs in its own ways gives the queue a [Derivation] ([Options].Derive): a pure
// function of a job's row that returns entries. An entry is a row of an index with a name: a key, which is a tuple, and a
// small value. It can add to tallies, which are sums over all entries of an index whose keys begin alike. The layer writes
// entries and tallies in the transaction that writes the row, and removes them with the job. So none can be forgotten, and
// [Layer.Check] compares them with the same function, and repairs them.
//
// The layer's own lists are such entries, too. A queue whose jobs are only worked on, as those of package upkeep are, can do
// without them ([Derivation].Unlisted): a job then writes 12 keys in its life instead of 16, besides its args and state.
//
// The function sees the row alone, never the state or Listed, which may be large. What it needs of these is in the row as
// facts: two other functions compute them when the state or Listed is written. Nothing changes by time alone: a process that
// writes a job decides what depends on the time, and writes the decision into the state.
//
//	derivation := fdbjobs.Derivation{
//		OfState: func(_ int64, state json.RawMessage) []byte { return kindOf(state) },
//		Entries: func(_ int64, f fdbjobs.Facts) []fdbjobs.Entry {
//			return []fdbjobs.Entry{{
//				Index: "kinds", Key: tuple.Tuple{string(f.State), f.Scheduled},
//				Adds:  []fdbjobs.Add{{Prefix: 1, Name: "jobs", N: 1}},
//			}}
//		},
//	}
//
// [Queue.Entries] reads an index, [Queue.Tallies] and [Queue.TallyPrefixes] read tallies, and [Queue.WatchTally] watches one.
//
// What can go wrong, and what happens then:
//
//   - A transaction runs again after a commit whose result was unknown. It reads the row that the commit has written, and
//     finds no difference, so a tally is not changed twice.
//   - The function changes. Its result for the rows that exist must stay, or the layer removes entries that are not there and
//     leaves others behind. So a changed function is a new version: the row says which version its entries are of, the
//     function gets that version as an argument, and [Queue.Rederive] converts the rows.
//   - Two releases use the store. The older one must not see rows of a version that it does not know: let Version return
//     the new one only when no older release is left (package levels does that).
//   - A process is opened without the derivation of a queue that has one. It reads the jobs. A write that would change what
//     follows from a job fails.
//   - Facts or entries are over a limit. The call that adds or updates the job returns ErrTooLarge or ErrInvalid, and changes
//     nothing. Claims and monitors cannot return such an error, and must move the job. They leave out the entries that are
//     over the limit, and Check says so.
//   - Entries or tallies are damaged. Check finds what is missing, what is too much, and what has another value. The repair
//     writes what follows from the row. Facts that are not those of the state and of Listed are written again, too.
//
// # Keys
//
// All keys are tuples below the layer's prefix. A versionstamp is the position of a commit among all commits, so a row
// with a new one lies after all earlier rows.
//
//	(data,    queue, id)                -> row: see below
//	(state,   queue, id)                -> state, a JSON object
//	(args,    queue, id, n)             -> chunk n of the args, as a Sealer seals them if there is one
//	(delayed, queue, scheduled, id)     -> owner    pending, not yet due; seconds since the epoch
//	(ready,   queue, owner, stamp, id)  -> ""       pending and due, by when it became so
//	(active,  queue, owner, label, id)  -> (stamp, seconds)  running; the last renewal of the hold, and the
//	                                                timeout of the holder
//	(listed,  queue, id)                -> JSON     what lists show of a job besides its state
//	(entries, queue, index, key…, id)   -> value    an entry that follows from a job: see entries.go, and own.go for those
//	                                                by which jobs are listed and expire
//	(tallies, queue, index, length, prefix…, name) -> int64  the sum of what the entries add whose keys begin with
//	                                                prefix, which has length elements; little-endian
//	(claimers, queue, claimer)          -> time     when a process last took jobs
//	(queue,   queue, "monitor")         -> (id, number)  the monitor that looks, and its latest look
//	(queue,   queue, "ready")           -> counter  changed when a job becomes ready, or is delayed until before
//	                                                all others
//
// and the keys of fair share: owners, waiting, ranks, charges, weights and (queue, queue, "rollup") (fairshare.go).
//
// A row is the tuple
//
//	(sequence, status, lock, generation, owner, scheduled, resubmit, again, token, expires, chunks, label, tag,
//	 listed, pending, running, finished, version, facts of listed, facts of the state)
//
// where sequence is the stamp of the job's row in ready, or null without such a row, chunks is the number of
// chunks of the args, again is the tag with which a running job that was added waits for resubmit, listed says whether the job has a key in listed, and the next three count how often the job has
// entered each status. The last three are for [Derivation], and are not there if nothing follows from the job. The state has a key of its own because it alone may take the 100,000 bytes that a value may have.
//
// A call that waits for a job watches its row ([Queue.Wait], [Held.Lost]). The row changes
// with the job's status and its generation, and with what follows from its state. A renewal of its hold does not change it.
//
// Invariants, kept by put (rows.go), the only function that writes rows and what follows from them:
//
//   - a pending job has one row in delayed or ready, a running job one in active;
//     a finished job has none of these;
//   - a row in delayed, ready or active agrees with the job's own row;
//   - a job has the entries that follow from its row, and a tally is the sum of what the entries add, and is not 0;
//
// and by fair share (fairshare.go):
//
//   - every owner with rows in ready has a key in waiting;
//   - every owner with running or ready jobs has a row in owners, and each row in
//     owners one in ranks, which has its rank and whether it has a key in waiting,
//     unless the owner is paused;
//   - an owner without jobs has no key but its weight, as soon as a monitor has seen it.
//
// [Layer.Check] checks all of them, except the last one.
//
// # The queue
//
// A queue has two levels. A job that is not yet due waits in delayed, by time. When it is due, any process moves it
// to its owner's rows in ready, which are in order of arrival. Processes that take jobs move different ones.
//
// The owner with the lowest usage per weight is served next, and owners with the same usage take turns. The caller
// defines usage: [Queue.Charge] adds to it, and [Queue.RollUp] decays it. Without charges, all owners take turns. A
// charge is an addition that conflicts with nothing. It becomes part of the owner's rank within a second of the owner's
// next claim, or with the roll-up. A claim reads the usage of each owner that it looks at, with the later charges.
//
// An owner with the weight 0 is paused ([Queue.SetWeight]). It has no rank, so claims do not meet it. A claim that has
// met it before reads its weight with a conflict, so none of its jobs are taken after it was paused. Its other weight
// wakes all claimers.
//
// If running jobs count ([Queue.RollUp]), the rank contains those at the time when it was written, so it is not a bound. A
// holder without room can take jobs in exchange for some that it holds ([AcceptOptions].Evictable), in the transaction
// that takes the new ones.
//
// A claim reads, chooses, and then writes (claim.go). It reads a small window at the head of an
// owner's ready rows without conflicts, and conflicts only on what it takes. If only one process takes jobs, it takes the
// longest waiting first. If several do, each prefers some of the owners and jobs, to avoid conflicts (partition.go). What
// a claim has found to tidy is tidied while the next one runs (tidy.go).
//
// The acceptors of a process share one claimer, which takes jobs for all of them in one transaction, and waits for more
// with one watch and until the first delayed job is due (delayed.go). Claimers that take no jobs look rarely (idle.go).
//
// Rows are removed at the head, and for a while a store passes over removed rows as slowly as over others. Readers of
// ready therefore begin where their last read began: stamps only grow, so nothing can have appeared before
// it. Times in delayed come from clocks that may differ, so its readers go back by a minute, and sometimes to the
// start.
//
// # Costs
//
// Nothing here reads all jobs. Lists read pages of owners' entries, and know from the tallies which owners to visit.
// Counts of all owners read the tallies of the owners that have live jobs, or ended ones. Expired and due jobs are
// each read from the head of their own range. One monitor of all reads the keys of all running jobs in each of its looks, about
// 100 bytes of each, so that a renewal of a hold writes one key. [Queue.RollUp] and that monitor visit owners that have jobs.
package fdbjobs
