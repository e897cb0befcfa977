// Package scheduler is the job server of a replication node: it takes replication
// jobs from the queue, as many at a time as the node may run, runs them, and
// decides what becomes of each when its run has ended.
//
//	the run ended because               the job
//	it reached the end of the feed      completed
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
// A node that dies leaves its jobs to the activity monitors of the others. Each
// node runs one.
package scheduler
