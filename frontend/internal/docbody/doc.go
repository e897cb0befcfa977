// Package docbody reads documents out of the bodies of requests, as CouchDB's clients
// send them: one document ([ReadDocument]), a list of them ([ReadBulk]), or one with the
// contents of its attachments behind it ([ReadRelated]).
//
// What it holds in memory does not depend on the size of a body. JSON is spooled
// ([Spool]): a large one lies in a file. Of attachments that are inline, in base64, a
// document only knows where they are, and reads them from there. Those that follow in
// parts of their own are read as they arrive. Of a document itself the JSON object is in
// memory, up to [Options], and of a list one document at a time.
//
// A body is checked as a whole before any of it is given out, contents that follow
// aside: that it is JSON, that its documents are documents, that its base64 is that.
// What a revision or an attachment means, and whether a document may be written, is not
// looked at.
//
// JSON is what CouchDB takes: UTF-8, no half of a surrogate pair without the other, of
// several members of one name the last one. The errors are of type [Error], or those of
// the reader and of the file system.
package docbody
