// Package nodes lists the processes that share a store.
//
// Each process has a row in the store. It writes the row again every [Interval], and removes it when it stops. The
// transaction that renews a row also reads the rows of the other processes, so a [Registry] knows when each of them last
// changed. A process whose row has changed within [LiveFor] is live. The row of a process that has died stays: the
// process is known, and not live, until another one removes a row that has not changed for [ForgottenAfter].
//
// Every process measures with its own clock how long a row has stayed the same. So a process that has just started takes
// all rows for new, and all processes for live, until LiveFor has passed. A row also has the time of its process's clock.
// It says by how much clocks differ, and decides nothing.
//
// A process can be cordoned ([Registry.SetCordon]): it takes no jobs, and with a drain gives back those that it has. Any process
// can do that to another one. The cordoned one finds its cordon when it renews its row. A cordon ends
// with its process, or when the row of the process is removed. It does not belong to a name: names of processes may be generated or
// shared, so a later process with the name may be another one.
//
// Nothing else depends on the rows. If a renewal fails, the next one makes up for it.
//
// Keys, below the prefix:
//
//	(name, instance) -> JSON object: the members of Node, "renewals", the number of renewals,
//	                    and "clock", when this one began
//	(name, instance, "cordon") -> Cordon, a JSON object
//
// instance is a random text that a process draws when it starts. Several processes may have the same name.
//
// Invariants:
//
//   - A process writes only its own row. Every value that it writes differs from the one before.
//   - A cordon is written only in a transaction that conflicts with the removal of its row, and removed with the row.
//   - A process removes the row of another one only in a transaction that conflicts with a renewal of that row. If the
//     process was not dead, its next renewal writes the row again.
//   - On a store that only one process can open ([kv.Exclusive]) the first renewal removes all other rows.
package nodes
