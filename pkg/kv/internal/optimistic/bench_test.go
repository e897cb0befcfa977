package optimistic

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"settee/pkg/kv"
)

// BenchmarkConflictCheck checks and records a commit that read two keys and a
// range and wrote two keys, after a number of commits: all within the window,
// or spread so that a thousand of them are. The ratio is to the same after a
// thousand commits.
func BenchmarkConflictCheck(b *testing.B) {
	const most = 1_000_000
	keys := make([]string, 4*most)
	random := rand.New(rand.NewPCG(1, 1))
	for i := range keys {
		keys[i] = fmt.Sprintf("settee/jobs/%016x", random.Uint64())
	}
	for _, c := range []struct {
		name    string
		commits int
		step    time.Duration
	}{
		{"1e6 in the window", most, time.Microsecond},
		{"1e6 in all", most, kv.MaxTransactionAge / 1000},
	} {
		b.Run(c.name, func(b *testing.B) {
			few, many := newHistoryLoad(keys, 1000, time.Microsecond), newHistoryLoad(keys, c.commits, c.step)
			var fewTook, manyTook time.Duration
			for b.Loop() {
				// In turns of some length, each with the caches to itself.
				const turn = 200
				start := time.Now()
				few.commit(turn, true)
				between := time.Now()
				many.commit(turn, true)
				fewTook += between.Sub(start)
				manyTook += time.Since(between)
			}
			b.ReportMetric(float64(manyTook)/float64(fewTook), "times-1e3")
			b.ReportMetric(float64(manyTook.Nanoseconds())/float64(b.N*200), "ns/commit")
			b.ReportMetric(float64(many.history.steps.Len()), "steps")
		})
	}
}

// historyLoad is a history under a load of commits.
type historyLoad struct {
	history history
	random  *rand.Rand
	keys    []string
	now     time.Time
	step    time.Duration
	version int64
}

func newHistoryLoad(keys []string, commits int, step time.Duration) *historyLoad {
	l := &historyLoad{keys: keys, random: rand.New(rand.NewPCG(1, 1)), now: time.Unix(0, 0), step: step}
	l.commit(commits, false)
	// From here on what comes is as much as what expires.
	l.step = max(step, kv.MaxTransactionAge/time.Duration(commits))
	return l
}

// commit commits n times, with a write, or with reads and two writes.
func (l *historyLoad) commit(n int, whole bool) {
	for range n {
		l.now = l.now.Add(l.step)
		l.history.expire(l.now.Add(-kv.MaxTransactionAge))
		l.version++
		write := pointSpan(l.key())
		l.history.wrote(write.begin, write.end, l.version)
		if whole {
			first, second, another := pointSpan(l.key()), pointSpan(l.key()), pointSpan(l.key())
			l.history.writtenSince(first.begin, first.end, l.version)
			l.history.writtenSince(second.begin, second.end, l.version)
			l.history.writtenSince(second.begin, second.begin+"\xff", l.version)
			l.history.wrote(another.begin, another.end, l.version)
		}
		l.history.committed(l.version, l.now)
	}
}

func (l *historyLoad) key() string { return l.keys[l.random.IntN(len(l.keys))] }
