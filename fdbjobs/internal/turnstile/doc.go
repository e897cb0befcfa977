// Package turnstile runs many goroutines that use a store as one deterministic program: one goroutine at a time, in an
// order drawn from a seed. It is for tests.
//
// Fake time (testing/synctest) is not enough for that: which of several goroutines continues first, and which ready
// case of a select is taken, remains random. Here every goroutine that has waited for anything, or was just started,
// passes the turnstile before it does anything else: it parks under a unique name until the scheduler, [Turnstile.Run],
// draws it. The scheduler draws only when all other goroutines are parked or blocked, so exactly one goroutine runs
// between two draws, and time advances only when none is parked.
//
// # The rule
//
// A goroutine that wakes up must first pass. Which of several simultaneous events woke it is random, so it decides only
// after it has passed, by checking them in a fixed order. The same holds for the function of a timer. Events outside
// the turnstile, such as the deadline of a context, must have the same effect in any order.
//
// A wrapped store ([Turnstile.Wrap]) passes in each of its calls, where another process may run in between. From the
// inside, the order of wrappers is: the engine, faults ([settee/pkg/kv/faultkv]; one DB for each process, whose faults
// are drawn in the order of the draws here), the turnstile. The engine and the faults wait with [Turnstile.Sleep] and
// [Turnstile.Pause].
//
// # Processes
//
// A goroutine belongs to a [Process]. A process can be frozen for some time, like one that is paused or swapped out, or
// killed: each of its goroutines ends when it next passes (runtime.Goexit: deferred functions run, and nothing else).
//
//	synctest.Test(t, func(t *testing.T) {
//		gate := turnstile.New(turnstile.Options{Seed: seed})
//		store := open(t, memkv.Options{Pause: gate.Pause})
//		for i := range 3 {
//			p := gate.Process(fmt.Sprint("p", i))
//			db := gate.Wrap(faultkv.Wrap(store, faultkv.Options{
//				Seed: seed, Rates: rates, Now: time.Now, Sleep: gate.Sleep, Pause: gate.Pause,
//			}))
//			p.Go("transfer", func(ctx context.Context) { transfer(ctx, db) })
//		}
//		require.NoError(t, gate.Run(nil))
//	})
package turnstile
