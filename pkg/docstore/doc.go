// Package docstore keeps CouchDB databases on an ordered transactional store: documents with revision trees and
// attachments, and a feed of changes.
//
// It does what CouchDB does behind its HTTP interface. It knows nothing of HTTP, users or replication. [Store] has
// databases, [Database] has documents. Code that takes part in writes, such as a queue that follows a database's
// documents, hooks into their transactions ([Hooks]).
//
// # Documents
//
// A document is a tree of revisions. Only the leaves have content, as after a compaction in CouchDB. Of the other
// revisions only the ids are kept, in the paths of the leaves: the newest revs_limit ids of each path. The winner
// depends on the leaves alone: a leaf that is not deleted wins over a deleted one, then the highest position wins, then
// the highest id.
//
// [Database.Write] replaces leaves, or merges revisions that were made elsewhere ([WriteOptions].Replicated, which is
// CouchDB's new_edits=false). A revision that replaces a leaf has the id that CouchDB gives to the same edit. The body
// of a document is a JSON object, kept byte for byte. It does not contain _id, _rev, _attachments and the like: these
// are fields of [Edit] and [Document].
//
// # Unknown results, deletion and lost uploads
//
// A commit whose result is unknown is repeated, and the repetition recognises what was already written. Write
// recognises its leaf by a random token, not by the revision's id: if two clients write the same content, one of them
// must get the conflict. A replicated revision is already known the second time. If another write has replaced the leaf
// before the repetition, the result is [ErrConflict], except in a database that [Options].Salted selects: there the id of the
// revision is a hash over the token, so it is also found among the ancestors of leaves.
//
// A database that is deleted and created again is a different instance. Every transaction reads that its instance
// exists, and every write conflicts with the deletion, so nothing is written into a deleted database.
//
// [Store.RemoveUploads] removes uploads that were broken off, and uploads that no revision refers to within
// [UploadLife]. It reads the upload's row with a conflict, and so does the write that refers to the upload: only one of
// the two commits.
//
// # Updates
//
// [Store.Updates] yields what has happened to all databases: creations, changes and deletions. Each committed change of
// a database is followed by a row, at the stamp of its commit. A row is there until a later one of its database replaces
// it, so there are at most as many rows as databases, twice, and the rows of deleted databases, for [DeletedLife].
//
// A writer knows the row to remove without a key for it: it is at the stamp of the last change of the database, which
// the writer reads, without a conflict. Writers of one database at a time do not see each other's rows, and leave some
// behind. One write in 32 looks at the rows that its stripe got lately, and removes those that later ones replace.
// [Store.RemoveUpdates] removes the others.
//
// A reader reads all stripes at one version and merges them. It cannot pass a commit that becomes visible later,
// because a version sees all commits up to it, and stamps are in the order of commits.
//
// A follower that has read all rows arms the stripes, and waits until the row armed of one is gone. Every writer of the
// stripe removes it, and reads nothing for that. The follower that sets it conflicts with these writers: either a writer
// is committed before and the follower tries again and sees its row, or the writer removes the row armed. So no change is
// missed, and no writer tries again for a follower. A watch needs a key that every write changes, and rows are new keys, so
// one key cannot do for both. While rows come, followers look again after lookInterval and arm nothing. All waiters of a
// process share one follower, which reads the stripes that are not armed in one transaction.
//
// # Times
//
// A row in changes, and one in updates, has the time of its write, in seconds since the epoch. It is read in the transaction of the write, at most [kv.MaxTransactionAge] before the commit, by the clock of the
// process. It is not before the time of the last change that the writer knows, so that a clock that is set back does
// not hide changes from clients that have its earlier time. Writers at a time do not know each other's changes, and so the times are
// only nearly in the order of the stamps.
//
// [Database.SequenceBefore] halves the range of stamps until it has two neighbours, the first of them written before the
// time less ten seconds, and the second not. Everything up to the first was committed before the time, because the order of stamps
// is that of commits: so no change is missed, whatever the order of times, if the clocks differ by less than five seconds. Each time
// costs no key, and a search no read of a writer.
//
// # Upkeep
//
// The owner of a store calls [Store.RemoveDatabases], [Store.RemoveUploads] and [Store.RemoveUpdates] from time to time,
// until they report that nothing is left. Each call is one transaction, and any number of processes may call them at the same time.
//
// A document is read in one transaction. Listings, feeds and the contents of attachments are read in pages. The
// functions say how changes between two pages show.
//
// # Keys
//
// All keys are tuples below the store's prefix. A revision is its position, its id, and whether the id's bytes stand
// for hexadecimal digits: 32 digits are stored as 16 bytes, any other id as its text. A stamp is a versionstamp of 12
// bytes. The stamps of the documents that one transaction writes differ in the last two bytes.
//
//	(databases, name)                        -> (instance uuid, created)   seconds since the epoch
//	(trash, instance)                        -> (deleted)                  until RemoveDatabases removes it with the rest
//	(uploads, time, instance, id, key)       -> ""                         contents that no leaf refers to
//	(updates, stripe, rows, stamp, name)     -> (1 created | 2 updated | 3 deleted, time)
//	(updates, stripe, armed)                 -> int64        a random number: followers wait for the next row of the stripe
//	(updates, stripe, judged)                -> (key, key, time)           how far RemoveUpdates has come
//	(lives, name)                            -> (1 created | 3 deleted, stamp, time)    the database's last row of these types
//	(deletions, time, name)                  -> ""                         rows of deleted databases, until they are removed
//
// The stripe is one of 16. It and the last two bytes of the stamps in updates and lives come from a hash of the name. So
// the rows of one transaction are told apart, and the rows of one database are one row.
//
// and below (instances, instance):
//
//	(config, "security")                     -> JSON
//	(config, "revs_limit")                   -> int64        little-endian, like all counters
//	(docs, id)                               -> (stamp, number)  of the document's row in changes
//	(leaves, id, alive, pos, rev, hex, n)    -> chunk of (path, size of the body, token, attachments)
//	(bodies, id, pos, rev, hex, n)           -> chunk of the JSON text, or of its sealed form
//	(changes, stamp)                         -> (id, size of the winner's body, number, time, (pos, rev, hex, deleted)...)
//	(all, id)                                -> (pos, rev, hex, size)      of the winner, if it is not deleted
//	(local, id, n)                           -> chunk of the revision and the JSON text or its sealed form
//	(count, "docs" | "deleted")              -> int64        documents whose winner is not, or is, deleted
//	(count, "bodies" | "attachments")        -> int64        bytes
//	(count, "numbered")                      -> (read version, documents)  of the last transaction with calls of WriteIn
//	(watch)                                  -> int64        changes so far: 1 is added for each
//	(blobs, id, key)                         -> (length, md5, references)  contents that leaves refer to
//	(chunks, id, key, n)                     -> chunk of a content
//
// The path of a leaf is the ids of the revision, its parent and so on. An attachment in it is (name, type, length,
// encoding, stored length, md5, revpos, key). They are in the order of the edit. The
// length of an encoded content is the stored length if it is not known. The upload draws the key at random. A chunk has 90,000 bytes, the last one at most that.
//
// Invariants, kept by the functions of flush.go and checked by [Store.Check]:
//
//   - a document that exists has a row in docs, at least one leaf, and one row in changes, at
//     the stamp that docs has, which lists its leaves, the winner first;
//   - the leaves of a document are a tree (package revtree), whose last row is the winner;
//   - each leaf has a body, and no other revision has one;
//   - all has the documents whose winner is not deleted, and their winners;
//   - a content in blobs has as many references as attachments of leaves have its key, at
//     least one, and no row in uploads; any other content has a row in uploads;
//   - the counters agree with all that;
//   - each database has a row in lives. One that has such a row exists if it was created and not if it was deleted. It has
//     that row in updates, and one for its last change. If it was deleted, it has one in deletions.
//
// # Conflicts between writes
//
// A write reads the document's header in docs with a conflict and writes it. Writes of one document are therefore
// serial, and need no other conflicts within it. No row is both read and written by writes of different documents:
// sequences come from the commit, counters are added to and at most read without a conflict, and the rows that all writes
// read with one (the database's row, its revs_limit) hardly ever change. That a follower of updates arms a stripe conflicts
// with the writes in progress there; it does so only after a pause of all writes.
//
// # Costs
//
// A write reads all leaves of its document and the database's last change, and nothing else of the database. A
// transaction adds one row to updates, whatever the number of its documents, and removes one. It reads for that the
// database's last change and whether a follower waits for its stripe, together with the rest: two of seven reads,
// and two of ten keys, of a write of one new document. Inserts into updates go to the ends of 16 ranges. A pass over
// updates reads each row after its beginning once, and a row for each stripe. Changes, listings and counts read one
// row for each result, [Database.Info] reads a few rows. Values larger than the store's limit are stored in chunks.
// A row in changes is not, which limits the leaves of a document ([MaxLeaves]).
package docstore
