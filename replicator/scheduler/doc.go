// Package scheduler runs replications and mirrors on a node. It says how many jobs the node may run, which of them make room
// for others, what a run is, and what the next state of a job is when its run has ended. Package jobserver does the rest:
// it takes jobs from the queue, keeps them alive, exchanges them, and gives them back when the node stops.
//
//	the run ended because               the job
//	it reached the end of the feed      completed; pending for the next time if it is periodic
//	it made room for another one        pending, due at once
//	it parked: nothing is left to copy  pending, due in a day, or at once if its source changes
//	the node is shutting down           pending, due at once
//	the replication id has changed      pending, due at once, with fresh statistics
//	another job has the replication id  failed; crashing if it is a document's and the other is not
//	it failed                           crashing, scheduled later and later; failed if a client awaits its result
//	the job was removed                 gone; the run writes a last checkpoint
//	it has a new definition             pending, due at once; the run writes a last checkpoint
//	its lock is lost                    as the node that took it decides
//
// replicator.Ending.Again decides whether and when the job runs again, and has the whole table. A job waits longer after
// each consecutive crash. A run that was well for longer than health_threshold without interruption clears the count. A
// run that is stopped earlier does not.
//
// # Turns
//
// While fewer than max_jobs jobs are busy, due jobs start at once. When all slots are in use, the node starts up to
// max_churn due jobs every interval. For each of them it stops a continuous job that has run for min_run_time. That job
// writes a checkpoint and goes to the end of its owner's queue. One transaction chooses both jobs by the usage of all
// owners on all nodes (package replicator/shares has the whole rule, and its constants):
//
//   - an owner is a replicator database, or the user of transient jobs; its weight is its shares;
//   - its usage is the time that its jobs have run, which decays by usage_coeff each interval;
//   - jobs that run now count in addition, and count more, so that a change has an effect at once;
//   - a job is stopped for another job of the same owner, or if its owner will still have at least as
//     much usage per weight as the owner that is served.
//
// So running time is divided by shares, other owners use what an owner leaves unused, and within an owner the job that
// has waited longest is next. When max_jobs is lowered, jobs of the owners with the most usage stop first, and one-shot
// jobs only if there are too few others.
//
// # Idle runs
//
// A continuous run is idle when everything that it has read is copied, and it waits for changes. It keeps its slot and its
// connections, so the next change is copied at once. It is asked to park (package worker says how it does that)
//
//   - at once, if a due job was taken while all slots had runs: the run that has been idle longest;
//   - when it has been idle for idle_timeout_sec. Only a few runs do so at a time.
//
// So the slot of an idle run counts as free. A run that was asked and has not parked, because its source has changed
// meanwhile or does not answer, is not asked again for five seconds, then ten, up to ten minutes. Its slot counts as used,
// the next idle run is asked instead, and it takes part in the turns like a busy one.
//
// A node holds at most max_jobs runs and those that are parking, at most max_acceptors or a tenth of max_jobs. Those
// that are parking use no slot: Server.Running does not count them. If more than max_jobs are busy, because idle ones have become so after others took their slots, jobs of the owners with the most
// usage stop after a second.
//
// A parked job has no slot, no connection and no goroutine, and its owner is not charged. Its errors are forgotten: it has
// copied everything. Package watch makes it due when its source changes.
//
// All of this state is in the store, so a node that starts late or dies does not affect the others. Each node has an
// activity monitor, which takes over the jobs of nodes that died.
package scheduler
