// Package scheduler is the job server of a replication node: it takes replication
// jobs from the queue, as many at a time as the node may run, runs them, and
// decides what becomes of each when its run has ended.
//
//	the run ended because               the job
//	it reached the end of the feed      completed
//	it made room for another one        pending, due at once
//	the node is shutting down           pending, due at once
//	the replication id has changed      pending, due at once, with fresh statistics
//	another job has the replication id  failed; crashing if it is a document's and the other is not
//	it failed, and is a document's      crashing, scheduled later and later
//	it failed, and is transient         failed; crashing if an endpoint asked for patience, or
//	                                    its filter function could not be read
//	it is not held any more             whoever took it knows
//
// Crashes in a row make a job wait longer each time. A run that lasts longer than
// health_threshold breaks the row; one that was stopped before that does not.
//
// # Turns
//
// While fewer jobs run than max_jobs says, those that are due start at once. When all slots are
// taken, the node looks at its jobs every interval: it takes up to max_churn that are due in
// exchange for continuous ones that have run for min_run_time, which stop then, write a
// checkpoint and go to the end of their owner's queue. Which ones, one transaction decides over
// what the owners of all jobs have used on all nodes (package fdbjobs, "The queue"):
//
//   - an owner is a replicator database, or the user of transient jobs; its weight is its shares;
//   - it is charged for the time that its jobs run, which decays by usage_coeff each interval;
//   - what runs now counts beside that, and counts more, so that what changes counts at once;
//   - a job goes if its owner will still have as much for its weight as the one that is served,
//     or for another job of its owner's.
//
// So running time is divided by shares, an owner that cannot use its part leaves it to the others,
// and within an owner the job that has waited longest is next. When max_jobs is lowered, the jobs
// of the owners that have used most stop first, one-shot ones only if there are too few others.
//
// All of that is in the store: a node that comes late, or dies, changes nothing for the others.
//
// A node that dies leaves its jobs to the activity monitors of the others. Each
// node runs one.
package scheduler
