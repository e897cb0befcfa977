// Package script runs JavaScript functions of users, with bounds on their memory and time.
//
// A [Program] is a source text that evaluates to a function, which is called once, with the program's configuration, and
// returns another function. [Engine.Call] calls that one, with a JSON text as its argument. It returns the result as a
// string. The language is ECMAScript 2023 without modules, promises, proxies and typed arrays. There is no way out: no
// files, no network, no timers, no other program.
//
// # Engine
//
// The engine is QuickJS, compiled to WebAssembly (quickjs.wasm, a file of the npm package quickjs-wasi) and run by
// wazero, so there is no C. A flaw in the engine stays within the memory of the program that uses it. The functions of
// Go that the engine may call are listed in sandbox.go: they return the time and random bytes, and end what takes too
// long.
//
// The engine is compiled for the processor when it is first used, or by [WarmUp], which takes 0.6 s. For processors
// other than amd64 and arm64 wazero interprets it, which is slow.
//
// # Bounds
//
// A program has an instance of the engine, a runtime, of its own. All its memory is one range of addresses of a fixed
// size ([Limits].Memory), and pages are added to it as they are needed. Allocation without end fails there, and the rest
// of the process does not notice. Nested calls have a bound of their own.
//
// Time ([Limits].Time) is checked in every loop of the engine's code, when a counter has run down. So loops inside the
// engine's own functions end too, such as a regular expression that backtracks, or a search in a long text. The counter
// is added to the module before it is compiled (meter.go). It also gives the collector of the process its turn, which
// could not begin while compiled code ran.
//
// # State
//
// A runtime is set up once and used for any number of calls, one at a time. After a call its memory is again what it was
// after the set-up: a call does not see what an earlier one did to global variables, to prototypes or to its own
// function. A runtime is closed after a call that failed, or that needed much memory, or if its program needs more than
// 4 MB after the set-up. Two programs share nothing. A program is known by its key; the caller makes sure that programs
// of different owners have different keys.
//
// Runtimes that are not in use are kept for a while. Their number and the number of running ones have one bound
// ([Limits].Instances); the runtime that was unused for longest makes room. One takes about 0.7 ms to set up, and
// 0.7 MB, or up to 1 MB more after a call that used as much.
//
// # Places
//
// A call needs a place, of which there are about as many as processors (engine.go). Owners take turns (package turns). A
// call is small at first: it may make some passes through loops, and have an eighth of [Limits].Memory. If it needs more it
// is ended, and begun again in one of the few places for large calls, with all of [Limits]. So small calls do not wait
// for large ones, and programs must have no effects. A program that has repeatedly run out of time or memory is refused
// for a while (breaker.go).
//
// [Reserve] is called before memory is used, for the memory that a call may have, until its end. A runtime that is kept
// afterwards has at most keptMost bytes, which are not reserved.
package script
