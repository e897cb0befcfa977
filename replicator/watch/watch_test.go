package watch_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
)

// A change wakes the jobs of its database at once, and no others. Nothing is asked meanwhile.
func TestFeedWakes(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db", "other")
		id, other := l.park("root", "db"), l.park("root", "other")
		n := l.start()
		l.until(n.follows(1))
		l.sleeps(10*time.Minute, id, other)
		require.Equal(t, 1, l.source.open())
		l.source.requests("")
		l.source.write("db", "nobody's", "db")
		took, _ := l.woken(id)
		require.Less(t, took, 200*time.Millisecond)
		l.sleeps(time.Minute, other)
		counts := n.Counts()
		require.EqualValues(t, 1, counts.WakesFeed)
		require.Zero(t, counts.WakesSafety+counts.WakesQuestion+counts.Questions+counts.FeedFailures)
		require.LessOrEqual(t, counts.Lag, 20*time.Second)
		require.Empty(t, l.source.requests(""), "a change needs no request")
		require.Equal(t, 1, strings.Count(l.log.String(), "following the server's _db_updates"), l.log.String())
		require.NotContains(t, l.log.String(), "s3cret")
	})
}

// An idle server costs a comparison in an hour.
func TestIdleServerCostsLittle(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db")
		id := l.park("root", "db")
		n := l.start()
		l.until(n.follows(1))
		l.sleeps(time.Minute, id) // the first comparison is over
		l.source.requests("")
		l.sleeps(4*time.Hour, id)
		require.Len(t, l.source.requests("root POST /_dbs_info"), 4)
		require.Empty(t, l.source.requests(""))
	})
}

// The comparison finds a change that no feed has named, and a database that has gone.
func TestComparisonFindsWhatTheFeedMissed(t *testing.T) {
	for name, change := range map[string]func(*source){
		"a change": func(s *source) { s.lose("db") },
		"the end of the database": func(s *source) {
			s.set(func() { delete(s.databases, "db") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.source.write("db", "other")
				id, other := l.park("root", "db"), l.park("root", "other")
				n := l.start()
				l.until(n.follows(1))
				l.sleeps(time.Minute, id, other)
				change(l.source)
				took, _ := l.woken(id)
				require.LessOrEqual(t, took, time.Hour)
				l.sleeps(time.Minute, other)
				require.EqualValues(t, 1, n.Counts().WakesSafety)
			})
		})
	}
}

// Descriptions that differ from what was recorded wake nothing if the database has no change.
func TestOtherDescriptionsAreNoChange(t *testing.T) {
	for name, describe := range map[string]func(*source){
		"another update_seq, as of another copy of a shard":   func(s *source) { s.copies = true },
		"none, as of a database that a CouchDB fails to open": func(s *source) { s.crowded = true },
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.source.write("db")
				id := l.park("root", "db")
				l.source.set(func() { describe(l.source) })
				n := l.start()
				l.sleeps(5*time.Hour, id)
				require.Zero(t, n.Counts().WakesSafety)
				require.InDelta(t, 5, n.Counts().Questions, 1)
			})
		})
	}
}

// A round of many pages is spread over its time, except the first one, which is quick.
func TestRoundsAreSpread(t *testing.T) {
	inLab(t, func(l *lab) {
		var ids []string
		for i := range 250 {
			name := fmt.Sprintf("db%03d", i)
			l.source.write(name)
			ids = append(ids, l.park("root", name))
		}
		n := l.start()
		l.until(n.follows(1))
		l.sleeps(30*time.Second, ids...)
		require.Len(t, l.source.requests("root POST /_dbs_info"), 4, "one looks for the feed")
		for range 3 {
			l.sleeps(time.Hour, ids[0])
			require.Len(t, l.source.requests("root POST /_dbs_info"), 3)
		}
		l.set("replicator/max_idle_sec=60")
		l.sleeps(time.Minute)
		l.source.requests("")
		l.sleeps(10 * time.Minute)
		require.InDelta(t, 30, len(l.source.requests("root POST /_dbs_info")), 2)
		require.Zero(t, n.Counts().WakesSafety)
	})
}

// What happened between two logs of updates is found at once, however the server shows that its log is another one.
func TestFeedForgets(t *testing.T) {
	for _, forgetful := range []bool{false, true} {
		t.Run(fmt.Sprint("forgetful ", forgetful), func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.source.write("db", "other", "other")
				id, other := l.park("root", "db"), l.park("root", "other")
				n := l.start()
				l.until(n.follows(1))
				l.sleeps(time.Minute, id, other)
				l.source.lose("db")
				l.source.set(func() { l.source.instance, l.source.updates, l.source.forgetful = "1700000002", nil, forgetful })
				took, _ := l.woken(id)
				require.Less(t, took, 5*time.Second)
				require.EqualValues(t, 1, n.Counts().WakesSafety)
				l.until(n.follows(1))
				l.source.write("other")
				took, _ = l.woken(other)
				require.Less(t, took, time.Second)
				require.EqualValues(t, 1, n.Counts().WakesFeed)
			})
		})
	}
}

// A feed that starts before the sequence that it was to go on from has lost something, also if its log has no name.
func TestRewoundFeed(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db", "x", "x", "x")
		l.source.set(func() { l.source.status["/_global_changes"], l.source.status["/"] = 404, 404 })
		id := l.park("root", "db")
		n := l.start()
		l.until(n.follows(1))
		l.sleeps(time.Minute, id)
		l.source.lose("db")
		l.source.set(func() { l.source.instance, l.source.updates = "1700000002", []string{"x"} })
		took, _ := l.woken(id)
		require.Less(t, took, 5*time.Second)
		require.EqualValues(t, 1, n.Counts().WakesSafety)
	})
}

// Feeds that end, break off and fall silent are opened again where they were.
func TestFeedsEnd(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db", "two")
		id, two := l.park("root", "db"), l.park("root", "two")
		n := l.start()
		l.until(n.follows(1))
		l.sleeps(time.Minute, id, two) // the first comparison is over
		l.source.set(func() { l.source.down = true })
		l.source.set(func() { l.source.databases["db"]++; l.source.updates = append(l.source.updates, "db") })
		time.Sleep(2 * time.Second)
		l.source.set(func() { l.source.down = false })
		took, _ := l.woken(id)
		require.Less(t, took, 30*time.Second)
		require.EqualValues(t, 1, n.Counts().WakesFeed)
		require.NotZero(t, n.Counts().FeedFailures)
		l.sleeps(time.Minute, two)
		require.Zero(t, n.Counts().WakesSafety+n.Counts().WakesQuestion)
	})
}

// A watch goes on where the one before it was, on another node, and repeats at most what came since the last heartbeat.
func TestHandOver(t *testing.T) {
	for name, end := range map[string]func(*node){"stopped": func(n *node) { n.stop() }, "killed": func(n *node) { n.kill() }} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.source.write("db", "two")
				id, two := l.park("root", "db"), l.park("root", "two")
				first := l.start()
				l.until(first.follows(1))
				l.sleeps(2*time.Minute, id, two)
				l.source.requests("")
				end(first)
				l.source.write("db")
				second := l.start()
				took, run := l.woken(id)
				if name == "stopped" {
					require.Less(t, took, time.Second)
				} else {
					require.LessOrEqual(t, took, fdbjobs.DefaultTimeout+fdbjobs.DefaultTimeout/6+5*time.Second)
				}
				require.Equal(t, []string{"root GET /_db_updates?feed=continuous&heartbeat=20000&since=2-1700000001"},
					l.source.requests("root GET /_db_updates?feed"))
				l.parkRun(run, server, "db", `"2-x"`)
				l.sleeps(time.Minute, id, two)
				require.Len(t, l.source.requests("root POST /_dbs_info"), 1, "the round goes on, too")
				require.EqualValues(t, 1, second.Counts().WakesFeed)
				second.stop()
				l.until(func() bool { return l.source.open() == 0 })
			})
		})
	}
}

// A watch that asks questions and goes on on another node knows there why it has no feed.
func TestHandOverOfQuestions(t *testing.T) {
	for name, c := range map[string]struct{ user, instance, reason string }{
		"lacks":   {"root", "", "has no database _global_changes"},
		"refuses": {"ann", "1700000001", `for the user "ann"`},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.source.write("db")
				l.source.set(func() { l.source.instance = c.instance })
				id := l.park(c.user, "db")
				for range 3 {
					n := l.start()
					l.until(n.asks(1))
					job, err := l.jobs.Lists.Get(t.Context(), id)
					require.NoError(t, err)
					watch, err := l.jobs.Lists.Watch(t.Context(), job)
					require.NoError(t, err)
					require.Contains(t, watch.Reason, c.reason)
					n.stop()
				}
			})
		})
	}
}

// A watch that goes on on another node soon notices that its server has a feed now.
func TestHandOverBeforeTheServerHasAFeed(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db")
		l.source.set(func() { l.source.instance = "" })
		l.park("root", "db")
		first := l.start()
		l.until(first.asks(1))
		first.stop()
		second := l.start()
		l.until(second.asks(1))
		l.source.set(func() { l.source.instance = "1700000009" })
		require.LessOrEqual(t, l.until(second.follows(1)), time.Minute)
	})
}

// Whoever takes over the watch of a node that died after a burst of changes does not read them again.
func TestHandOverAfterABurst(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db")
		id := l.park("root", "db")
		first := l.start()
		l.until(first.follows(1))
		l.sleeps(time.Minute, id)
		const names = 100 // keepNames
		for n := range names {
			l.source.write(fmt.Sprint("nobody's", n))
		}
		time.Sleep(time.Second) // less than a heartbeat
		l.source.requests("")
		first.kill()
		l.start()
		l.until(func() bool { return l.source.open() == 1 })
		require.Equal(t, []string{fmt.Sprintf("root GET /_db_updates?feed=continuous&heartbeat=20000&since=%d-1700000001", 1+names)},
			l.source.requests("root GET /_db_updates?feed"))
	})
}

// A watch whose job has a short activity timeout is kept alive from its beginning.
func TestWatchIsKeptAlive(t *testing.T) {
	inLab(t, func(l *lab) {
		l.timeout = 8 * time.Second
		first, second := l.start(), l.start()
		time.Sleep(time.Second) // their heartbeats have begun
		l.source.write("db")
		l.park("root", "db")
		l.until(func() bool { return first.follows(1)() || second.follows(1)() })
		time.Sleep(5 * time.Minute)
		require.Len(t, l.source.requests("root GET /_db_updates?feed"), 1, "no other node has taken it")
	})
}

// A watch ends a while after its last job has run, and begins again with the next one.
func TestWatchEnds(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db")
		id := l.park("root", "db")
		n := l.start()
		for range 2 {
			l.until(n.follows(1))
			l.source.write("db")
			_, run := l.woken(id)
			require.NoError(t, run.Start(l.Context(), "n", "1"))
			took := l.until(n.follows(0))
			require.GreaterOrEqual(t, took, time.Minute)
			require.LessOrEqual(t, took, 3*time.Minute)
			l.until(func() bool { return l.source.open() == 0 })
			l.parkRun(run, server, "db", `"`+l.source.seq("db")+`"`)
		}
		l.until(n.follows(1))
		n.stop()
	})
}

// A watch whose last job is gone follows the feed as soon as there is another one.
func TestFeedForTheNextJob(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db")
		_, err := l.jobs.Requests.Cancel(t.Context(), l.park("root", "db"), nil)
		require.NoError(t, err)
		n := l.start()
		l.sleeps(10 * time.Second)
		require.Zero(t, n.Counts().Questioned)
		l.park("root", "db")
		require.LessOrEqual(t, l.until(n.follows(1)), time.Second)
	})
}

// Watches of more servers than a node may have take turns, and a lower limit ends some.
func TestWatchesTakeTurns(t *testing.T) {
	inLab(t, func(l *lab) {
		l.set("replicator/max_watches=1")
		l.source.write("db", "b/db", "c/db")
		l.park("root", "db")
		n := l.start()
		l.until(n.follows(1))
		// Their servers are not there: only their turns count.
		l.parkAt("http://a.example/b/", "root", "db")
		l.parkAt("http://a.example/c/", "root", "db")
		l.source.requests("")
		time.Sleep(30 * time.Minute)
		require.NotEmpty(t, l.source.requests("root POST /_dbs_info"))
		require.NotEmpty(t, l.source.requests("root POST /b/_dbs_info"))
		require.NotEmpty(t, l.source.requests("root POST /c/_dbs_info"))
		require.LessOrEqual(t, n.Counts().Feeds+n.Counts().Questioned, 1)
		l.set("replicator/max_watches=0")
		l.until(func() bool { return n.Counts().Feeds+n.Counts().Questioned == 0 })
		l.source.requests("")
		time.Sleep(10 * time.Minute)
		require.Empty(t, l.source.requests(""))
		l.set()
		l.until(n.follows(1))
	})
}

// While the store fails, nothing is lost.
func TestStoreFails(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db")
		id := l.park("root", "db")
		controlled := control(l.db)
		n := l.startOn(controlled)
		l.until(n.follows(1))
		controlled.Fail(errBroken)
		l.source.write("db")
		time.Sleep(10 * time.Second)
		controlled.Fail(nil)
		took, _ := l.woken(id)
		require.Less(t, took, 5*time.Second)
		require.EqualValues(t, 1, n.Counts().WakesFeed)
		synctest.Wait()
	})
}
