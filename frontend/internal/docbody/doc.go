// Package docbody reads documents from request bodies of CouchDB's clients: one document ([ReadDocument]), a list of
// them ([ReadBulk]), one followed by the contents of its attachments ([ReadRelated]), or a form ([ReadForm]).
//
// Its use of memory does not depend on the size of a body. JSON is spooled ([Spool]), a large one to a file. A document
// has only the positions of its inline attachments, which are in base64, and reads them from the spool. Attachments
// that follow are read as they arrive. The JSON object of a document is in memory, up to the limit in [Options], and of
// a long list only one document at a time.
//
// A whole body, except contents that follow, is checked before any of it is returned: that it is JSON, and that its
// documents and its base64 are well-formed. The package does not check the meaning of a revision or an attachment, nor
// whether a document may be written.
//
// JSON is as in CouchDB: it is UTF-8, surrogates are paired, and of several members with the same name the last one
// counts. Functions return an [Error], or an error of the reader or of the file system.
package docbody
