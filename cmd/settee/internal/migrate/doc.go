// Package migrate moves the replications of a CouchDB cluster to settee, and back.
//
// It speaks HTTP to both servers. It keeps no state of its own: the replication documents say where each job is, so a
// move that was interrupted at any point is continued by the same call. Each database to which documents move has a
// record, the local document "_local/import-couchdb".
//
// # How a document moves
//
// A job belongs to the server where its document is live. A move makes two writes:
//
//  1. At the server that it leaves, the document is deleted. The deleted revision keeps the document's contents,
//     credentials included, and the member [Mark], which names the database to which it moves by the random id in that
//     database's record. So nothing is lost there.
//  2. When that server has no job of the document any more, the contents are written to the other server, as the child
//     of the deleted revision.
//
// Between the two writes the job runs nowhere. The child's revision id depends on the deleted revision alone, and
// _revs_diff tells whether the other server has it, so no step is done twice, and what was changed or deleted at the
// other server later is not overwritten. A document that moves to and fro has one line of revisions, without conflicts.
//
// A document whose mark names another database has moved to another store, and runs there. This store does not have its
// child, as if the move were interrupted. So a call with such a document is refused before it writes, except with TakeOver.
//
// Deletion is what stops a job in CouchDB. `_replication_state: failed` does not: CouchDB's document processor looks at
// no document with that state, and its job runs on until the node restarts. With `completed` it only forgets the
// document. The deletion is seen by every node of the cluster, and by a node that was down when it starts.
//
// # What else holds
//
//   - A job is stopped if no list of CouchDB has it: _scheduler/docs, _scheduler/jobs and _active_tasks. These ask all
//     connected nodes, so a cluster with a node that is not connected is refused.
//   - The way back is the same with the servers exchanged. Settee's database is paused first, which stops its jobs with
//     a checkpoint.
//   - Documents that the other server refuses stay where they are and run there. So do documents with conflicts, since
//     the deletion of one revision would make another one the winner, and those that are live on both servers.
//   - Completed and failed documents move, too, with their states. They do not run again.
//
// Memory is bounded: documents are read in pages, and written in batches of a few megabytes. Only a plan keeps something of
// each document: its name and its replication id.
package migrate
