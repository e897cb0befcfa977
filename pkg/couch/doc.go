// Package couch is a client for a remote CouchDB database, and for a server with several of them. It has the requests
// that replication needs.
//
// It passes a server's bytes on unchanged: a [Document] is the JSON text that was sent, a sequence is opaque, and
// the bytes of an attachment are neither compressed nor decompressed. It works with CouchDB 1 to 3 and with PouchDB
// Server.
//
//	method               request                                       repeated   in memory
//	Info                 GET /db                                       yes        1 MiB
//	ServerIdentity       GET /                                         yes        1 MiB
//	Create               PUT /db                                       no (d)     1 MiB
//	EnsureFullCommit     POST /db/_ensure_full_commit                  yes        1 MiB
//	Get                  GET /db/doc                                   yes        Config.MaxDocument
//	GetLocal             GET /db/_local/id                             yes        16 MiB
//	PutLocal             PUT /db/_local/id                             yes (a)    what is written
//	Changes              GET or POST /db/_changes                      yes (b)    one row, 16 MiB
//	RevsDiff             POST /db/_revs_diff                           yes        the result, 64 MiB of JSON
//	Winners              POST /db/_all_docs with keys                  yes        the result, and one row, 16 MiB
//	BulkGet              POST /db/_bulk_get                            yes (b)    one document
//	BulkGetInline        POST /db/_bulk_get?attachments=true           yes (b)    one document, with its attachments
//	OpenRevs             GET /db/doc?open_revs=["rev"]                 yes (b)    one document
//	Attachment           GET /db/doc/attachment                        yes (b)    a buffer
//	BulkDocs             POST /db/_bulk_docs, new_edits=false          yes        what is written, 16 MiB of refusals
//	PutMultipart         PUT /db/doc?new_edits=false                   yes (c)    the document, 64 KiB more
//	PutInline            PUT /db/doc?new_edits=false                   yes (c)    the document, 64 KiB more
//	LoginHolds           GET /_session                                 yes        1 MiB
//
//	method of Server     request                                       repeated   in memory
//	DatabasesInfo        POST /_dbs_info                               yes        16 MiB
//	Updates              GET /_db_updates?feed=continuous              yes (b)    one row, 1 MiB
//	UpdatesLog           GET /_db_updates, GET /_global_changes        yes        1 MiB
//	Changes              GET or POST /db/_changes                      yes (b)    one row, 16 MiB
//
// (a) after a conflict, PutLocal checks whether the first try wrote the document. (b) until the answer begins. (c)
// while at most 64 KiB were sent. The last column is the limit of what is held in memory. Anything larger is
// [ErrLimit]. "One document" is at most Config.MaxDocument, with 100,000 attachments.
//
// # Failures
//
// A request that fails returns an [*Error] that names the request and the error of the server or the network. Callers
// decide by sentinels for [errors.Is], such as [ErrNotFound]. The refusal of a single document is a [DocError]. No
// error contains credentials or a query.
//
// Requests that are safe to repeat are repeated after temporary errors ([Error.Temporary]), at most Config.Retries
// times. The wait doubles each time ([retry.Backoff]), and up to a quarter is added at random. Retry-After is honoured up to
// a minute; a longer one ends the request. A wait ends with its context. Config.Retrying is called before each wait.
//
// A request that is refused with 429 was not carried out. It is repeated as long as its body can be sent again, and
// does not count as a failure. A [Limiter], which databases share, determines how long requests with that method to
// that server wait. When the wait reaches 25 s, or a request has been refused for a minute and a half, the error is
// [ErrBackedOff], and the caller should leave the server alone.
//
// [Error.Class] says what kind of failure an error is: a name that is not found, a certificate that has expired, a refused
// login, and so on.
//
// No request has a time limit as a whole. It ends with [ErrStalled] when the network is silent for too long. The error
// names the step. Time during which the caller reads, or provides data to send, does not count.
//
//	looking up the host, connecting, TLS        Config.ConnectionTimeout each
//	sending the request                         ConnectionTimeout for each 32 KiB or so
//	waiting for the answer                      Config.AnswerTimeout
//	between two bytes of it                     ConnectionTimeout
//	a feed, before and in its answer            three heartbeats, or what a server takes to end it
//
// An answer of which less than a kilobyte came in each of five ConnectionTimeouts in a row (of at least 10 s each) is
// [ErrTooSlow], and is not repeated. For a changes feed only the time within a row counts.
//
// Redirects are followed within the database's origin, with the same method and credentials: 301, 302 and 303 only by GET.
// If GET of the database or of a local document is redirected so, all later requests go to where that led.
//
// # Connections
//
// Package outbound makes the connections. Databases share the connections of an [outbound.Pool]. A request without a connection
// fails with an [*outbound.ConnectError]. Config.MaxConnections bounds the requests of one database, each of which uses
// a connection or an HTTP/2 stream. Changes feeds do not count: a feed that waits for days must not block other
// requests. Answers may be compressed, except attachments and live feeds. Requests with many documents or revisions are
// compressed for servers that are known to accept that, unless the server's address is loopback or private.
//
// # Authentication
//
// Each request carries the credentials (basic authentication) or, with Config.Sessions, a session cookie. POST _session
// next to the database begins a session. (CouchDB's replicator posts to the server's root, which is wrong if the server
// is below a path.) Databases with the same server, user, password and proxy share a session. It is renewed after nine
// tenths of its lifetime, and once by a request that is refused with 401 or 403. A server that answers a login with
// another 4xx, with 501, or without a cookie has no sessions, and gets basic authentication. A refused login
// ([ErrSession]) is not repeated for five seconds, so that it does not lock the account.
//
// With Config.Token each request carries an access token of a token server (RFC 6749, section 4.4) instead. Databases with the
// same credentials and proxy share a token, too. The token server is asked by one request at a time, and after a failure
// ([ErrToken], [ErrTokenRefused]) only after a wait that grows up to a minute. Its redirects are not followed.
//
// # What servers get wrong
//
// The package trusts no answer. A feed or a body that ends early is an error, even if the connection ends properly. A
// value that is not JSON or not UTF-8, a document that was not requested, and an attachment of another length than
// announced are errors ([ErrMalformed]) that name what was being read. An attachment whose bytes do not match its
// digest is [ErrDigest]; a write that contains it is aborted, so that no server accepts it. Only what
// [Database.ChecksDigest] names can be left to the server that gets it. The code notes the quirks of PouchDB Server where it
// handles them. It recognizes PouchDB Server by the header X-Powered-By, and servers that answer open_revs with JSON by their
// first such answer.
package couch
