// Package seeds runs tests that depend on a seed: for a few seeds by default, and for any number
// on request.
//
//	SETTEE_SEEDS=100000       that many seeds
//	SETTEE_SEEDS=1h           as many seeds as fit into this time
//	SETTEE_FIRST_SEED=7       the first seed; the others follow it
//
// Tests whose cases have no seeds of their own run a fifth of them by default:
//
//	SETTEE_ROUNDS=all         all of them, as make nightly does
//
// Under the race detector, which makes them several times slower, both kinds run a third of their default.
//
// To replay a failure, set SETTEE_SEEDS=1 and SETTEE_FIRST_SEED to the seed. make soak sets the
// first variable and shows the last line of each test.
package seeds

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"settee/internal/testkit"
)

// The environment variables that the package reads.
const (
	CountVariable  = "SETTEE_SEEDS"
	FirstVariable  = "SETTEE_FIRST_SEED"
	RoundsVariable = "SETTEE_ROUNDS"
)

// maxFailures is how many seeds may fail before a test stops.
const maxFailures = 3

// plan says which seeds to run.
type plan struct {
	first uint64
	count uint64        // 0 for any number
	time  time.Duration // how long to start seeds, if count is 0
}

// read returns the plan in the environment. The default is usual seeds from first on.
func read(first uint64, usual int) (plan, error) {
	p := plan{first: first, count: uint64(usual)}
	if text := os.Getenv(FirstVariable); text != "" {
		var err error
		if p.first, err = strconv.ParseUint(text, 10, 64); err != nil {
			return plan{}, fmt.Errorf("%s=%s is not a seed, a whole number", FirstVariable, text)
		}
	}
	text := os.Getenv(CountVariable)
	if text == "" {
		return p, nil
	}
	count, notCount := strconv.ParseUint(text, 10, 64)
	duration, notTime := time.ParseDuration(text)
	switch {
	case notCount == nil && count > 0:
		p.count = count
	case notTime == nil && duration > 0:
		p.count, p.time = 0, duration
	default:
		return plan{}, fmt.Errorf("%s=%s is neither a number of seeds nor a time, such as 1h", CountVariable, text)
	}
	return p, nil
}

// has reports whether to start the seed with an index, from 0, after some time. The first one is
// always started.
func (p plan) has(index uint64, after time.Duration) bool {
	if p.count > 0 {
		return index < p.count
	}
	return index == 0 || after < p.time
}

// Each runs a test for each seed, as subtests, as many at a time as there are processors: usual
// seeds from first on, unless the race detector is on or the environment says otherwise. It stops
// after maxFailures failures, and returns how many have ended. A test whose seeds decide everything may require that
// something has happened for one of its usual seeds. Where the order of goroutines decides, too, it may do so only after
// ten times as many seeds as have always been enough, as make nightly runs them.
func Each(t *testing.T, first uint64, usual int, test func(t *testing.T, seed uint64)) uint64 {
	t.Helper()
	p, err := read(first, underRace(usual))
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	began := time.Now()
	var begun, ended, failed atomic.Uint64
	t.Run("seeds", func(t *testing.T) {
		for part := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
				t.Parallel()
				for failed.Load() < maxFailures {
					index := begun.Add(1) - 1
					if !p.has(index, time.Since(began)) {
						return
					}
					seed := p.first + index
					if !t.Run(fmt.Sprint(seed), func(t *testing.T) { test(t, seed) }) {
						failed.Add(1)
						t.Logf("replay: %s=1 %s=%d go test -run '^%s$'", CountVariable, FirstVariable, seed, name)
					}
					ended.Add(1)
				}
			})
		}
	})
	t.Logf("%d seeds from %d on, of which %d failed, in %s", ended.Load(), p.first, failed.Load(), time.Since(began).Round(time.Millisecond))
	return ended.Load()
}

// underRace returns how many of n cases run under the race detector: a third, or all if it is off.
func underRace(n int) int {
	if testkit.Race {
		return (n + 2) / 3
	}
	return n
}

// Rounds returns how many of n rounds a test runs: a fifth, a third of that under the race detector, or all if the
// environment says so. It is for tests where n counts cases that are alike, of which a fifth shows nearly always what all
// would show.
func Rounds(t testing.TB, n int) int {
	t.Helper()
	rounds, err := readRounds(n)
	if err != nil {
		t.Fatal(err)
	}
	return rounds
}

func readRounds(n int) (int, error) {
	switch all, err := readAll(); {
	case err != nil:
		return 0, err
	case all:
		return n, nil
	default:
		return underRace((n + 4) / 5), nil
	}
}

// All reports whether the environment asks for all rounds. It is for tests of which a part has nothing that the others do
// not have.
func All(t testing.TB) bool {
	t.Helper()
	all, err := readAll()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func readAll() (bool, error) {
	switch text := os.Getenv(RoundsVariable); text {
	case "", "all":
		return text == "all", nil
	default:
		return false, fmt.Errorf(`%s=%s is not "all"`, RoundsVariable, text)
	}
}
