// Package fire proves a whole cluster on real parts, while they are killed, frozen, restarted and cut off: three
// fdbservers that keep each datum twice, on disk; two api_frontend nodes and three replication nodes, processes
// of the real program; two CouchDBs; some hundred jobs; writers that write into their sources, and clients that
// post to _replicate and wait. It is a test alone, with a tag of its own because it needs the machine for
// itself: what it says about time is about the cluster only if nothing else runs.
//
//	make fire                    about three minutes
//	make fire FIRE=1h SEED=7     longer, and with another seed
//
// All that happens to the cluster is a plan that is made of the seed (type blow). The moments at which processes get
// to work are not in it, so a seed that failed fails again only if these do not matter.
//
// # How processes are told apart
//
// Each node has a network namespace of its own. All that is outside of it the node reaches on its own loopback, through
// relays of the test: the fdbservers by their own addresses, the CouchDBs and the frontends by three ports. So the
// test knows which process a request comes from, may cut a node off from the store alone (a rule of nftables drops its
// packets), and all definitions of jobs have the same URLs on all nodes. Where there are no namespaces, for want of
// root or of nftables, the nodes run side by side, are told apart by the owners of their sockets, and are
// frozen instead of cut off.
//
// # What is shown
//
//   - Every document whose write was acknowledged is in its source, and in every target that it belongs to, with the
//     same revisions.
//   - Every job exists once, in one state; every POST that was answered was answered truthfully.
//   - Once another process had taken a job, the first one wrote nothing for it: neither documents nor
//     checkpoints. What a process was sending at the moment when it was frozen comes when it goes on, within a
//     second; nobody but the endpoint could refuse that. Such writes are counted. They do no harm: revisions are
//     the same whoever writes them, and a checkpoint of an old revision is a conflict.
//   - A continuous job between CouchDBs whose node was killed, frozen or cut off ran on a sound node within the activity
//     timeout and five seconds, counted anew while the store does not answer promptly.
//   - What the replication documents say and what _scheduler/docs says agree.
//   - No log has a credential: no password, no cookie.
//
// The store is looked at directly: several times a second the test reads which process runs which job, and commits
// something, to know when the store could be written to.
package fire
