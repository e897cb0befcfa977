// Package functions runs the functions of design documents: validate_doc_update, the filters of changes feeds, and the
// map functions of views as such filters. It also checks design documents that are written.
//
// It does what CouchDB does with the same text: the same arguments, the same helpers (isArray, toJSON, sum, log, emit,
// require), and the same errors for what a function throws. The differences are that reasons of errors name the design
// document, and that a call does not see global variables that an earlier one has left (package script). A filter is
// called with several documents at a time.
//
// A function that cannot be run is an error, for a write and for a feed: it is not ignored. That includes languages
// other than JavaScript.
//
// A write goes to the store through [Functions.Write]: functions decide about it outside the transaction, and their verdict
// counts only for what the transaction finds.
//
// The package renders no documents and reads no requests: arguments are JSON texts of the caller.
package functions
