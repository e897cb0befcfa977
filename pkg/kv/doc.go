// Package kv is an ordered, transactional key-value store in FoundationDB's terms. Every engine keeps FoundationDB's
// contract, so code above this package works the same on each.
//
// # Transactions
//
// A [Database] runs functions: [Database.Transact] calls one with a [Transaction], commits, and calls it again on a
// retryable error. So the function may run several times, and an earlier run may have been committed although its
// result never arrived ([ErrCommitUnknown]). What must be the same in every run (an id, a lock, a random choice) is
// drawn outside the function, and a run first looks for traces of an earlier one.
//
// Transactions are strictly serializable: each behaves as if it ran alone at the moment of its commit, and sees every
// commit that was acknowledged before it began. The keys and ranges that it reads, empty ones included, conflict with
// writes committed since. [Transaction.Snapshot] reads without conflicts.
//
// Reads return futures ([Future], [RangeResult]). On FoundationDB each is a round trip, so independent reads are all
// issued before the first is awaited. Writes are buffered, and the transaction's own reads see them. Only a key written
// with a versionstamp cannot be read, because its content is not known before the commit: the error is [ErrUnreadable].
//
// # Limits
//
// A key has at most [MaxKeySize] bytes, a value [MaxValueSize], and a transaction [MaxTransactionSize] including its
// conflict ranges and some bytes for each write. A transaction lives for [MaxTransactionAge] from its first read. Keys
// from \xff on belong to the engine. An engine reports a violation with FoundationDB's error. A write returns nothing:
// its error comes from the next read or the commit. A function whose work can be divided ends in time with [InTime], and
// its caller recognises with [TooMuch] that it must be.
//
// # Versionstamps
//
// A commit has a [Versionstamp] of 10 bytes. Versionstamps grow with each commit and are never repeated, also across
// restarts. [Transaction.SetVersionstampedKey] and [Transaction.SetVersionstampedValue] write it into a key or value.
// Two stamped writes of one transaction get the same 10 bytes. The writer chooses the 2 bytes that follow in a tuple's
// versionstamp, which tell them apart.
//
// # The metadata version
//
// A store has a versionstamp that comes with the read version of each transaction. It is for a value that every
// transaction depends on and that hardly ever changes, such as a schema. A process keeps the value in memory together
// with the metadata version at which it read it. Whoever changes the value calls [Transaction.ChangeMetadataVersion] in
// the same transaction. So a transaction that sees the same metadata version knows the value without reading it. It adds
// a read conflict on the key of the value, and then cannot be committed after a change. Package levels does this.
//
// # Watches
//
// A [Watch] is armed by the commit of its transaction and ends when the key's value changes. It may end without a
// change, and may miss a value that changed and changed back. So the caller reads again when it ends, and at least
// every 30 seconds: see [AwaitChange].
package kv
