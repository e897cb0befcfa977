// Package faultkv makes faults, from a seed or from a script, around any engine
// of package kv. It is for the tests of whatever is built on a store.
//
// A [DB] keeps the contract of package kv: all that it does to its callers, they
// have to expect of any engine. It never says that a commit failed which was made,
// gives each run of a function its own outcome, and passes on what the engine
// below does by itself. Without rates and without a script it changes nothing.
//
// # Each call under "committed, but reported unknown"
//
// With [UnknownOnce] every transaction runs once more after its commit. A layer
// whose tests pass on it recognizes its own commits:
//
//	db := faultkv.Wrap(store, faultkv.Options{Script: faultkv.UnknownOnce})
//	accounts := bank.Open(db)
//	require.NoError(t, accounts.Deposit(ctx, "alice", 10))
//	require.Equal(t, 10, accounts.Balance(ctx, "alice"))
//
// An operation of several transactions is taken through each of its commits in
// turn with [At], until there is no further one:
//
//	for n := 1; ; n++ {
//		db := faultkv.Wrap(open(t), faultkv.Options{
//			Script: faultkv.At(faultkv.Commit, n, faultkv.UnknownCommitted),
//		})
//		scenario(t, db)
//		if db.Calls(faultkv.Commit) < n {
//			break
//		}
//	}
//
// # Faults from a seed
//
// [Options].Rates gives each fault a probability:
//
//	db := faultkv.Wrap(store, faultkv.Options{
//		Seed:    seed,
//		Rates:   faultkv.Rates{faultkv.Conflict: 0.05, faultkv.UnknownCommitted: 0.1, faultkv.Delay: 0.2},
//		Observe: func(e faultkv.Event) { t.Log(e) },
//	})
//
// A fault is drawn at the call that it hits: the read, the commit, the watch.
// Every call takes the same number of draws whether a fault comes of it or not, so
// the same seed and the same order of calls make the same faults, and a rate that
// changes no calls, such as that of Delay, can be changed without moving the
// others. Where several goroutines use the store, their order is part of the
// input: a simulation that releases one of them at a time, as package turnstile does,
// replays from the seed. What such a simulation has to give is [Options].Sleep and
// Pause, the latter to the engine too: the pauses between the runs of a transaction
// are drawn from no seed otherwise ([kv.Retrier]).
package faultkv
