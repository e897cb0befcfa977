// Package docstore keeps CouchDB databases on an ordered transactional store: documents with
// revision trees and attachments, and a feed of changes.
//
// It is what CouchDB is behind its HTTP interface, and knows nothing of HTTP, users or
// replication. [Store] has databases, [Database] has documents. Code that takes part in
// writes, such as a queue that follows a database's documents, hooks into their transactions
// ([Hooks]).
//
// # Documents
//
// A document is a tree of revisions, of which only the leaves have content, as after a
// compaction in CouchDB. Of the others the ids are kept, in the paths of the leaves, the
// newest revs_limit of each. The winner is the same for all who have the same leaves: one
// that is not deleted before one that is, then the highest position, then the highest id.
//
// [Database.Write] replaces leaves, or merges revisions that were made elsewhere
// ([WriteOptions].Replicated, which is CouchDB's new_edits=false). The body of a document is
// a JSON object, kept byte for byte; _id, _rev, _attachments and the like are no part of it,
// but fields of [Edit] and [Document].
//
// # What can go wrong
//
// A commit whose result is unknown is made again, and each call recognises what it did:
// Write by a token in the leaf, which is drawn before, not by the revision's id: two clients
// that write the same are not one, and one of them has to hear of the conflict. Replicated
// revisions are known the second time. If somebody else has replaced the leaf between a
// commit that nobody heard of and its repetition, the answer is [ErrConflict].
//
// A database that is deleted is another one when it is created again. Every transaction
// reads, with its other reads, that its instance exists, and what writes conflicts with the
// deletion: nothing is ever written into what is deleted.
//
// An upload that is broken off, and one that no revision refers to in time, is removed by
// upkeep ([Store.Tasks]). Its row is read with a conflict by upkeep and by the write that
// refers to it: one of them is first, and the other one finds out.
//
// A document is read in one transaction; listings, feeds and contents of attachments are
// read in pages; what becomes of changes that are made between two pages is in the
// comments of the functions.
//
// # Keys
//
// All below the store's prefix, as tuples. A revision is its position, its id, and whether
// the id's bytes stand for hexadecimal digits: 32 of them are stored as 16 bytes, any other
// id as its text. A stamp is a versionstamp, 12 bytes; those of the documents that one
// transaction writes differ in the last two.
//
//	(databases, name)                        -> (instance uuid, created)   seconds since the epoch
//	(trash, instance)                        -> (deleted)                  removed with the rest by upkeep
//	(uploads, time, instance, id, key)       -> ""                         contents that no leaf refers to
//
// and below (instances, instance):
//
//	(config, "security")                     -> JSON
//	(config, "revs_limit")                   -> int64        little-endian, as all that is added to
//	(docs, id)                               -> (stamp)      of the document's row in changes
//	(leaves, id, alive, pos, rev, hex, n)    -> chunk of (path, size of the body, token, attachments)
//	(bodies, id, pos, rev, hex, n)           -> chunk of the JSON text, or of what a Sealer made of it
//	(changes, stamp)                         -> (id, size of the winner's body, (pos, rev, hex, deleted)...)
//	(all, id)                                -> (pos, rev, hex, size)      of the winner, if it is not deleted
//	(local, id, n)                           -> chunk of the revision and the JSON text, or of the like
//	(count, "docs" | "deleted")              -> int64        documents whose winner is not, or is, deleted
//	(count, "bodies" | "attachments")        -> int64        bytes
//	(watch)                                  -> int64        changed with every change
//	(blobs, id, key)                         -> (length, md5, references)  contents that leaves refer to
//	(chunks, id, key, n)                     -> chunk of a content
//
// The path of a leaf is the ids of the revision, its parent and so on. An attachment in it is
// (name, type, length, encoding, stored length, md5, revpos, key); the key is drawn at random
// by whoever uploads. A chunk has 90,000 bytes, the last one fewer.
//
// Invariants, which the functions of flush.go keep:
//
//   - a document that exists has a row in docs, at least one leaf, and one row in changes, at
//     the stamp that docs has, which lists its leaves, the winner first;
//   - the leaves of a document are a tree (package revtree), whose last row is the winner;
//   - each leaf has a body, no other revision has one;
//   - all has the documents whose winner is not deleted, and their winners;
//   - a content in blobs has as many references as attachments of leaves have its key, at
//     least one, and no row in uploads; any other content has one;
//   - the counters agree with all that.
//
// # Who conflicts with whom
//
// A write reads the document's header in docs with a conflict and writes it, so writes of one
// document are one after the other, and need no other conflicts within it. Writes of
// different documents have no row in common that is both read and written: the sequence is
// the commit's own, counters are added to without being read, and what all read (that the
// database exists, its revs_limit) is hardly ever written.
//
// # What costs how much
//
// A write reads all leaves of its document and nothing else of the database. Changes, listings
// and counts read a row for each result, [Database.Info] a few rows. Values that would be
// over a store's limit are chunked, but for a row in changes, which bounds how many leaves a
// document may have ([MaxLeaves]).
package docstore
