//go:build !race

package fdbjobs_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/fdbjobs/internal/turnstile"
	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/memkv"
)

// simulation is one run of the program.
type simulation struct {
	t      *testing.T
	gate   *turnstile.Turnstile
	store  kv.Database // without faults or turnstile
	ledger *ledger
	trace  trace
	plan   plan

	// One goroutine at a time uses these fields: the one that was drawn, or the scheduler between two draws.
	random    *rand.Rand    // for draws of the program
	chaos     *rand.Rand    // for draws between
	processes []*simProcess // alive
	spawned   int
	draws     int
	names     int
	main      *turnstile.Process
	draining  bool // no more additions or deaths
	over      bool
	failure   string
	counts    map[string]int
	waiters   []*waiting // the longest waiting first
	monitors  []*monitoring
	looked    time.Time // when lookForLate was last called
}

// derivedQueue is the name of the queue with a derivation.
const derivedQueue = "work"

// otherQueue is the name of the other queue. It is not listed in half of the simulations.
const otherQueue = "play"

// plan is the kind of a simulation.
type plan struct {
	processes, actors int
	creating          time.Duration
	queues            []string
	ids, owners       int
	timeouts          []time.Duration // of processes
	rates             faultkv.Rates
	reads             float64
	clocks            time.Duration // how far the clocks of two processes may differ
	shared            int           // transactions under way before a holder waits for one to share
	later             int           // seconds for which a job is delayed at most
	kill, freeze      float64       // for each draw
	unlisted          bool          // otherQueue
}

// derive returns what follows from the jobs of the queues.
func (p plan) derive() map[string]fdbjobs.Derivation {
	all := derived(derivedQueue).Derive
	if p.unlisted {
		all[otherQueue] = fdbjobs.Derivation{Unlisted: true}
	}
	return all
}

func (p plan) String() string {
	return fmt.Sprintf("%d processes, %d actors, %d ids, %d owners, timeouts %v, clocks %v apart, unlisted %t",
		p.processes, p.actors, p.ids, p.owners, p.timeouts, p.clocks, p.unlisted)
}

func newPlan(r *rand.Rand) plan {
	p := plan{
		processes: 1 + r.IntN(8),
		actors:    20 + int(280*math.Pow(r.Float64(), 6)),
		creating:  time.Duration(10+r.IntN(30)) * time.Second,
		queues:    []string{derivedQueue, otherQueue},
		ids:       4 + r.IntN(60),
		owners:    1 + r.IntN(6),
		timeouts:  []time.Duration{time.Duration(6+r.IntN(10)) * time.Second},
		rates:     faultkv.Rates{},
		reads:     0.2 * r.Float64(),
		shared:    1 + r.IntN(2),
		kill:      r.Float64() / 600,
		freeze:    r.Float64() / 600,
	}
	p.clocks = []time.Duration{0, 15 * time.Second, 5 * time.Minute}[r.IntN(3)]
	if r.IntN(3) == 0 {
		p.timeouts = append(p.timeouts, time.Duration(6+r.IntN(20))*time.Second)
	}
	p.later = []int{15, 100}[r.IntN(2)]
	// Some seeds have few faults: the retry of another fault may hide a bug.
	much := r.Float64()
	for fault, most := range []float64{
		faultkv.Conflict: 0.1, faultkv.UnknownCommitted: 0.2, faultkv.UnknownNotCommitted: 0.1, faultkv.TooOld: 0.02,
		faultkv.Delay: 0.1, faultkv.LostWatch: 0.3, faultkv.LateWatch: 0.2, faultkv.SpuriousWatch: 0.2,
	} {
		if fault != int(faultkv.None) {
			p.rates[faultkv.Fault(fault)] = most * much * r.Float64()
		}
	}
	p.unlisted = r.IntN(2) == 0
	return p
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	s := &simulation{
		t: t, random: rand.New(rand.NewPCG(seed, 1)), chaos: rand.New(rand.NewPCG(seed, 2)),
		counts: map[string]int{}, trace: trace{began: time.Now()},
	}
	s.plan = newPlan(rand.New(rand.NewPCG(seed, 3)))
	s.gate = turnstile.New(turnstile.Options{Seed: seed, Reads: s.plan.reads, Observe: func(e turnstile.Event) {
		if e.Dead {
			s.trace.add(e.Name, e.At, words("ends"))
			return
		}
		s.trace.add(e.Name, e.At, nil)
	}})
	store, err := memkv.Open(memkv.Options{Pause: s.gate.Pause})
	require.NoError(t, err)
	s.store = store
	s.ledger = newLedger(s)
	return s
}

// simProcess is a process of the program.
type simProcess struct {
	*turnstile.Process
	db        kv.Database
	queues    []*fdbjobs.Queue
	ahead     time.Duration // of its clock
	disturbed time.Time     // until when it was frozen at least once
}

// now is the time that the clock of the process shows.
func (p *simProcess) now() time.Time { return time.Now().Add(p.ahead) }

// spawn starts a process. The caller starts its goroutines.
func (s *simulation) spawn() *simProcess {
	s.spawned++
	p := &simProcess{Process: s.gate.Process(fmt.Sprint("p", s.spawned))}
	p.ahead = time.Duration(s.chaos.Int64N(int64(s.plan.clocks)+1)) - s.plan.clocks/2
	p.db = s.gate.Wrap(faultkv.Wrap(&recorded{s.store, s.ledger}, faultkv.Options{
		Seed: s.chaos.Uint64(), Rates: s.plan.rates, Now: time.Now, Sleep: s.gate.Sleep, Pause: s.gate.Pause,
		Observe: func(e faultkv.Event) {
			s.counts[e.Fault.String()]++
			s.trace.add(p.String(), "fault:", e)
		},
	}))
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], s.chaos.Uint64())
	timeout := s.plan.timeouts[s.chaos.IntN(len(s.plan.timeouts))]
	if timeout != s.plan.timeouts[0] {
		s.counts["another timeout"]++
	}
	layer := fdbjobs.Open(p.db, prefix, fdbjobs.Options{Seed: seed, Now: p.now, Timeout: timeout, Derive: s.plan.derive()})
	layer.SetTurnstile(&names{process: p.Process, given: map[string]int{}})
	p.Cleanup(layer.Close)
	for _, name := range s.plan.queues {
		queue := layer.Queue(name)
		queue.ShareAtOnce(s.plan.shared)
		p.queues = append(p.queues, queue)
	}
	s.processes = append(s.processes, p)
	return p
}

// names is the turnstile of a layer. It numbers the goroutines of one name. They do the same, so it does not matter
// which of several that begin at one time is which.
type names struct {
	process *turnstile.Process
	mu      sync.Mutex
	given   map[string]int
}

func (n *names) Name(ctx context.Context, name string) context.Context {
	key := turnstile.NameOf(ctx) + "/" + name
	n.mu.Lock()
	n.given[key]++
	number := n.given[key]
	n.mu.Unlock()
	return n.process.Name(ctx, fmt.Sprint(name, " ", number))
}

func (n *names) Pass(ctx context.Context) { turnstile.Pass(ctx, "waited") }

func (s *simulation) run() {
	s.main = s.gate.Process("main")
	s.main.Go("program", s.program)
	if err := s.gate.Run(s.between); err != nil {
		s.fail("%v", err)
		s.end()
		_ = s.gate.Run(nil)
	}
	require.NoError(s.t, s.store.Close())
}

// program is the course of the whole simulation.
func (s *simulation) program(ctx context.Context) {
	s.trace.add("main", "plan:", s.plan)
	left := s.plan.actors
	for range s.plan.processes {
		p := s.spawn()
		n := left / (s.plan.processes - s.spawned + 1)
		left -= n
		s.populate(p, n)
		if s.spawned <= 2 {
			s.deriver(p, p.queues[0])
		}
	}
	s.gate.Sleep(ctx, s.plan.creating)
	s.draining = true
	s.trace.add("main", "draining", nil)
	last := s.spawn()
	for _, queue := range last.queues {
		s.monitor(last, queue)
		s.resumer(last, queue)
		for range 3 {
			s.acceptor(last, queue)
		}
	}
	for ended := time.Now().Add(30 * time.Minute); !s.ledger.drained(); s.gate.Sleep(ctx, time.Second) {
		if time.Now().After(ended) {
			s.fail("after half an hour there is still %s", s.ledger.left())
			return
		}
	}
	for ended := time.Now().Add(time.Minute); len(s.waiters) > 0; s.gate.Sleep(ctx, time.Second) {
		if time.Now().After(ended) {
			s.fail("all jobs are finished, and was not told: %s", s.waiters[0])
			return
		}
	}
	s.ledger.checkAll()
	s.over = true
}

// between is what happens between two draws.
func (s *simulation) between() {
	s.draws++
	if s.failure != "" || s.over {
		s.end()
		return
	}
	s.ledger.lookForLate()
	if s.draining || len(s.processes) == 0 {
		return
	}
	switch u := s.chaos.Float64(); {
	case u < s.plan.kill:
		i := s.chaos.IntN(len(s.processes))
		s.kill(s.processes[i])
		s.populate(s.spawn(), 3+s.chaos.IntN(min(10, s.plan.actors/s.plan.processes)))
	case u < s.plan.kill+s.plan.freeze:
		s.freeze(s.processes[s.chaos.IntN(len(s.processes))])
	}
}

func (s *simulation) kill(p *simProcess) {
	s.counts["kills"]++
	s.trace.add(p.String(), "is killed", nil)
	s.processes = slices.DeleteFunc(s.processes, func(q *simProcess) bool { return q == p })
	s.waiters = slices.DeleteFunc(s.waiters, func(w *waiting) bool { return w.process == p })
	p.Kill()
}

// freeze stops a process for a while: mostly for less than a transaction may take, and sometimes for longer than a
// timeout.
func (s *simulation) freeze(p *simProcess) {
	d := time.Duration(s.chaos.Int64N(int64(2 * time.Second)))
	switch s.chaos.IntN(4) {
	case 0:
		d *= 5
	case 1:
		d *= 20
	}
	s.counts["freezes"]++
	s.trace.add(p.String(), "is frozen for", d)
	if until := time.Now().Add(d); until.After(p.disturbed) {
		p.disturbed = until
	}
	for _, w := range s.waiters {
		if w.process == p && !w.due.IsZero() {
			w.due = w.due.Add(d)
		}
	}
	p.Freeze(d)
}

func (s *simulation) end() {
	for _, p := range s.processes {
		p.Kill()
	}
	s.processes = nil
	s.main.Kill()
}

// fail ends the simulation. The first failure counts.
func (s *simulation) fail(format string, args ...any) {
	if s.failure == "" {
		s.failure = fmt.Sprintf(format, args...)
		s.trace.add("main", "failed:", words(s.failure))
		s.trace.ended = true // the end of the trace has no meaning
	}
}

func (s *simulation) intN(n int) int { return s.random.IntN(n) }

// upTo draws a duration.
func (s *simulation) upTo(most time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(most)))
}

// name draws the name of a goroutine.
func (s *simulation) name(kind string) string {
	s.names++
	return fmt.Sprint(kind, " ", s.names)
}
