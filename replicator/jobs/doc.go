// Package jobs keeps replication jobs in the store: the job of each request and document, the
// state of each job, and the job that holds each replication id. Nodes that accept replications
// use it to add, await, list and cancel jobs, and its hooks make jobs of documents
// ([Documents.Hooks]). Nodes that run replications accept jobs ([Runs.Accept]) and record the
// progress and the end of each ([Run]).
//
// The jobs are fdbjobs jobs in the queue [QueueName]. Their args are a replicator.JobArgs, their state is a
// replicator.JobState.
//
// # Parts
//
// A [Store] has a part for each kind of caller. Two types write and read jobs for all of them: writer and pages. Below are the
// types of the rows besides the jobs, which know the core alone. Each part names the types that it uses.
//
// # States
//
// A job's state is what its processor last wrote. Because a node may have died since, the job
// layer knows better whether the job is pending, running or finished: [Job.Condition] combines
// the two.
//
// A pending job is due, or it waits: after a crash, for the next time of a periodic replication, or,
// if it is parked, for a change of its source. A tag of the job layer says which, so that each kind
// is counted without a scan.
//
// # Parked jobs
//
// A continuous job that has copied everything need not run. It is parked: pending, due in about a
// day, with a row that names its source, the server and the database. [Watches.Wake] makes the parked
// jobs of databases due that have changed.
//
// A job is parked in three steps, so that no change is missed:
//
//  1. [Run.Parking] writes the row while the run holds the job. Whoever hears of a change from then
//     on finds the row.
//  2. The run looks once more whether the source has changed. If it has, the run goes on.
//  3. [Run.Park] ends the run. If Wake has marked the row meanwhile, the job is due at once. Both
//     read what the other one writes, so one of them sees the other.
//
// A state names the row of its job (JobState.Parked), and the row goes in the transaction that writes
// a state that does not: when the next run starts, or when the job is queued in another way. It goes
// with the job, or when the job gets another definition, too. A run that dies leaves its row to the
// next run. "Run now" clears the row of a parked job, whose stored state names it until its run
// starts.
//
// Each server with rows has a watch: a job of the queue of watches ([Watches]), which hears of changes from the
// server's feed of updates, or asks for them, and calls Wake. A watch that begins without a sequence
// of the feed must compare the UpdateSeq of all rows ([Watches.ParkedOf]) after it has opened the feed:
// the feed does not have the changes before. Parking creates the watch, and [Watches.Unwatch] ends it
// if there are no rows. A watch that asks reads the rows that are due with [Watches.Asks], sets their
// next times with [Watches.Ask], and hears of new rows from [Watches.AwaitParked].
//
// The row also has what the target was when everything was there. The watch compares that, and calls [Watches.WakeLost] for
// the jobs whose targets have lost it.
//
// The due time of a parked job is the last resort. Nothing should need it.
//
// # Mirrors
//
// A job whose definition has a Mirror is a mirror. It has a job for each database of its source that it knows: a child, a job of the
// same owner whose id follows from the mirror's and the database's name (replicator.ChildJobID). A child has no document. It is there
// in every state of the database, also before the first run and after the deletion of the database. Upkeep pauses and resumes the children
// of a mirror after the transaction that pauses or resumes the mirror (mirrorpauses.go). What a mirror
// knows and counts follows from its children (mirrored.go). The run of a mirror adds and ends children (mirrorrun.go), while it holds
// the mirror's job. A mirror that has ended leaves them to upkeep, or to the mirror that is added with its id. What the target has lost
// is behind again, and its child runs ([MirrorRun.LostDatabases]). [Watches.Publish] publishes to mirrors which databases were created and deleted.
//
// # Indexes
//
// The jobs that people look for, those in trouble and those with a name, are in indexes that follow from their rows
// (derivation.go). The job layer writes, checks and repairs them.
//
// # Documents
//
// A job is transient, made from a request, or belongs to a document in a replicator database: one
// whose winning revision asks for a replication and has no terminal state. Document and job
// change in one transaction: a write of the document adds, changes or removes the job, and the
// end of the job writes the document. With Options.UpdateDocs the document also records that a
// run has its replication id, and that a run has crashed. These two states do not affect the job.
// Without UpdateDocs they are removed from the document when a run starts.
//
// If a document changes what it asks for, its job keeps its id and gets a new definition. If the
// job is running, its run has to end first. Until then the args have the new
// Definition and the state has the old one.
//
// # Deleted databases
//
// A transaction that deletes a database cancels its jobs, but cannot remove a hundred thousand of
// them. Therefore the job of a database that does not exist does not count: it is not found and
// not listed, holds no replication id, and is dropped when it is accepted. A run reads with each
// write that its database exists. Upkeep removes the jobs ([Upkeep.Tasks]).
//
// # Owners
//
// The owner of a job, in whose queue it waits, is its user or its database (shares.OwnerOf). So a database does not wait behind
// the jobs of a deleted database of the same name. The package shares says what owners share.
//
// # Replication ids
//
// Two jobs with one replication id would write the same checkpoints. Therefore a job reserves its
// id before it reads any checkpoint: when it is added if the id is known then, else when a run
// starts. A reservation holds while its job is pending, crashing or running; after that another job
// may take it over. The first commit wins. Anybody can name the databases of others, so against a job of another
// user it holds only after a run has opened both databases. [Run.Opened] notes that, and finds out whether
// another job has taken the id since [Run.Identify]. A document is accepted even if another job holds its id:
// the collision is found when its job runs.
//
// A cancellation, and a write that changes or deletes a document, end the reservation of the job at
// once, so that the same replication can follow. If the job runs, its run is noted in the same
// transaction, and another run with that id waits in [Run.Identify] until the noted run has ended.
// The noted run hears of it by a watch, gets [ErrEnding], and may write its last checkpoint, as in
// CouchDB: the next run goes on from there, and the statistics add up. It has three quarters of the
// timeout. If its process dies, the next run waits for the timeout (endings.go).
//
// # Secrets
//
// Only the args of jobs and the bodies of documents contain credentials. Both are sealed if there
// are keys ([fdbjobs.Options], docstore.Options). A node without the key of a job leaves that
// job to others.
//
// # Keys
//
// Below the subspace ("replicator"), in which replicator/shares and replicator/rates have rows, too:
//
//	("uuid")                             -> the server uuid, made once
//	("replication_ids", replication_id)  -> job id
//	("records", job id, kind[, n])       -> what is stored of the past of a job, see records.go
//	("parked", server, database, job id) -> (ask, woken, update_seq, ...): a job that waits for a change, see parked.go
//	("mirror_events", mirror, database)  -> (type, token): what happened to a database, see mirrors.go
//	("mirror_events", mirror)            -> int64: changes with events
//	("asks", server, ask, job id)        -> database: when to ask for changes of such a job
//	("watched", server)                  -> "": the server has a watch, see watched.go
//	("watched", server, "parks")         -> int64: changes when a job of the server is parked
//	("ending", replication_id)           -> (job id, lock, timeout, time): its run ends, see endings.go
//	("deleted", instance)                -> owner: a deleted database that may still have jobs
package jobs
