// Package jobs keeps replication jobs in the store: which job a request or a
// document is, which state it is in, and which job has a replication id. Nodes that
// accept replications add, await, list and cancel jobs here; nodes that run them
// accept jobs ([Store.Accept]) and record what becomes of each ([Run]).
//
// The jobs themselves are package fdbjobs', of type [Type]. Their args are a
// replicator.JobArgs, their state is a replicator.JobState. A job's owner, in whose
// queue it waits, is its replicator database, or, if it is transient, its user.
//
// # States
//
// What a job's state says was true when its processor last wrote it. Whether it is
// queued, running or finished the job layer knows better, since a node may have
// died: [Job.Condition] puts the two together.
//
// # Replication ids
//
// Two jobs with one replication id would write the same checkpoints. So a job
// claims its id before it reads any: when it is added if the id is known then,
// else when a run starts. A claim holds while its job is pending, crashing or
// running; that of a job that has ended or is gone is taken over. Whoever commits
// first has it.
//
// # Keys
//
// Below the subspace ("replicator"):
//
//	("uuid")                             -> the server uuid, made once
//	("replication_ids", replication_id)  -> job id
package jobs
