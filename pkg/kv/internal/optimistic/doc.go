// Package optimistic is the part of an embedded engine that does not depend on the storage: transactions over a
// snapshot, their write buffer, conflict detection, commits in groups, versionstamps and watches. An engine supplies a
// [Storage].
//
// # Reading
//
// After each group of commits one snapshot of the storage is published together with the group's version. A transaction
// takes the published pair at its first read. So it sees only commits that are durable and complete, and its read
// version says which. Snapshots are reference-counted, and the last reader of an old one closes it. A transaction that
// is too old to read no longer counts as a reader, even if its function is still running. Ranges are read in batches,
// and hold nothing of the storage between them. No lock is held while storage is read.
//
// # Committing
//
// Commits queue up. If no goroutine works on the queue, a commit starts one. It takes the whole queue as one group,
// checks each commit against the history of writes, applies all that passed in one durable batch, publishes the result,
// and repeats this until the queue is empty. So commits that arrive during a sync share the next one, readers never
// wait for either, and an idle store runs no goroutine. (Preparing a group while the previous one is synced makes
// smaller groups. It is slower unless hundreds of commits wait.)
//
// All commits of a group have the same version. Their order within it makes their versionstamps differ.
//
// The queue is never longer than the number of waiting callers: a caller whose context ends removes its commit, unless
// the commit has begun.
package optimistic
