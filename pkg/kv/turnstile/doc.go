// Package turnstile runs a program of many goroutines on a store as one
// deterministic program: one goroutine at a time, in an order drawn from a seed. It
// is for tests.
//
// Fake time (testing/synctest) alone does not do that: which of several goroutines
// goes on first, and which ready case of a select is taken, stays chance. Here every
// goroutine that has waited for anything, or that was just started, passes the
// turnstile before it does anything else: it parks there under a unique name until
// the scheduler, which is [Turnstile.Run], draws it. The scheduler draws only when all
// others are parked or blocked, so exactly one goroutine runs between two draws, and
// time passes only when nobody is parked.
//
// # The rule
//
// A goroutine that was woken does nothing but pass. What woke it, of several things
// that happened at one time, is chance: it decides by what it finds when it has
// passed, asking in a fixed order. The same holds for the function of a timer. What
// happens without the turnstile, such as the end of a context by its deadline, must
// come to the same in any order.
//
// A store that is wrapped ([Turnstile.Wrap]) passes in each of its calls, at the
// places where another process may come in between. The order of wrappers is, from
// the inside: the engine, faults ([settee/pkg/kv/faultkv]; one DB for each process,
// whose faults are then drawn in the order of the draws here), the turnstile. The
// engine and the faults wait by [Turnstile.Sleep] and [Turnstile.Pause].
//
// # Processes
//
// A goroutine belongs to a [Process], which can be frozen for some time, as one that
// is paused or swapped out, or killed: from then on each of its goroutines that passes
// ends there (runtime.Goexit: deferred functions run, and nothing else).
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
