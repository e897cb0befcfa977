package scheduler_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"settee/replicator"
	"settee/replicator/jobs"
)

// source records when the runs of a job open its source. It can delay and fail them.
type source struct {
	mu     sync.Mutex
	began  []time.Time
	lasts  time.Duration
	fails  bool
	active int
	most   int // of active
}

func (s *source) answer(r *http.Request) (int, string) {
	s.mu.Lock()
	s.began = append(s.began, time.Now().UTC())
	s.active++
	s.most = max(s.most, s.active)
	lasts := s.lasts
	s.mu.Unlock()
	pause(r, lasts)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	if s.fails {
		return missing(r)
	}
	return 0, ""
}

func (s *source) set(lasts time.Duration, fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lasts, s.fails = lasts, fails
}

// runs returns when the runs so far began, to the minute, and forgets them.
func (s *source) runs() (out []string) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.began {
		out = append(out, at.Format("15:04"))
	}
	s.began = nil
	return out
}

// inPeriod runs a test with a source for the documents' replications. The bubble's clock begins at midnight.
func inPeriod(t *testing.T, sets []string, test func(l *lab, s *source)) {
	t.Helper()
	inLab(t, jobs.Options{}, append([]string{"replicator/connection_timeout=100000000"}, sets...), func(l *lab) {
		s := &source{}
		l.peers.on("GET a.example/db", s.answer)
		test(l, s)
		assert.LessOrEqual(l, s.most, 1, "a job runs only once at a time")
	})
}

// clock lets time pass until a time of this day.
func clock(hour, minute int) {
	now := time.Now().UTC()
	time.Sleep(time.Until(time.Date(now.Year(), now.Month(), now.Day(), hour, minute, 0, 0, time.UTC)))
}

// nextRun returns when a job runs that waits for a time, or the zero time.
func nextRun(job *jobs.Job) time.Time {
	f := job.Facts(time.Now(), nil)
	if !f.Queued {
		return time.Time{}
	}
	return f.Scheduled
}

// waits checks that a job waits for a time, and that its document does not say that it has ended.
func (l *lab) waits(id, until string) *jobs.Job {
	l.Helper()
	synctest.Wait()
	job := l.get(id)
	assert.Equal(l, replicator.StatePending, job.Condition())
	assert.Equal(l, until, nextRun(job).UTC().Format("15:04"))
	state, _ := l.says(repdb, *job.Args.DocID)
	assert.Nil(l, state)
	return job
}

func TestSchedule(t *testing.T) {
	inPeriod(t, nil, func(l *lab, s *source) {
		id := l.put(repdb, "d", `, "schedule": "0 * * * *"`)
		assert.Empty(l, l.waits(id, "01:00").State.Info())
		clock(0, 59)
		assert.Empty(l, s.runs())
		clock(1, 1)
		assert.Equal(l, []string{"01:00"}, s.runs())
		job := l.waits(id, "02:00")
		assert.NotNil(l, job.State.Info().LastRun)
		assert.Equal(l, []string{"stopped", "started", "added"}, eventTypes(job))
		clock(3, 30)
		assert.Equal(l, []string{"02:00", "03:00"}, s.runs())
		l.waits(id, "04:00")

		// A node that comes back runs the job once for all times that were missed.
		l.end()
		clock(6, 30)
		l.start()
		clock(6, 31)
		assert.Equal(l, []string{"06:30"}, s.runs())
		l.waits(id, "07:00")

		// A node that was killed between runs changes nothing.
		l.kill()
		clock(6, 45)
		l.start()
		clock(7, 30)
		assert.Equal(l, []string{"07:00"}, s.runs())

		// A time during a run is passed over.
		s.set(70*time.Minute, false)
		clock(8, 30)
		assert.Equal(l, replicator.StateRunning, l.get(id).Condition())
		assert.Zero(l, nextRun(l.get(id)))
		clock(9, 30)
		assert.Equal(l, []string{"08:00"}, s.runs())
		l.waits(id, "10:00")

		l.remove(repdb, "d")
		clock(10, 30)
		assert.Empty(l, s.runs())
	})
}

func TestEvery(t *testing.T) {
	inPeriod(t, nil, func(l *lab, s *source) {
		id := l.put(repdb, "d", `, "every": "15m"`)
		clock(0, 14)
		assert.Equal(l, []string{"00:00"}, s.runs())
		l.waits(id, "00:15")
		s.set(10*time.Minute, false)
		clock(0, 41)
		assert.Equal(l, []string{"00:15", "00:30"}, s.runs(), "from start to start")
		s.set(20*time.Minute, false)
		clock(1, 30)
		assert.Equal(l, []string{"00:45", "01:05", "01:25"}, s.runs(), "a run that takes longer does not overlap")

		// The run continues on another node when its node is killed.
		l.kill()
		s.set(0, false)
		l.start()
		l.until(id, func(j *jobs.Job) bool {
			return j.Condition() == replicator.StatePending && nextRun(j).After(time.Now())
		})
		assert.Len(l, s.runs(), 1)
		assert.Contains(l, eventTypes(l.get(id)), "crashed")

		// Deletion ends a run.
		s.set(time.Hour, false)
		l.in(id, replicator.StateRunning)
		clock(2, 0)
		assert.Len(l, s.runs(), 1)
		l.remove(repdb, "d")
		clock(3, 0)
		assert.Empty(l, s.runs())
		assert.Zero(l, s.active)
	})
}

// A run that waits for its time takes no slot. With one slot, jobs that are due at the same time run after each other.
func TestWaitingTakesNoSlot(t *testing.T) {
	inPeriod(t, []string{"replicator/max_jobs=1"}, func(l *lab, s *source) {
		s.set(10*time.Minute, false)
		l.put(repdb, "one", `, "schedule": "0 1 * * *"`)
		l.put(repdb, "two", `, "schedule": "0 1 * * *", "doc_ids": ["x"], "use_checkpoints": false`) // a checkpoint asks once more
		other := l.put(repdb, "three", `, "doc_ids": ["y"], "use_checkpoints": false`)
		l.in(other, replicator.StateCompleted)
		assert.Equal(l, []string{"00:00"}, s.runs())
		clock(2, 0)
		assert.Equal(l, []string{"01:00", "01:10"}, s.runs())
	})
}

// A failed run is tried again, later and later, and at the next time at the latest. That try is the run of that time.
func TestPeriodicCrashes(t *testing.T) {
	inPeriod(t, nil, func(l *lab, s *source) {
		s.set(0, true)
		id := l.put(repdb, "d", `, "schedule": "0,45 1 * * *"`)
		clock(1, 0)
		count, job := 1, l.crashes(id, 1)
		for ; nextRun(job).UTC().Format("15:04") != "01:45"; job = l.crashes(id, count) {
			l.waitsForRetry(job, crashed)
			count++
		}
		l.waitsForRetry(job, crashed)
		assert.Greater(l, count, 1, "it is tried before its next time")
		assert.Contains(l, job.State.Info().Error, "db_not_found")
		clock(1, 44)
		assert.Len(l, s.runs(), count)
		s.set(0, false)
		clock(3, 0)
		assert.Equal(l, []string{"01:45"}, s.runs())
		job = l.waits(id, "01:00")
		assert.Zero(l, job.State.ErrorCount)
		assert.Empty(l, job.State.Info().Error)

		// However often it is to run, it waits as after a first crash.
		s.set(0, true)
		l.put(repdb, "d", `, "every": "1s"`)
		l.waitsForRetry(l.crashes(id, 5), crashed)
	})
}

// A change of the times loses no run: what has begun, failed or come due is run at once.
func TestChangedTimes(t *testing.T) {
	inPeriod(t, nil, func(l *lab, s *source) {
		id := l.put(repdb, "d", `, "schedule": "0 1 * * *"`)
		l.put(repdb, "d", `, "schedule": "0 2 * * *"`)
		l.waits(id, "02:00")
		l.put(repdb, "d", `, "schedule": "30 9 * * *", "timezone": "Asia/Tokyo"`)
		l.waits(id, "00:30")
		clock(0, 29)
		assert.Empty(l, s.runs())

		s.set(time.Hour, false)
		clock(0, 40)
		l.put(repdb, "d", `, "schedule": "0 1 * * *"`)
		s.set(0, false)
		clock(0, 50)
		assert.Equal(l, []string{"00:30", "00:40"}, s.runs(), "it was running")
		l.waits(id, "01:00")

		s.set(0, true)
		clock(1, 0)
		l.crashes(id, 1)
		s.set(0, false)
		l.put(repdb, "d", `, "schedule": "0 2 * * *"`)
		l.until(id, func(j *jobs.Job) bool { return j.State.LastRun != nil })
		assert.Equal(l, []string{"01:00", "01:00"}, s.runs(), "it had crashed")
		l.waits(id, "02:00")

		l.end()
		clock(2, 10)
		l.put(repdb, "d", `, "schedule": "0 3 * * *"`)
		l.start()
		clock(2, 11)
		assert.Equal(l, []string{"02:10"}, s.runs(), "it was due")
		l.waits(id, "03:00")

		l.put(repdb, "d", `, "every": "1h"`)
		clock(2, 30)
		assert.Equal(l, []string{"02:11"}, s.runs())
		l.waits(id, "03:11")

		// Without times it is an ordinary replication.
		l.put(repdb, "d", "")
		l.in(id, replicator.StateCompleted)
		state, _ := l.says(repdb, "d")
		assert.Equal(l, "completed", state)
	})
}

func eventTypes(job *jobs.Job) (types []string) {
	for _, event := range job.State.History {
		types = append(types, event.Type)
	}
	return types
}
