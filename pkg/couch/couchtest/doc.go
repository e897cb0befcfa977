// Package couchtest gives tests real peers that speak CouchDB's protocol.
//
// [Shared], [SharedWithAdmin] and [Start] run PouchDB Server (the npm package pouchdb-server, pinned by the package.json
// and package-lock.json of this directory) on a free loopback port, with its in-memory adapter. Node.js
// and an installed node_modules are needed: make test installs it, as does npm ci in this directory.
// Without it a test fails, and says so. Under make test all packages share two servers.
//
// [SharedCouchDB] is a CouchDB 3.5, for the tests of a machine that has one. [Each] and [EachWithAdmin] run a test
// with either. [Proxy] passes requests on to either.
//
// [Script] runs scripts that use clients of CouchDB's, of the same package.json.
//
// [Recorded] reads an exchange that was recorded with a CouchDB 3.5 (testdata/wire), and [Replay] answers with the
// bytes of such exchanges, one for each request.
//
// [Hostile] is a peer that answers wrongly, and [Pipe] a network in memory for peers of all kinds.
//
// # Where PouchDB Server 4.2.0 differs from CouchDB
//
// Tests that use it should know, and clients that meet it must live with:
//
//   - Bodies pass through JavaScript: 12345678901234567890 comes back as 12345678901234567000, 1.0 as 1,
//     and _id and _rev move to the end of the object.
//   - Sequences are numbers. _changes has no pending; a since that makes no sense is echoed as last_seq.
//   - feed=continuous ignores limit and timeout, and feed=longpoll ignores timeout. Both send heartbeats.
//     Asked for gzip, a live feed sends nothing at all.
//   - The filter _selector is not known (404), _doc_ids is. An unknown filter is 404.
//   - open_revs always answers JSON, and with attachments=true carries them inline. With latest=true, a
//     revision that the document's tree does not have ends the process; so it does in _bulk_get.
//   - _bulk_get answers {"missing": rev} or {} where CouchDB has {"error": {...}}; a deleted document
//     asked for without a revision is {}; an id may be left out; an empty list of docs is never answered.
//   - _revs_diff never has possible_ancestors.
//   - _bulk_docs with one illegal id refuses the whole request (400).
//   - PUT with new_edits=false answers an array, [] or the one refusal, where CouchDB answers an object.
//   - A multipart/related PUT matches its parts by file name, which it decodes as browsers encode
//     them: a name with a backslash, %22 or &# is not found again, and ends the process. Content-Encoding
//     is dropped, so that gzip bytes become the attachment's content. A document's JSON of more than
//     2 MiB is never answered. Announced digests are not checked. Uploads leave files in TMPDIR.
//   - A second PUT of a _local document without _rev is a 409 (CouchDB 3.5 overwrites).
//   - A database may be created under names that CouchDB refuses. PUT of a database without the admin's
//     credentials, where there is an admin, is never answered.
//   - JSON comes as text/plain unless the client accepts application/json, and every answer says
//     X-Powered-By: Express.
package couchtest
