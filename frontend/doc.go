// Package frontend is the HTTP interface of an api_frontend node. It serves databases, and accepts replications, waits
// for them, cancels and lists them. Paths, shapes and statuses are the same as in CouchDB 3.5. Where CouchDB answers a bad
// request with 500 or an Erlang term, the answer here is a 4xx whose reason names what is wrong.
//
//	GET  /                        what server this is
//	GET  /_up                     whether it can reach its store
//	POST /_replicate              replicate, or cancel a replication
//	GET  /_scheduler/jobs         replications that have not ended
//	GET  /_scheduler/jobs/{id}    one of them, or one that has ended
//	GET  /_scheduler/jobs/{id}/failures
//	                              the documents that its target refused
//	GET  /_scheduler/docs         replications of documents, including those that have ended
//	GET  /_scheduler/docs/{db}    replications of the documents of one replicator database
//	GET  /_scheduler/docs/{db}/{doc}
//	GET  /_scheduler/shares       running time by replicator database
//	GET  /_active_tasks           running replications
//	GET  /_all_dbs                the databases
//	GET  /_db_updates             which databases were created, changed and deleted
//	GET  /_dbs_info               their information; POST: the information of some of them
//	GET  /_uuids                  ids for new documents
//	GET  /_scheduler/nodes        the nodes of the store
//	GET  /_membership             their names
//	GET  /_cluster_setup          whether the server is set up; POST: set it up
//	GET  /_node/_local            the name of this node
//	GET  /_node/_local/_config    the configuration of this node, secrets masked
//	GET  /_node/_local/_config/{section}
//	GET, PUT, DELETE /_node/_local/_config/{section}/{key}
//	                              a value; PUT and DELETE are for all nodes
//	POST /_node/_local/_config/_reload
//	                              make this node read its files again
//	GET  /_node/_local/_prometheus
//	                              the metrics of this node
//	GET, POST /_node/_local/_upgrade   the level of the store, and its raise
//	GET  /_node/_local/_stats, _system, _versions
//	                              the same as CouchDB's statistics; memory and the like; versions
//
//	PUT, GET, DELETE /{db}        create, look at, delete a database; POST: write a document
//	GET, POST /{db}/_changes      its changes feed
//	POST      /{db}/_revs_diff, _missing_revs, _ensure_full_commit, _compact, _view_cleanup
//	GET, PUT  /{db}/_security, _revs_limit
//	POST      /{db}/_bulk_docs    write documents
//	GET, PUT, DELETE, COPY /{db}/{doc}
//	POST      /{db}/{doc}         write a form
//	GET, PUT, DELETE       /{db}/{doc}/{attachment}
//
// CouchDB's other paths (views, _find, partitions, _purge) are answered with 501 not_implemented and a reason.
//
// HEAD is answered like GET. An error is {"error": ..., "reason": ...}.
//
// The package makes no outbound requests and runs no replication: it reads and writes jobs in the store (package
// replicator/jobs). It neither shows nor logs credentials of endpoints or of requests.
//
// # Rooms
//
// The package only wires its rooms: frontend.go makes them, and routes.go has the paths, of which databases adds its own. Imports among the rooms run one
// way: server, replication and databases -> access -> web.
//
//	internal/web            what all requests have in common: bodies, answers, failures, limits, CORS
//	internal/access         users, rules and rights, sessions, security objects
//	internal/databases      documents, changes feeds, attachments, bulk requests
//	internal/replication    _replicate, _scheduler, _active_tasks
//	internal/server         the welcome, _up, _node, the nodes, lists of databases, _uuids
//
//	accounts                the users: administrators of [admins], and documents of _users
//	internal/auth           passwords, cookies, tokens and security objects, without a store
//	internal/docbody        the JSON and multipart bodies of documents
//	internal/functions      functions of design documents
//	internal/networks       waiting clients by network
//
// # Waiting
//
// POST /_replicate for a replication that is not continuous is answered when the replication has ended, even after days.
// As in CouchDB nothing is sent before. If the client hangs up or the node goes away, the job goes on: the same request,
// sent to any node, waits for it again. The memory of a waiting request does not depend on the size of its body.
//
// When there are too many connections or requests, requests that wait make room: see web.Connections.
package frontend
