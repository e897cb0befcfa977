// Package levels lets processes of two releases use one store, and keeps older ones out.
//
// A store has a level: a number that says which forms of rows the processes that use it may write, and must read. A
// process knows two levels, its own and the one before. It works at the store's level. When all processes know the next
// level, one of them raises the store to it ([Guard.Raise]). Until then an older release can come back. After that it
// cannot.
//
// # What the guard promises
//
// All transactions of a process pass a [Guard]. A transaction that begins after the raise, in a process that does not
// know the new level, fails with [*UnknownLevelError] before its function runs. A transaction that began before the
// raise and would be committed after it is not committed: it runs again, and then fails. So no row of the old form is
// written after the raise, and a function that has asked for the level ([Guard.Level]) may rely on it until its commit.
//
// # How it is kept
//
// Reading the level in each transaction would cost a round trip. So a process keeps the level in memory, together with
// the metadata version at which it has read it (see package kv). The transaction that changes the level changes the
// metadata version, too. Each transaction compares the metadata version that it sees, which comes with its read version,
// with the one in memory:
//
//   - They are equal: the store has the level in memory at this transaction's read version.
//   - They differ: the transaction reads the level, and it is put in memory. On FoundationDB another store of the cluster
//     may have caused that. It costs one read in each process.
//
// Either way the transaction has a read conflict on the key of the level. A change of the level that is committed after
// the read version therefore prevents the commit. The metadata version itself is read without a conflict, so that changes
// for other stores of the cluster end no transactions.
//
// Two transactions may put what they have read in memory in any order. Only the later metadata version stays. A
// transaction with an earlier read version then reads the level itself.
//
// # Conversions
//
// A transaction writes the form of the store's level, so after a raise rows of the level before are left. A process that
// knows both levels reads both. If rows have to be converted, a [Conversion] does that after the raise, in transactions of
// bounded size. The level is not raised again before it has ended, so no process meets rows of a level that it does not know.
//
// # Keys
//
//	(key of Options)                -> (level, name of the release that raised it)
//	(key of Options, tuple (level)) -> (1 if the conversion to the level has ended, else 0; its position)
//
// A store without the key has level [First].
package levels
