// Package mirror runs mirrors: jobs that keep the databases of a server at another one. [Run] is one run of such a job. It
// lists the databases of the source, compares the list with what the mirror knows, and adds and ends the jobs that copy
// the databases. These jobs are replications like others: any node runs them, and they are parked while nothing changes.
//
// # How a mirror hears of databases
//
// It compares the whole list when a run begins, and then every minute. If the watch of the source's server follows the
// server's _db_updates, the watch publishes to the mirror each database that is created or deleted (jobs.Watches.Publish). Then the
// list is compared only when the watch may have missed something, and every max_idle_sec.
//
// # First runs
//
// The mirror adds the job of a database at once, but the job waits for its turn: at most mirror_starts databases have jobs that
// run and have neither copied everything once nor failed. Those that were created while the mirror runs come first.
//
// # Databases that disappear
//
// Before the mirror ends the job of a database that is missing in the list, or was deleted by what the watch says, it asks
// the source for the database. Only if the answer is that there is none, the job ends. If the mirror deletes databases, the
// database is deleted at the target mirror_delete_after_sec later, after the source was asked once more.
//
// # Databases that are left out
//
// Names come from the source. Those that cannot be parts of URLs and keys are left out, and so are databases beyond mirror_databases.
// The mirror lists them as failures, without jobs.
//
// # The target
//
// Every minute it compares the target with what was copied there: the uuid of the server, the list of its databases, and in
// pages their instance_start_time. If both servers tell digests of `_security` with that, as settee does, a database whose objects differ is
// compared again. What was lost or recreated is behind since the look before, and is copied again.
// Databases whose jobs run or fail are left to these.
//
// # Failures
//
// A source that does not answer is asked again, less and less often, while the run goes on. A source that refuses its list
// ends the run with an error, and so does one that has not answered for five minutes: the job crashes and is tried again.
// Meanwhile the jobs of the databases go on.
package mirror
