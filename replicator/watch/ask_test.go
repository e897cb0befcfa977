package watch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Without a feed sources are asked, at first often. A change wakes their jobs, also by another user of the database.
func TestQuestions(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db", "other")
		id := l.park("ann", "db")
		other := l.park("ann", "other")
		n := l.start()
		l.until(n.asks(1))
		l.sleeps(20*time.Second, id, other)
		require.Len(t, l.source.requests("ann GET /db/_changes?feed=normal&limit=1&since=1-x"), 4)
		l.source.write("db")
		took, _ := l.woken(id)
		require.LessOrEqual(t, took, 8*time.Second)
		l.sleeps(time.Hour, other)
		asked := len(l.source.requests("ann GET /other/_changes"))
		require.LessOrEqual(t, asked, 40)
		require.GreaterOrEqual(t, asked, 25)
		l.source.write("other")
		took, _ = l.woken(other)
		require.LessOrEqual(t, took, 5*time.Minute)
		require.EqualValues(t, 2, n.Counts().WakesQuestion)
		require.Zero(t, n.Counts().WakesFeed+n.Counts().WakesSafety+n.Counts().FeedFailures)
		require.Contains(t, l.log.String(), `for the user \"ann\", which requires an administrator of the server`)
		require.NotContains(t, l.log.String(), `"pw"`)
	})
}

// A watch keeps to max_questions_per_sec, however many jobs are parked on its server.
func TestQuestionsAreBounded(t *testing.T) {
	inLab(t, func(l *lab) {
		l.set("replicator/max_questions_per_sec=2")
		var ids []string
		for i := range 100 {
			name := fmt.Sprintf("db%03d", i)
			l.source.write(name)
			ids = append(ids, l.park("ann", name))
		}
		n := l.start()
		l.until(n.asks(1))
		time.Sleep(10 * time.Second)
		l.source.requests("")
		l.sleeps(time.Minute, ids...)
		asked := l.source.requests("ann GET /db")
		require.InDelta(t, 120, len(asked), 15)
		each := map[string]int{}
		for _, one := range asked {
			each[one]++
		}
		require.Greater(t, len(each), 95, "all get their turns")
	})
}

// What a source refuses, a run reports.
func TestRefusedQuestions(t *testing.T) {
	for name, change := range map[string]func(s *source){
		"the database is gone":   func(s *source) { delete(s.databases, "db") },
		"the password is wrong":  func(s *source) { s.readers["ann"] = "other" },
		"the user may not read":  func(s *source) { s.status["/db/_changes"] = 403 },
		"the request is refused": func(s *source) { s.status["/db/_changes"] = 400 },
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.source.write("db")
				id := l.park("ann", "db")
				n := l.start()
				l.until(n.asks(1))
				l.sleeps(time.Minute, id)
				l.source.set(func() { change(l.source) })
				took, _ := l.woken(id)
				require.LessOrEqual(t, took, 30*time.Second)
			})
		})
	}
}

// A server that is ill or does not answer wakes nothing, and is asked less often.
func TestServerThatDoesNotAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		ill  func(s *source)
		most int // requests in an hour for three jobs; those that are refused with 429 are repeated
	}{
		"down": {func(s *source) { s.down = true }, 400},
		"slow": {func(s *source) { s.slow = time.Hour }, 400},
		"ill": {func(s *source) {
			s.status["/db/_changes"], s.status["/db2/_changes"], s.status["/db3/_changes"] = 500, 503, 500
		}, 400},
		"wants fewer requests": {func(s *source) {
			s.status["/db/_changes"], s.status["/db2/_changes"], s.status["/db3/_changes"] = 429, 429, 429
		}, 2500},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.source.write("db", "db2", "db3")
				ids := []string{l.park("ann", "db"), l.park("ann", "db2"), l.park("ann", "db3")}
				n := l.start()
				l.until(n.asks(1))
				l.sleeps(time.Minute, ids...)
				l.source.set(func() { test.ill(l.source) })
				l.source.requests("")
				l.sleeps(time.Hour, ids...)
				require.Less(t, len(l.source.requests("")), test.most)
				l.source.set(func() { l.source.down, l.source.slow, l.source.status = false, 0, map[string]int{} })
				l.source.write("db2")
				took, _ := l.woken(ids[1])
				require.LessOrEqual(t, took, 8*time.Minute)
			})
		})
	}
}

// One source that does not answer does not keep the others from being asked.
func TestOneSourceThatDoesNotAnswer(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db", "ill")
		l.source.set(func() { l.source.status["/ill/_changes"] = 500 })
		ill, id := l.park("ann", "ill"), l.park("ann", "db")
		n := l.start()
		l.until(n.asks(1))
		l.sleeps(time.Minute, ill, id)
		l.source.write("db")
		took, _ := l.woken(id)
		require.LessOrEqual(t, took, 30*time.Second)
		l.sleeps(time.Minute, ill)
	})
}

// When the server has a feed after all, the questions end. When it loses the feed, they begin.
func TestFeedComesAndGoes(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db")
		l.source.set(func() { l.source.instance = "" })
		id := l.park("root", "db")
		n := l.start()
		l.until(n.asks(1))
		require.Contains(t, l.log.String(), "has no database _global_changes; an administrator can create it")
		l.source.set(func() { l.source.instance = "1700000009" })
		require.LessOrEqual(t, l.until(n.follows(1)), 5*time.Minute)
		l.sleeps(time.Minute, id)
		l.source.requests("")
		l.sleeps(10*time.Minute, id)
		require.Empty(t, l.source.requests("root GET /db"))
		l.source.set(func() { l.source.instance = "" })
		l.until(n.asks(1))
		l.source.write("db")
		took, _ := l.woken(id)
		require.LessOrEqual(t, took, 5*time.Minute)
		require.EqualValues(t, 1, n.Counts().WakesQuestion)
	})
}

// A feed that only breaks is no feed.
func TestFeedsThatBreak(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db")
		l.source.set(func() { l.source.breaks = true })
		id := l.park("root", "db")
		n := l.start()
		require.LessOrEqual(t, l.until(n.asks(1)), 20*time.Second)
		require.EqualValues(t, 3, n.Counts().FeedFailures)
		require.Contains(t, l.log.String(), "its feed fails: ")
		l.sleeps(time.Minute, id)
		l.source.write("db")
		l.woken(id)
		require.EqualValues(t, 1, n.Counts().WakesQuestion)
	})
}

// A job that parks is asked about soon, also if the watch waits for something later.
func TestNewJobIsAskedSoon(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db", "new")
		id := l.park("ann", "db")
		n := l.start()
		l.until(n.asks(1))
		l.sleeps(10*time.Hour, id)
		fresh := l.park("ann", "new")
		l.source.write("new")
		took, _ := l.woken(fresh)
		require.LessOrEqual(t, took, 10*time.Second)
	})
}
