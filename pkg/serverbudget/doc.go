// Package serverbudget bounds what replications ask of a server: its requests a second, its bytes a second, and its connections.
//
// A server's budget ([Limit]) is for all nodes of a store together. Each node has a part of it ([Node]), in which its jobs take
// turns. The setting [replicator.budgets] says which servers have budgets.
//
// # Within a node
//
// A request that would exceed the node's part waits in a queue ([queue]). The queue serves the owners of jobs (replicator
// databases, and users of _replicate) in proportion to their shares, and the jobs of one owner in turn. Bytes of bodies wait in the
// same way, piece by piece.
//
// A request keeps its connection until its answer was read. So a job that holds one, such as the answer of a source that it
// passes on to a target, must not wait for another one for ever: two jobs could wait for each other. Such a request fails after
// nestedPatience with [ErrConnections], and is repeated as others that fail. Feeds that wait for changes get at most half of the
// connections. When a feed has to wait for one, idle jobs are asked to park, the one first that has had its feed for longest.
//
// # Between nodes
//
// Each node says in its row of the store (package nodes) which servers it uses, with how many jobs, how much it wants, and
// the part that it has taken. It renews that row every few seconds, and reads the others. From the rows each node computes
// the same parts ([divide]): what a node wants, if that is less than what it is entitled to by its number of jobs, and the rest
// for those that want more.
//
// A node whose part becomes smaller uses the smaller one at once, and writes it with its next renewal. A node whose part
// becomes larger takes only what the rows of the others leave. The transaction that writes its row conflicts with their
// renewals. So the parts in use never add up to more than the limit, also while nodes come, go and disagree.
//
// Failure cases:
//
//   - The result of a renewal is unknown: the node uses the smaller part, until it has read its row again.
//   - A node dies: its part is used again when its row has not changed for LiveFor.
//   - A node cannot reach the store: it keeps its last part, and so do the others. If only one node cannot reach it, then the others
//     take its part after LiveFor, while it runs its jobs until these are lost to it, for up to their activity timeout.
//   - The limit is lowered: each node keeps to its part of the new limit as soon as it has read the settings.
//   - A store that only one process can open (package kv, Exclusive) has no other rows: its node has the whole budget.
package serverbudget
