//go:build !race

// One goroutine at a time runs in these simulations: there are no races.

package fdbjobs_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/seeds"
	"settee/internal/testkit"
)

var (
	simSeed  = flag.Int64("sim.seed", -1, "run the simulation of this seed alone, and print its trace")
	simTrace = flag.String("sim.trace", "", "with -sim.seed: write the trace to this file")
)

// TestSimulation runs many processes as one deterministic program, on a store with all faults, with processes that die
// and freeze, and checks after each commit what the package promises (simulation_ledger_test.go). Everything is drawn
// from the seed.
func TestSimulation(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	if *simSeed >= 0 {
		replay(t, uint64(*simSeed))
		return
	}
	var all totals
	ran := seeds.Each(t, 0, 50, func(t *testing.T, seed uint64) {
		s := simulate(t, seed)
		all.add(s)
		if s.failure != "" {
			t.Errorf("seed %d: %s\n\nreplay: go test ./fdbjobs -run '^TestSimulation$' -sim.seed=%d\n\n%s",
				seed, s.failure, seed, s.trace.tail(60))
		}
	})
	t.Log(&all)
	if !t.Failed() && ran >= 50 {
		all.check(t)
	}
}

// TestSimulationRepeats: the same seed makes the same trace, to the byte.
func TestSimulationRepeats(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	for seed := range uint64(5) {
		var traces [2]bytes.Buffer
		for i := range traces {
			simulate(t, seed).trace.writeTo(&traces[i])
		}
		if !bytes.Equal(traces[0].Bytes(), traces[1].Bytes()) {
			assert.Fail(t, "two traces of one seed", "seed %d: %s", seed, firstDifference(traces[0].Bytes(), traces[1].Bytes()))
		}
	}
}

func replay(t *testing.T, seed uint64) {
	s := simulate(t, seed)
	var text bytes.Buffer
	s.trace.writeTo(&text)
	if *simTrace != "" {
		require.NoError(t, os.WriteFile(*simTrace, text.Bytes(), 0o600))
	} else {
		_, _ = os.Stdout.Write(text.Bytes())
	}
	if s.failure != "" {
		t.Errorf("seed %d: %s", seed, s.failure)
	}
}

// simulate runs the simulation of one seed.
func simulate(t *testing.T, seed uint64) (s *simulation) {
	synctest.Test(t, func(t *testing.T) {
		s = newSimulation(t, seed)
		s.run()
	})
	return s
}

// totals are the events of all simulations: a simulation in which nothing goes wrong checks nothing.
type totals struct {
	mu     sync.Mutex
	seeds  int
	counts map[string]int
}

func (c *totals) add(s *simulation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.seeds++
	c.counts["draws"] += s.draws
	for what, n := range s.counts {
		c.counts[what] += n
	}
}

func (c *totals) String() string { return fmt.Sprintf("%d seeds: %v", c.seeds, c.counts) }

func (c *totals) check(t *testing.T) {
	for _, what := range []string{
		"actors", "adds", "hastened", "paused", "added to a running job", "removed while running", "claims", "finishes", "resubmits", "updates",
		"requeues", "halts", "kills", "freezes", "waits", "waits for none", "lost", "cancelled accepts",
		"delayed, wake nobody", "expired", "rederived", "another timeout", "last words", "shared", "failed alone",
		"conflict", "committed, reported unknown", "not committed, reported unknown", "transaction too old", "delay",
		"lost watch", "late watch", "spurious watch",
	} {
		assert.GreaterOrEqual(t, c.counts[what], c.seeds/50, what)
	}
}

// trace is what happened in a simulation. It is formatted only on demand.
type trace struct {
	began  time.Time
	events []event
	ended  bool
}

type event struct {
	at           time.Time
	actor, where string
	what         fmt.Stringer // may be nil
}

func (tr *trace) add(actor, where string, what fmt.Stringer) {
	if !tr.ended {
		tr.events = append(tr.events, event{time.Now(), actor, where, what})
	}
}

type words string

func (w words) String() string { return string(w) }

func (tr *trace) writeTo(b *bytes.Buffer) {
	for _, e := range tr.events {
		tr.write(b, e)
	}
}

func (tr *trace) write(b *bytes.Buffer, e event) {
	fmt.Fprintf(b, "%-14s %s: %s", e.at.Sub(tr.began), e.actor, e.where)
	if e.what != nil {
		fmt.Fprintf(b, " %s", e.what)
	}
	b.WriteByte('\n')
}

// tail returns the last lines.
func (tr *trace) tail(n int) string {
	var b bytes.Buffer
	for _, e := range tr.events[max(0, len(tr.events)-n):] {
		tr.write(&b, e)
	}
	return b.String()
}

func firstDifference(a, b []byte) string {
	linesA, linesB := bytes.Split(a, []byte("\n")), bytes.Split(b, []byte("\n"))
	for i := range min(len(linesA), len(linesB)) {
		if !bytes.Equal(linesA[i], linesB[i]) {
			return fmt.Sprintf("line %d:\n%s\n%s\nafter\n%s", i+1, linesA[i], linesB[i],
				bytes.Join(linesA[max(0, i-10):i], []byte("\n")))
		}
	}
	return fmt.Sprintf("%d and %d lines", len(linesA), len(linesB))
}
