// Stress runs each test many times while it takes processors away from them, until the first failure. It is run by
//
//	make stress PKGS=./fdbjobs [STRESS_FLAGS="-n 20 -run Claim"]
//
// Each test runs in processes of its own, -copies of them at a time, which is more than there are processors: tests of
// several packages slow each other down, and none can rely on its turn. A process runs its test -n times with one
// processor and -n times with all of them (GOMAXPROCS), under the race detector. The order of the tests, and the first
// seed of a test that has seeds (SETTEE_FIRST_SEED), follow from -seed.
//
// It prints a line for each package whose tests have ended. When a test fails, it prints what the test has printed,
// the seed, and the command that repeats that run, ends the other processes, and exits with 1. With -keep-going it
// runs all tests, and prints each failure when it happens and a list of them at the end.
//
// It builds the test programs in a temporary directory, about 60 MB for each package.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// options are what the flags say.
type options struct {
	n, copies int
	seed      uint64
	run, tags string
	timeout   time.Duration
	race      bool
	keepGoing bool
}

func (o *options) register(f *flag.FlagSet) {
	f.IntVar(&o.n, "n", 10, "how often each test runs, with one processor and with all")
	f.IntVar(&o.copies, "copies", 4*runtime.NumCPU(), "tests that run at a time")
	f.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano())%1_000_000, "the order of the tests, and their first seed")
	f.StringVar(&o.run, "run", ".", "only tests whose names match this `regexp`")
	f.StringVar(&o.tags, "tags", "", "build `tags`")
	f.DurationVar(&o.timeout, "timeout", 30*time.Minute, "how long all runs of one test may take")
	f.BoolVar(&o.race, "race", true, "use the race detector")
	f.BoolVar(&o.keepGoing, "keep-going", false, "do not stop at the first failure")
}

func main() {
	var o options
	o.register(flag.CommandLine)
	flag.Parse()
	if flag.NArg() == 0 || o.n < 1 || o.copies < 1 {
		fmt.Fprintln(os.Stderr, "stress: name packages; -n and -copies are at least 1")
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := stress(ctx, o, flag.Args(), os.Stdout)
	stop()
	if err != nil {
		if !errors.Is(err, errFailed) {
			fmt.Fprintf(os.Stderr, "stress: %v\n", err)
		}
		os.Exit(1)
	}
}
