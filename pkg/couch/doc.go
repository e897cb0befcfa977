// Package couch is a client for a remote CouchDB database, with what replication needs of it.
//
// It gives a server's bytes on as they came: a [Document] is the JSON text that was sent, a sequence is
// opaque, an attachment's bytes are neither compressed nor decompressed on the way. CouchDB 1 to 3 and
// PouchDB Server are understood; where they differ CouchDB's behaviour leads.
//
//	method               request                                       repeated   in memory
//	Info                 GET /db                                       yes        1 MiB
//	Create               PUT /db                                       no (d)     1 MiB
//	EnsureFullCommit     POST /db/_ensure_full_commit                  yes        1 MiB
//	Get, GetDesignDoc    GET /db/doc                                   yes        Config.MaxDocument
//	GetLocal             GET /db/_local/id                             yes        16 MiB
//	PutLocal             PUT /db/_local/id                             yes (a)    what is written
//	Changes              GET or POST /db/_changes                      yes (b)    one row, 16 MiB
//	RevsDiff             POST /db/_revs_diff                           yes        the result, 64 MiB of JSON
//	BulkGet              POST /db/_bulk_get                            yes (b)    one document
//	OpenRevs             GET /db/doc?open_revs=[...]                   yes (b)    one document
//	Attachment           GET /db/doc/attachment                        yes (b)    a buffer
//	BulkDocs             POST /db/_bulk_docs, new_edits=false          yes        what is written, 16 MiB of refusals
//	PutMultipart         PUT /db/doc?new_edits=false                   yes (c)    the document, 64 KiB more
//
// (a) a conflict that the repetition meets may be the first try's own work: that is looked at. (b) until
// the answer begins. (c) while not more than 64 KiB were sent. The figures in memory are limits, what
// is larger is [ErrLimit]; "one document" is at most Config.MaxDocument, with 100,000 attachments.
//
// # Failures
//
// A request that fails returns an [*Error] which says which request it was, and what the server or the
// network said. What a caller may decide on are sentinels for [errors.Is], such as [ErrNotFound]. What
// is refused of a single document is a [DocError]. No error has credentials in it, nor a query.
//
// Requests that are safe to repeat are repeated after a failure of the network, 408 and 5xx (but 501),
// Config.Retries times, after a wait that doubles, and to which up to a quarter is added at random.
// Retry-After is honoured up to a minute; a longer one ends the request. A wait ends with its context.
// Config.Retrying is told of it.
//
// What is refused with 429 was not carried out, and is always repeated while its body can be sent again. It
// does not count as a failure: a [Limiter], which databases share, finds out how long requests of that method
// are to wait at that server, and holds all of them back for so long. It ends when that wait has come up to
// 25 s, or a request was refused for a minute and a half: then the error is [ErrBackedOff], and the server is
// to be left alone.
//
// No request has a limit of time as a whole. It ends when the network is silent for too long, which is
// [ErrStalled]; the error names the step. Time that the caller takes to read, or to provide what is sent,
// does not count.
//
//	looking up the host, connecting, TLS        Config.ConnectionTimeout each
//	sending the request                         ConnectionTimeout for each 32 KiB or so
//	waiting for the answer                      Config.AnswerTimeout
//	between two bytes of it                     ConnectionTimeout
//	a changes feed, before and in its answer    three heartbeats, or what a server takes to end it
//
// An answer of which less than a kilobyte came in each of five ConnectionTimeouts in a row (of 10 s at
// least) is [ErrTooSlow]; of a feed only what comes within a row counts. That is not repeated.
//
// Redirects are followed within the database's origin, with the same method and credentials.
//
// # Connections
//
// A [Pool] is the connections of many databases: those to one endpoint serve whoever needs one. It has
// the proxies, certificates, socket options and the networks that nobody may connect to; all of them can
// change while it is used. What keeps a request from a connection is a [*ConnectError], which says who
// failed: the name, the address, TLS or the proxy. Config.MaxConnections bounds the requests of one
// database, each of which needs a connection, or with HTTP/2 its part of one. Its changes feeds come on
// top: a feed that waits for days must not keep a document from being fetched.
// Answers may come compressed, except attachments and feeds that wait. Requests with many documents or
// revisions go compressed to servers that are known to take them so, unless they are near.
//
// # Authentication
//
// Credentials go with each request (basic authentication), or, with Config.Sessions, the cookie of a session
// does. It is asked for with POST _session next to the database (CouchDB's replicator asks at the server's
// root, which is another place if the server is below a path), shared by all databases that have the same
// server, user and password, and go there through the same proxy or none, renewed when nine tenths of its time
// are over, and renewed once by a request that meets 401 or 403. A server that answers a login with another
// 4xx, 501, or without a cookie has no sessions: requests to it have basic authentication. A login that is
// refused ([ErrSession]) is not repeated for five seconds, so as not to lock the account.
//
// # What servers get wrong
//
// Answers are read as text from a stranger. A feed or a body that ends early is an error, even if it
// ends politely, and never taken for its end. A value that is not JSON or not UTF-8, a document nobody
// asked for, an attachment of another length than announced are errors ([ErrMalformed]) that say what
// was being read. An attachment whose bytes are not those of its digest is [ErrDigest]; a write that it was
// a part of is broken off before its end, so that no server takes it. The quirks of PouchDB Server are noted where they are dealt with; a server is known
// for one by its X-Powered-By header, and as one that answers open_revs with JSON by doing so.
package couch
