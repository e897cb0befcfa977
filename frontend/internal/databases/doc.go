// Package databases answers the requests in databases.
//
//	databases.go, maintenance.go, revslimit.go     databases as wholes
//	getdoc.go, openrevs.go, documentquery.go       reading documents
//	docout.go, contents.go, multipart.go           the answers that have documents and attachments
//	write.go                                       the way of all writes, which begins with a list of its steps
//	receive.go, uploads.go, functionarguments.go   what is received, attachments, what functions get
//	writedoc.go, copydoc.go, putattachment.go, postform.go, bulkdocs.go
//	                                               the requests that write, and their answers
//	getattachment.go                               attachments
//	bulkget.go, revsdiff.go                        many documents at a time
//	alldocs.go, listquery.go, listbody.go          listings
//	changes.go, changesfeed.go, changesfilter.go, changesfunction.go, changesformat.go
//	                                               changes feeds
//
// The package knows databases and documents as package docstore has them. What a user may read and write, package access
// decides.
//
// # Writing
//
// JSON that has documents is spooled, to a file if it is large, and checked as a whole before anything is written
// (package docbody). The body of a document is in memory. The contents of attachments go to the store in pieces; those
// in parts or bodies of their own do so while they arrive. They are stored before the revision that refers to them, and
// discarded if it is not written. A bulk write is many transactions, and each document has its own result. batch=ok is
// answered with 202, and the document has been written all the same.
//
// # Feeds
//
// A changes feed that waits has the goroutine of its request, and shares one watch with all feeds of its database. It
// ends when its client hangs up, when it was silent for its timeout, when the database is deleted, when the rights of its
// user change, when its place is needed for another request, and when the node goes away. It ends with its last
// sequence, so that the client can go on from there.
package databases
