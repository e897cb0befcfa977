// Package kv is an ordered, transactional key-value store in FoundationDB's
// terms. Every engine behind it keeps FoundationDB's contract, so that code
// above this package cannot tell one from another.
//
// # Transactions
//
// A [Database] runs functions: [Database.Transact] calls one with a
// [Transaction], commits, and calls it again on a retryable error. The function
// may therefore run several times, and an earlier run may have been committed
// although its result never arrived ([ErrCommitUnknown]). Whatever has to be
// the same in every run (an id, a lock, a random choice) is drawn outside the
// function, and a run first looks for the traces of an earlier one.
//
// Transactions are strictly serializable: each behaves as if it ran alone at
// the moment of its commit, and sees every commit that was acknowledged before
// it began. Keys that were read, and ranges that were read (also where they
// were empty), conflict with writes committed since; [Transaction.Snapshot]
// reads without conflicts.
//
// Reads return futures ([Future], [RangeResult]): on FoundationDB each is a
// round trip, so independent reads are all issued before the first is awaited.
// Writes are buffered and seen by the transaction's own reads, except a key
// that was written with a versionstamp, whose content is not known before the
// commit: reading it is [ErrUnreadable].
//
// # Limits
//
// A key has at most [MaxKeySize] bytes, a value [MaxValueSize], a transaction
// [MaxTransactionSize] with its conflict ranges and some bytes for each write, and it lives for
// [MaxTransactionAge] from its first read. Keys from \xff on belong to the
// engine. An engine reports a violation with the same error as FoundationDB;
// those of a write, which returns nothing, come out of the next read or of the
// commit.
//
// # Versionstamps
//
// A commit has a [Versionstamp], 10 bytes that grow with each commit and are
// never repeated, across restarts too. [Transaction.SetVersionstampedKey] and
// [Transaction.SetVersionstampedValue] write it into a key or value. Two
// stamped writes of one transaction get the same 10 bytes: the 2 bytes that
// follow in a tuple's versionstamp are the writer's, and tell them apart.
//
// # Watches
//
// A [Watch] is armed by the commit of the transaction that made it and ends
// when the key's value changes. It may end for no reason, and may miss a value
// that changed and changed back: whoever waits reads again when it ends, and at
// least every 30 seconds.
package kv
