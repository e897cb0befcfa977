// Package faultkv adds faults, from a seed or a script, to any engine of package kv. It is for tests of what is built
// on a store.
//
// A [DB] keeps the contract of package kv: its callers must expect all its faults from any engine. It never reports
// that a commit failed if it was made, gives each run of a function its own outcome, and passes on what the inner
// engine does. Without rates and script it changes nothing.
//
// # Each commit made, but reported unknown
//
// With [UnknownOnce] every transaction runs once more after its commit. A layer whose tests pass recognizes its own
// commits:
//
//	db := faultkv.Wrap(store, faultkv.Options{Script: faultkv.UnknownOnce})
//	accounts := bank.Open(db)
//	require.NoError(t, accounts.Deposit(ctx, "alice", 10))
//	require.Equal(t, 10, accounts.Balance(ctx, "alice"))
//
// To test an operation of several transactions, use [At] for each of its commits in turn, until there are no more:
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
// A fault is drawn at the call that it hits: the read, the commit, the watch. Every call draws the same number of
// random values, whether or not a fault results. So the same seed and the same order of calls give the same faults, and
// a rate that does not affect the calls, such as the rate of Delay, can be changed without affecting the others. If several
// goroutines use the store, their order matters too. A simulation that runs one of them at a time, as fdbjobs
// does, can be replayed from the seed. It must set [Options].Sleep and Pause, and Pause of the engine too, because the
// pauses between the runs of a transaction are otherwise random ([kv.Retrier]).
package faultkv
