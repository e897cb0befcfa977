// Package outbound makes the connections of a node to other servers: for HTTP requests, directly or through a proxy.
//
// A [Pool] keeps the connections of all jobs of a node, and a [Transport] makes requests over them. The pool
// decides by its [PoolConfig], which may change while it is used:
//
//	which addresses are dialled instead of others     ConnectTo
//	which networks no connection is made to           Denied (ErrDenied)
//	which certificates are trusted, and presented     TLS (ErrCertificates)
//	the options of sockets, and times                 Sockets, ConnectTimeout, IdleTimeout
//
// A request that gets no connection fails with a [*ConnectError], which says what failed: the name, the address,
// TLS or the proxy. No error contains the credentials of a proxy. [Final] reports whether the same request would
// fail again.
//
// A connection reads what has come at once, with a buffer that it has only until that is passed on. The reader of a large
// answer may say how much is to come ([Flow]), so that the connection waits for larger pieces.
//
// The package knows HTTP but no protocol above it: pkg/couch speaks CouchDB's over these connections.
package outbound
