package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// idleRunsTable is idleRuns with runs that have names.
type idleRunsTable struct {
	*testing.T
	idleRuns
	runs  map[string]*idleRun
	began time.Time
}

func newIdleRunsTable(t *testing.T) *idleRunsTable {
	return &idleRunsTable{T: t, runs: map[string]*idleRun{}, began: time.Unix(0, 0)}
}

// do does what one of these words says, so many seconds after the beginning: "idle a", "busy a", "end a", "ask a" (a is
// the run that has to be asked, none for no run), "pass".
func (s *idleRunsTable) do(second float64, what string) {
	s.Helper()
	now := s.began.Add(time.Duration(second * float64(time.Second)))
	verb, name, _ := strings.Cut(what, " ")
	run := s.runs[name]
	if run == nil {
		run = &idleRun{}
		s.runs[name] = run
	}
	switch verb {
	case "idle":
		s.idle(run, now)
	case "busy":
		s.busy(run, now)
	case "end":
		s.forget(run)
	case "pass":
		s.advance(now)
	case "ask":
		require.Equal(s, name, s.name(s.askNext(now)), "at %v", second)
	default:
		s.Fatalf("unknown: %s", what)
	}
	s.check()
}

func (s *idleRunsTable) name(run *idleRun) string {
	for name, r := range s.runs {
		if r == run {
			return name
		}
	}
	return "none"
}

// check checks that all parts agree.
func (s *idleRunsTable) check() {
	s.Helper()
	counts := map[idleState]int{}
	for _, run := range s.runs {
		counts[run.state]++
		if run.state == asked || run.state == resting {
			require.Same(s, run, s.timed[run.index])
		}
		require.Equal(s, run.state == ready, run.place != nil)
	}
	require.Equal(s, counts[ready], s.ready.Len())
	require.Equal(s, counts[asked], s.asked)
	require.Len(s, s.timed, counts[asked]+counts[resting])
	require.Equal(s, counts[ready]+counts[asked], s.free())
	require.Equal(s, counts[ready]+counts[asked]+counts[resting], s.count())
}

// in returns the names of the runs in a state, sorted.
func (s *idleRunsTable) in(state idleState) string {
	var names []string
	for name, run := range s.runs {
		if run.state == state {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestIdleRuns(t *testing.T) {
	t.Parallel()
	type step struct {
		second float64
		do     string
	}
	for _, test := range []struct {
		name                  string
		steps                 []step
		ready, asked, resting string
		next                  float64 // seconds; 0: never
	}{
		{"the longest idle one first", []step{
			{0, "idle a"}, {1, "idle b"}, {2, "idle c"}, {3, "busy a"}, {4, "idle a"}, {5, "ask b"}, {5, "ask c"}, {5, "ask a"}, {5, "ask none"},
		}, "", "a b c", "", 20},
		{"idle twice is idle once", []step{{0, "idle a"}, {1, "idle b"}, {2, "idle a"}, {3, "ask a"}}, "b", "a", "", 18},
		{"a run that ends", []step{{0, "idle a"}, {1, "idle b"}, {2, "ask a"}, {3, "end a"}, {4, "end b"}}, "", "", "", 0},
		{"a timeout", []step{{0, "idle a"}, {1, "idle b"}}, "a b", "", "", 600},
		{"a look that finds a change", []step{{0, "idle a"}, {1, "ask a"}, {2, "busy a"}, {3, "ask none"}}, "", "", "", 0},
		{"it rests when it is idle again", []step{{0, "idle a"}, {1, "ask a"}, {2, "busy a"}, {3, "idle a"}, {3, "ask none"}}, "", "", "a", 7},
		{"unless it was busy for longer", []step{{0, "idle a"}, {1, "ask a"}, {2, "busy a"}, {7, "idle a"}, {8, "ask a"}}, "", "a", "", 23},
		{"a look that fails", []step{{0, "idle a"}, {1, "ask a"}, {2, "idle a"}, {3, "pass"}}, "", "", "a", 7},
		{"after the rest it is the last one", []step{
			{0, "idle a"}, {1, "idle b"}, {1, "ask a"}, {2, "idle a"}, {7, "pass"}, {8, "ask b"},
		}, "a", "b", "", 23},
		{"a look without an answer", []step{{0, "idle a"}, {1, "ask a"}, {15, "pass"}}, "", "a", "", 16},
		{"it counts as failed after a time", []step{{0, "idle a"}, {1, "ask a"}, {16, "pass"}}, "", "", "a", 21},
		{"each rest is twice as long", []step{
			{0, "idle a"}, {0, "ask a"}, {0, "idle a"}, {5, "pass"}, {5, "ask a"}, {5, "idle a"}, {15, "pass"}, {15, "ask a"}, {15, "busy a"}, {16, "idle a"},
		}, "", "", "a", 35},
		{"it is forgotten after a time", []step{
			{0, "idle a"}, {0, "ask a"}, {0, "idle a"}, {5, "pass"}, {5, "ask a"}, {5, "busy a"}, {700, "idle a"}, {700, "ask a"}, {700, "idle a"},
		}, "", "", "a", 705},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newIdleRunsTable(t)
			for _, step := range test.steps {
				s.do(step.second, step.do)
			}
			require.Equal(t, []string{test.ready, test.asked, test.resting}, []string{s.in(ready), s.in(asked), s.in(resting)})
			want := time.Time{}
			if test.next != 0 {
				want = s.began.Add(time.Duration(test.next * float64(time.Second)))
			}
			require.Equal(t, want, s.next(10*time.Minute))
		})
	}
}

// A run that never parks is asked less and less often, up to every ten minutes.
func TestRunsThatDoNotPark(t *testing.T) {
	t.Parallel()
	s := newIdleRunsTable(t)
	s.do(0, "idle a")
	var waits []float64
	for second, last := 0., 0.; second < 10_000; second++ {
		s.do(second, "pass")
		if s.in(ready) == "a" {
			s.do(second, "ask a")
			s.do(second, "busy a")
			s.do(second, "idle a")
			waits = append(waits, second-last)
			last = second
		}
	}
	require.Equal(t, []float64{0, 5, 10, 20, 40, 80, 160, 320, 600}, waits[:9])
	require.Len(t, waits, 9+14)
}

// After any steps the parts agree, and each run that is idle comes to be ready.
func TestIdleRunsAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := newIdleRunsTable(t)
		second := 0.
		for range 500 {
			second += random.ExpFloat64() * 3
			name := fmt.Sprint(random.IntN(6))
			switch random.IntN(5) {
			case 0, 1:
				s.do(second, "idle "+name)
			case 2:
				s.do(second, "busy "+name)
			case 3:
				s.do(second, "pass")
			case 4:
				oldest := "none"
				if front := s.ready.Front(); front != nil {
					oldest = s.name(front.Value.(*idleRun))
				}
				s.do(second, "ask "+oldest)
			}
		}
		s.do(second+1_000, "pass")
		s.do(second+2_000, "pass")
		require.Empty(t, s.in(asked)+s.in(resting), "seed %d", seed)
	}
}
