// Package servers runs the real servers that tests talk to: CouchDB and FoundationDB.
//
// Neither is part of the project. They are taken from where their own packages put them: CouchDB's release
// from /opt/couchdb or the folder that COUCHDB_HOME names, fdbserver and fdbcli from PATH. [ErrNotInstalled]
// says that a machine has none, which is no failure of a test. Everything else that keeps a server from
// starting is one: a COUCHDB_HOME without a release, a port that is taken, a server that exits.
//
// A server listens on 127.0.0.1, has a directory of the caller's for its data and its log, and can be killed,
// frozen and started again on the same data and the same port. It ends with the process that started it,
// even when that is killed: a guard, a shell that waits for the end of a pipe, kills what is left. So it does
// when the [CouchDB] or [FoundationDB] is no longer reachable and is collected.
//
// The command withservers, of this project, runs another command with servers of its own:
//
//	go tool withservers -fdb -couchdb go test -tags fdb ./...
package servers
