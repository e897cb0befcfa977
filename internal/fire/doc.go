// Package fire tests a whole cluster of real parts while they are killed, frozen, restarted and
// cut off: three fdbservers that store all data twice, on disk; two api_frontend nodes and three
// replication nodes, processes of the real program; two CouchDBs; some hundred jobs, more than the
// nodes have slots, most of which are parked most of the time; writers that write to their sources,
// often to some and seldom to most; a mirror of one CouchDB at the other one, where databases are created; and clients that
// post to _replicate and wait. The test has a
// build tag of its own because it needs the machine for itself: other load would distort the times
// that it measures.
//
//	make fire                    about three minutes
//	make fire FIRE=1h SEED=7     longer, and with another seed
//
// TestRolling replaces the nodes one after the other instead: see roll_test.go.
//
// The seed determines the plan of all faults (type fault). It does not determine how processes
// are scheduled, so a failure may not repeat with the same seed.
//
// # How processes are told apart
//
// Each node has a network namespace of its own. It reaches everything outside on its own
// loopback, through relays of the test: the fdbservers by their own addresses, the CouchDBs and
// the frontends by three ports. So the test knows which process sends a request, can cut a node
// off from the store alone (a rule of nftables drops its packets), and all definitions of jobs
// have the same URLs on all nodes. Without namespaces, for lack of root or of nftables, the nodes
// run side by side, the owners of their sockets identify them, and they are frozen instead of cut
// off.
//
// # What is tested
//
//   - Every document whose write was acknowledged is in its source, and in every target that it
//     belongs to, with the same revisions.
//   - Parked jobs are woken: from the _db_updates of one CouchDB and of the frontends, and by questions
//     to the other CouchDB, which has no feed. Nothing else would wake them during the test.
//   - Every job exists once, in one state. Every response to a POST was true.
//   - After another process had taken a job, the first one wrote neither documents nor
//     checkpoints for it. The exception is a request that a process was sending when it was
//     frozen: the process sends the rest within a second after it continues. Such requests are
//     counted. They do no harm: a revision is the same whichever process writes it, and a
//     checkpoint with an old _rev is refused as a conflict.
//   - A continuous job between CouchDBs that was woken, or whose node was killed, frozen or cut off,
//     ran on a healthy node within the activity timeout and five seconds. That time starts anew while
//     the store does not answer promptly, and while no healthy node has a free slot.
//   - The mirror has a job for each database, and copies those that are created while the node that runs it is killed, frozen or
//     cut off.
//   - Documents of the frontends are linearizable: single reads and writes, deletions and _bulk_docs by clients of both frontends
//     have an order in which each answer is true (porcupine), a document has one leaf, and a value one revision.
//   - A replication's document and its state in _scheduler/docs never contradict each other, whichever frontends are asked.
//   - The replication documents agree with _scheduler/docs.
//   - A session is known to every frontend that answers.
//   - In a rolling upgrade nodes hand their jobs over when they stop: none is left to the activity monitor. Before a frontend
//     closes its port its /_up answers 404. A POST to _replicate that waits there gets 503, and waits for the same job at the
//     other frontend. Feeds end with their last sequence, from which clients follow all changes at the other frontend. No
//     other answer has a status from 500 on.
//   - No log contains a password or a cookie.
//   - settee check finds no fault in the store.
//
// The test also reads the store directly, several times a second, to see which process runs which
// job, and commits a transaction each time, to know when the store accepts writes.
package fire
