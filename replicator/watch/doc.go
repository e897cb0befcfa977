// Package watch wakes parked replications when their sources change. A [Watcher] on each replication node takes watches
// from the queue of jobs.Watches: one job for each server with sources of parked replications. Its id is the key of who
// answers for the server (route.Key): its URL, unless the sources have a proxy or headers of their own. A job whose proxy
// or Host header makes another machine answer has a watch of its own, and neither tells that machine of other jobs nor
// hears of other databases. A node that stops puts its watches back, and another one goes on with them. The watches of a node that dies are
// queued again by the activity monitor, which runs on each node.
//
// # The feed
//
// A watch follows the server's feed of database updates, _db_updates, and wakes the parked jobs of the databases that it
// names. The feed needs a user that may read it and _dbs_info, which in CouchDB is an administrator of the server, and
// in CouchDB it needs the database _global_changes. The watch takes the user from [replicator.watches], or from the
// source of a job that is or was parked on that server, as long as that job exists and its source stays what it is. It
// tries all of them, each once in an hour, see search.go.
//
// The state of the watch's job has the sequence up to which all databases were woken. It is written with the heartbeats
// of the job, so a later holder repeats at most what came since the last one. A job may be woken for nothing, but none
// is left out.
//
// # The comparison
//
// A feed does not promise to name every change. Therefore a watch compares the databases of parked jobs with what was
// recorded when they were parked, a page of rows at a time, and one round in max_idle_sec. A database with another
// update_seq is asked for changes since the recorded one, because another copy of its shards has another update_seq without
// any change. A round with short pauses begins when the feed begins for the first time, or has lost its place: the
// server does not know the sequence any more, or has another log of updates (see couch.UpdatesLog).
//
// # Questions
//
// A server whose feed cannot be used is asked for each parked job, with the job's own credentials, whether its source
// has changed: first after 5 seconds, then the less often the longer nothing has changed, at least every 5 minutes. At
// most max_questions_per_sec go to one server, the longest due first. A source that refuses its question wakes its job,
// whose run then reports the error. A server that does not answer is asked less often, at least every minute, and wakes
// nothing. Meanwhile the watch searches for a login, and looks again whether there is a feed: when a job parks with
// another login, when the settings have one, when the server answers again, and every ten seconds where only the feed is
// missing. If it cannot ask each job within 5 minutes, its state says so, and _scheduler/problems shows that: see
// lateness.go. Without parked jobs and mirrors it waits for one, for a minute or two, and then looks at once.
//
// # Security objects
//
// The job of a mirror's database copies the `_security` object of its source, too. security.go says how a parked one learns
// that this has changed.
//
// # Targets
//
// The watch also looks whether the targets of its parked jobs still have what they had, see targets.go.
//
// # Costs
//
// A watch with a feed has one connection and four goroutines. While the server is idle it wakes up for heartbeats, which
// come every few seconds, and for the pages of the comparison and of the looks at targets. All watches of a node send the heartbeats of their jobs
// at the same time, so that they share transactions (package jobserver).
package watch
