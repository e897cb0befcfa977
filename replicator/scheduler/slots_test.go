package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// slotsModel is slots with jobs that behave at random.
type slotsModel struct {
	*testing.T
	*slots
	random *rand.Rand
	limit  limits
	list   []*running // not ended
	asked  map[*running]bool
	made   int
}

// take adds as many jobs as room allows, and reports whether there was room.
func (m *slotsModel) take() bool {
	m.mu.Lock()
	free := m.free(m.limit)
	m.mu.Unlock()
	if free <= 0 {
		return false
	}
	_, n := m.room(context.Background())
	require.Equal(m, free, n)
	for range 1 + m.random.IntN(n) {
		m.made++
		job := newRunning(fmt.Sprint(m.made), nil, time.Now())
		job.parker.Listen(func() { m.asked[job] = true })
		m.list = append(m.list, job)
		m.add(job, "")
	}
	return true
}

func (m *slotsModel) finish(job *running) {
	m.remove(job)
	m.list = slices.DeleteFunc(m.list, func(j *running) bool { return j == job })
	delete(m.asked, job)
}

// step does one thing.
func (m *slotsModel) step() {
	if len(m.list) == 0 || m.random.IntN(4) == 0 {
		m.take()
		return
	}
	job := m.list[m.random.IntN(len(m.list))]
	switch m.random.IntN(8) {
	case 0:
		m.finish(job)
	case 1:
		m.stop(stopReason{}, job.id)
	case 2, 3:
		m.idle(job, true)
	case 4:
		delete(m.asked, job)
		m.idle(job, false)
	case 5:
		time.Sleep(time.Duration(m.random.Int64N(int64(5 * time.Second))))
	case 6, 7:
		for asked := range m.asked {
			m.finish(asked) // it parks
			break
		}
	}
	m.turn()
}

func (m *slotsModel) check() {
	m.Helper()
	held, free := 0, 0
	for _, job := range m.list {
		if !job.stopping {
			held++
		}
		switch job.idleRun.state {
		case ready, asked:
			free++
			require.False(m, job.stopping)
			require.True(m, job.idleRun.state == ready || m.asked[job], "an asked job was not told")
		case busy, resting:
		}
	}
	require.Equal(m, held, m.held)
	require.Equal(m, held-free, m.taken())
	require.LessOrEqual(m, m.held, m.limit.running+m.limit.parkAtOnce())
	// No more slots are in use than there are, unless more jobs are busy or do not park: some are stopped then.
	require.LessOrEqual(m, m.used(), max(m.limit.running, m.taken()))
	if m.taken() > m.limit.running {
		require.Len(m, m.overfull, 1)
	}
	require.LessOrEqual(m, m.given, max(0, m.free(m.limit)))
	list, full := m.slots.list()
	require.Equal(m, m.taken(), list.count())
	require.Equal(m, m.free(m.limit) <= 0, full)
}

// The counters of slots agree after each event of a job, and the node never holds more jobs than it may.
func TestSlotsAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			m := &slotsModel{
				T: t, random: random, asked: map[*running]bool{},
				limit: limits{running: 1 + random.IntN(30), atOnce: 1 + random.IntN(3), idleTimeout: time.Minute},
			}
			m.slots = newSlots(func() limits { return m.limit }, nil)
			for range 1_000 {
				full := m.free(m.limit) <= 0
				select {
				case <-m.change:
				default:
				}
				m.step()
				m.check()
				if full && m.free(m.limit) > 0 {
					require.Len(t, m.change, 1, "the acceptors wait although there is room")
				}
			}
			for len(m.list) > 0 {
				m.finish(m.list[0])
			}
			m.check()
			require.Zero(t, m.held)
			require.Empty(t, m.jobs)
		})
	}
}
