// Package servers runs real servers for tests: CouchDB, PouchDB Server and FoundationDB, and the browser Chromium.
//
// None is part of the project. They are found where their packages install them: CouchDB's
// release in /opt/couchdb or the directory in COUCHDB_HOME, PouchDB Server in the folder of
// pkg/couch/couchtest, the others in PATH. If a server is not installed, the error is [ErrNotInstalled],
// and a test is skipped. Any other reason why a server does not start is a failure: a COUCHDB_HOME
// without a release, a missing PouchDB Server, which make test installs, a port that is taken, a server
// that exits.
//
// A server listens on 127.0.0.1, keeps its data and its log in a directory of the caller's, and
// can be killed, frozen and started again with the same data and port. It ends with the process
// that started it, even if that is killed: a guard, a shell that waits for the end of a pipe,
// kills it. It also ends when the [CouchDB], [PouchDB], [FoundationDB] or [Chromium] is garbage collected.
//
// The command withservers of this project runs a command with servers of its own:
//
//	go tool withservers -fdb -couchdb -pouchdb go test -tags fdb ./...
package servers
