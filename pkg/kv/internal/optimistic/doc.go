// Package optimistic is the part of an embedded engine that does not depend on
// where the data lies: transactions over a snapshot, their write buffer,
// conflict detection, commit in groups, versionstamps and watches. An engine
// supplies a [Storage].
//
// # Reading
//
// After each group of commits one snapshot of the storage is published together
// with the group's version. A transaction takes the published pair at its first
// read. It therefore sees only commits that are durable and whole, and its read
// version says exactly which. Snapshots are counted references; the last reader
// of an old one closes it, and a transaction that is too old to read is no reader
// any more, whatever its function does. Ranges are read in batches that hold
// nothing of the storage between them. No lock is held while storage is read.
//
// # Committing
//
// Commits queue up. Whoever finds no one at work on the queue starts that work:
// it takes the whole queue as one group, checks each commit of it against the
// history of writes, applies all that passed in one durable batch, publishes the
// result, and goes on with what has queued up meanwhile until there is nothing.
// So commits that arrive during a sync share the next one, readers never wait for
// either, and an idle store runs no goroutine. (To prepare a group while the one
// before it is synced makes small groups, and is slower for it unless hundreds
// of commits wait.)
//
// All commits of a group have the same version; their order within it makes
// their versionstamps differ.
//
// The queue is no longer than there are callers that wait: one whose context ends
// takes its commit out again, unless that was begun.
package optimistic
