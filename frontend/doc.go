// Package frontend is the HTTP interface of an api_frontend node: it accepts
// replications, waits for them on behalf of clients, cancels and lists them. Paths,
// shapes and statuses are CouchDB 3.5's; where CouchDB answers a bad request with
// 500 or an Erlang term, the answer here is a 4xx whose reason names what is wrong.
//
//	GET  /                        what server this is
//	GET  /_up                     whether it can reach its store
//	POST /_replicate              replicate, or cancel a replication
//	GET  /_scheduler/jobs         the replications that have not ended
//	GET  /_scheduler/jobs/{id}    one of them, or one that has ended
//	GET  /_scheduler/jobs/{id}/failures
//	                              what its target refused
//	GET  /_scheduler/docs         the replications of documents, those that have ended included
//	GET  /_scheduler/docs/{db}    those of one replicator database
//	GET  /_scheduler/docs/{db}/{doc}
//	GET  /_active_tasks           the replications that run
//	GET  /_all_dbs                the databases
//	GET  /_dbs_info               what they say of themselves; POST: some of them
//	GET  /_uuids                  ids for new documents
//	GET  /_node/_local            the name of this node
//	GET  /_node/_local/_config    the configuration of this node, secrets masked
//	GET  /_node/_local/_config/{section}
//	GET, PUT, DELETE /_node/_local/_config/{section}/{key}
//	                              a value; PUT and DELETE are for all nodes
//	POST /_node/_local/_config/_reload
//	                              have this node read its files again
//	GET  /_node/_local/_prometheus
//	                              what this node counts
//
//	PUT, GET, DELETE /{db}        create, look at, delete a database; POST: write a document
//	GET, POST /{db}/_changes      its changes feed
//	POST      /{db}/_revs_diff, _missing_revs, _ensure_full_commit, _compact, _view_cleanup
//	GET, PUT  /{db}/_security, _revs_limit
//	POST      /{db}/_bulk_docs    write documents
//	GET, PUT, DELETE, COPY /{db}/{doc}
//	GET, PUT, DELETE       /{db}/{doc}/{attachment}
//
// What CouchDB has besides (views, _find, partitions, _purge) is 501 not_implemented, with a
// reason.
//
// HEAD is answered like GET. An error is {"error": ..., "reason": ...}.
//
// The package makes no outbound requests and runs no replication: all it does is to
// read and write jobs in the store (package replicator/jobs). It shows and logs no
// credentials: neither those of endpoints nor any in a request.
//
// # Writing
//
// JSON that has documents is spooled, to a file if it is large, and checked as a whole before
// anything is written (package docbody). Of a document its body is in memory; the contents of
// attachments go to the store in pieces, those in parts or bodies of their own while they
// arrive. They are stored before the revision that refers to them, and discarded if it is
// not written. A bulk write is many transactions, and each document has its own result.
// batch=ok is answered with 202, and the document has been written all the same.
//
// # Waiting
//
// POST /_replicate for a replication that is not continuous is answered when that
// has ended, be it after days; nothing is sent until then, as in CouchDB. Clients
// that hang up, and nodes that go away, leave the job as it is: the same request,
// sent to any node, waits for it again. What a waiting request keeps in memory does
// not depend on the size of its body.
//
// A changes feed that waits has the goroutine of its request, and one watch for all feeds of
// a database. It ends when the client hangs up, when it was silent as long as it may be,
// when the database is deleted, when others need its place, and when the node goes away: then
// with the sequence up to which it came, so that its client goes on from there.
//
// Where there are as many connections or requests as there may be, what waits makes room: see
// connections.
package frontend
