// Package jobs keeps replication jobs in the store: which job a request or a
// document is, which state it is in, and which job has a replication id. Nodes that
// accept replications add, await, list and cancel jobs here, and give the hooks to
// their databases that make jobs of documents ([Store.Hooks]); nodes that run them
// accept jobs ([Store.Accept]) and record what becomes of each ([Run]).
//
// The jobs themselves are package fdbjobs', of type [Type]. Their args are a
// replicator.JobArgs, their state is a replicator.JobState.
//
// # States
//
// What a job's state says was true when its processor last wrote it. Whether it is
// queued, running or finished the job layer knows better, since a node may have
// died: [Job.Condition] puts the two together.
//
// # Documents
//
// A job is transient, of a request, or it is of a document in a replicator database:
// one whose winning revision asks for a replication and does not say how that has
// ended. The two are changed in one transaction: the write of the document adds,
// changes or removes the job, and the end of the job writes the document. Neither
// exists without the other at any time. If Options.UpdateDocs is set the document also says
// that a run has its replication id, and that a run has crashed. What it says of a job that
// has not ended does not affect the job. Without UpdateDocs it is taken out when a run starts.
//
// A document that comes to ask for something else has another job, by the same id. If the
// old one runs, it has to be let go of first: until then the args are of the new
// definition and the state is of the old one, which shows in what each calls its
// definition.
//
// # Deleted databases
//
// The jobs of a database are cancelled by the transaction that deletes it, which cannot
// remove a hundred thousand of them: the job of a database that does not exist is no job.
// It is not found and not listed, claims nothing, is dropped by whoever takes it, and
// whoever runs it reads with each write that its database exists. Upkeep removes what is
// left ([Store.Tasks]).
//
// # Owners
//
// In whose queue a job waits is its user, as "user:" and the name, or its database, as
// the name, a bar and the database's instance. So a database that is created by the
// name of a deleted one does not wait behind its jobs. What an operator sets for a
// replicator database by its name is meant for the owners that begin with it and a bar.
//
// # Replication ids
//
// Two jobs with one replication id would write the same checkpoints. So a job
// claims its id before it reads any: when it is added if the id is known then,
// else when a run starts. A claim holds while its job is pending, crashing or
// running; that of a job that has ended or is gone is taken over. Whoever commits
// first has it. A document is accepted though its id is another job's: that shows
// when its job runs.
//
// # Secrets
//
// Credentials are in the args of jobs and in the bodies of documents, and nowhere else: what
// jobs are found and listed by has none, nor has what is said of how they went. Either is sealed
// where it is stored, if there are keys ([fdbjobs.OpenSealed], docstore.Options), and a node that
// has not the key of a job leaves it to others.
//
// # Keys
//
// Below the subspace ("replicator"):
//
//	("uuid")                             -> the server uuid, made once
//	("replication_ids", replication_id)  -> job id
//	("failures", job id)                 -> (how many were listed, token, how many there were)   revisions that the target refused
//	("failures", job id, n)              -> the nth of the latest, modulo their number
//	("ended", job id, "life" | "state")  -> life, state    of a transient job, before it began anew
//	("deleted", instance)                -> owner    a database whose jobs may not all be removed
//	("ran", slice, owner)                -> int64    milliseconds that an owner's jobs ran, see usage.go
//	("entitled", slice, owner)           -> int64    those that they were entitled to
package jobs
