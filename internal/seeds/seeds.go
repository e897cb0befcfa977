// Package seeds runs tests whose course a seed decides, for a few seeds each time and for very many when asked:
//
//	SETTEE_SEEDS=100000       so many seeds instead of the usual number
//	SETTEE_SEEDS=1h           as many seeds as this time allows
//	SETTEE_FIRST_SEED=7       the first of them; the others follow it
//
// A seed that fails is replayed with SETTEE_SEEDS=1 and the seed as SETTEE_FIRST_SEED. make soak sets the first
// variable, and shows the line that each test prints at its end.
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
)

// The environment variables that the package reads.
const (
	CountVariable = "SETTEE_SEEDS"
	FirstVariable = "SETTEE_FIRST_SEED"
)

// maxFailures is how many seeds may fail before a test gives up.
const maxFailures = 3

// plan says which seeds are run.
type plan struct {
	first uint64
	count uint64        // 0 for any number
	time  time.Duration // in which seeds are begun, if count is 0
}

// read makes a plan of the environment. Without it there are usual seeds, from first on.
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

// has reports whether the seed at a place, from 0, is begun after some time. The first one always is.
func (p plan) has(place uint64, after time.Duration) bool {
	if p.count > 0 {
		return place < p.count
	}
	return place == 0 || after < p.time
}

// Each runs a test for each seed, as subtests, as many at a time as there are processors: usual seeds from first on,
// unless the environment says otherwise. It gives up after three seeds that fail, and returns when all have ended.
func Each(t *testing.T, first uint64, usual int, test func(t *testing.T, seed uint64)) {
	t.Helper()
	p, err := read(first, usual)
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
					place := begun.Add(1) - 1
					if !p.has(place, time.Since(began)) {
						return
					}
					seed := p.first + place
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
}
