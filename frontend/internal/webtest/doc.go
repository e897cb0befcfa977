// Package webtest is for the tests of package frontend and its rooms: it has a node's stores ([Open]), a client that makes
// requests as the administrator, connections, feeds and users, and it compares answers with those that were recorded with
// a CouchDB. A room's tests serve the endpoints of the room on such a node.
package webtest
