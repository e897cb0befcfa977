package scheduler

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/config"
	"settee/replicator/internal/jobserver"
)

// slotsModel is slots with jobs that behave at random.
type slotsModel struct {
	*testing.T
	*slots
	server    *jobserver.Server[*running]
	random    *rand.Rand
	limit     limits
	allowance jobserver.Allowance
	list      []*running // not ended
	asked     map[*running]bool
}

// take adds some jobs if slots are free.
func (m *slotsModel) take() {
	if m.allowance.Free <= 0 {
		return
	}
	for range 1 + m.random.IntN(m.allowance.Free) {
		job := &running{Run: jobserver.NewRun("", "", nil, nil), mirror: m.random.IntN(10) == 0}
		job.idleRun.of = job
		job.parker.Listen(func() { m.asked[job] = true })
		m.list = append(m.list, job)
		m.Enter(job)
	}
}

func (m *slotsModel) finish(job *running) {
	m.server.StopRun(job, nil)
	m.list = slices.DeleteFunc(m.list, func(j *running) bool { return j == job })
	delete(m.asked, job)
}

// step does one thing.
func (m *slotsModel) step() {
	if len(m.list) == 0 || m.random.IntN(4) == 0 {
		m.take()
		m.allowance = m.Settle(time.Now())
		return
	}
	job := m.list[m.random.IntN(len(m.list))]
	switch m.random.IntN(8) {
	case 0:
		m.finish(job)
	case 1:
		m.server.StopRun(job, nil)
	case 2, 3:
		m.setIdle(job, true, time.Now())
	case 4:
		delete(m.asked, job)
		m.setIdle(job, false, time.Now())
	case 5:
		time.Sleep(time.Duration(m.random.Int64N(int64(5 * time.Second))))
	case 6, 7:
		for asked := range m.asked {
			m.finish(asked) // it parks
			break
		}
	}
	m.allowance = m.Settle(time.Now())
}

func (m *slotsModel) check() {
	m.Helper()
	held, mirrors, free := 0, 0, 0
	for _, job := range m.list {
		stopping := job.Stopping().Err() != nil
		switch {
		case stopping:
		case job.slotless:
			mirrors++
		default:
			held++
		}
		if job.idleRun.slotIsFree() {
			free++
			require.False(m, stopping || job.slotless)
			require.True(m, job.idleRun.state == ready || m.asked[job], "an asked job was not told")
		}
	}
	require.Equal(m, held, m.held)
	require.Equal(m, mirrors, m.mirrors)
	require.LessOrEqual(m, mirrors, m.limit.mirrors)
	require.Equal(m, held-free, m.taken())
	require.LessOrEqual(m, m.held, m.limit.running+m.limit.parkAtOnce())
	// No more slots are in use than there are, unless more jobs are busy or do not park: some are stopped then.
	require.LessOrEqual(m, m.used(), max(m.limit.running, m.taken()))
	require.Equal(m, m.taken() > m.limit.running, m.allowance.Over)
	require.Equal(m, m.free(m.limit), m.allowance.Free)
	if !m.allowance.Next.IsZero() {
		require.Greater(m, m.allowance.Next, time.Now(), "what was due is done")
	}
}

// The counters of slots agree after each event of a job, and the node never holds more jobs than it may.
func TestSlotsAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			m := &slotsModel{
				T: t, random: random, asked: map[*running]bool{},
				limit: limits{running: 1 + random.IntN(30), mirrors: random.IntN(3), atOnce: 1 + random.IntN(3), idleTimeout: time.Minute},
			}
			m.slots = newSlots(func() limits { return m.limit })
			m.server = jobserver.New(jobserver.Options[*running]{Limiter: m.slots})
			m.allowance = m.Settle(time.Now())
			for range 1_000 {
				m.step()
				m.check()
			}
			for len(m.list) > 0 {
				m.finish(m.list[0])
			}
			m.allowance = m.Settle(time.Now())
			m.check()
			require.Zero(t, m.held)
		})
	}
}

// Which jobs make room at a turn.
func TestMakesRoom(t *testing.T) {
	t.Parallel()
	cfg, _, err := config.Load(config.Options{Flags: []string{"replicator/max_jobs=2", "replicator/max_churn=7", "replicator/min_run_time_sec=60"}})
	require.NoError(t, err)
	now := time.Unix(1_000, 0)
	// A job is a letter: c continuous, o one-shot, m a mirror without a slot. It has run for 60 seconds, or for 59 after "young ".
	// After "idle " it may be asked to park, after "resting " it did not park.
	job := func(what string) *running {
		r := &running{continuous: what[len(what)-1] != 'o', slotless: what[len(what)-1] == 'm'}
		r.ID, r.Began = what, now.Add(-time.Minute)
		switch what[:len(what)-1] {
		case "young ":
			r.Began = r.Began.Add(time.Second)
		case "idle ":
			r.idleRun.state = ready
		case "asked ":
			r.idleRun.state = asked
		case "resting ":
			r.idleRun.state = resting
		}
		return r
	}
	ids := func(list []*running) (ids []string) {
		for _, r := range list {
			ids = append(ids, r.ID)
		}
		return ids
	}
	for name, c := range map[string]struct {
		list     []string
		full     bool
		yielding []string
		excess   int
		stop     [3][]string // that do not park, continuous ones, others
	}{
		"nothing runs":                      {},
		"a slot is free":                    {list: []string{"c"}},
		"full":                              {list: []string{"c", "o"}, full: true, yielding: []string{"c"}},
		"one has not run for its time":      {list: []string{"young c", "c"}, full: true, yielding: []string{"c"}},
		"an idle one parks instead":         {list: []string{"idle c", "asked c", "c", "o"}, full: true, yielding: []string{"c"}},
		"an idle one that does not park":    {list: []string{"resting c", "o"}, full: true, yielding: []string{"resting c"}},
		"a mirror does not count":           {list: []string{"m", "c", "o"}, full: true, yielding: []string{"c"}},
		"too many, and full":                {list: []string{"c", "o", "resting c", "young c"}, full: true, excess: 2, stop: [3][]string{{"resting c"}, {"c", "young c"}, {"o"}}},
		"too many, idle ones do not count":  {list: []string{"c", "o", "o", "idle c", "m"}, excess: 1, stop: [3][]string{nil, {"c"}, {"o", "o"}}},
		"as many as there may be, not full": {list: []string{"c", "c"}},
	} {
		var list []*running
		for _, what := range c.list {
			list = append(list, job(what))
		}
		turn := makesRoom(cfg, list, c.full, now)
		require.Equal(t, c.yielding, ids(turn.Yielding), name)
		require.Equal(t, c.excess, turn.Excess, name)
		if c.full && c.excess == 0 {
			require.Equal(t, 7, turn.Most, name)
		}
		if c.excess > 0 {
			for i, group := range turn.Stop {
				require.Equal(t, c.stop[i], ids(group), name)
			}
		}
	}
}
