package worker_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/replicator"
	"settee/replicator/worker"
)

func TestAnIdleRunParks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l := newLot(t)
		l.target.uuid = "abc"
		l.source.change("a")
		r := l.begin(false)
		require.Equal(t, []bool{true}, l.told())
		require.True(t, l.copied("a"))
		l.source.change("b")
		require.Equal(t, []bool{false, true}, l.told())
		l.source.reset()
		l.target.uuid = "another server, which the run does not notice"
		l.parker.Ask()
		require.True(t, l.parked(r))
		require.Equal(t, []string{
			"POST /_ensure_full_commit", "PUT /_local", "GET ", "GET /_changes normal1",
		}, l.source.asked())
		require.Equal(t, []replicator.Parked{{
			Since: time.Now(), Server: "http://a.example/", Database: "db", UpdateSeq: `"2-x"`,
			Target: replicator.ParkedTarget{Server: "http://b.example/", Database: "db", Identity: "abc a vendor", Instance: "1700000000"},
		}}, l.parking)
		require.Equal(t, `"2-x"`, string(l.state.CheckpointedSourceSeq))
		require.EqualValues(t, 0, *l.state.ChangesPending)
		require.Empty(t, l.told())
		l.parker.Ask() // too late
	})
}

// The runs of a node ask a target's server for its uuid at most once a minute. What it does not tell is not known.
func TestParkingRunsShareIdentities(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l := newLot(t)
		l.cfg.Shared = new(worker.Shared)
		l.target.uuid = "abc"
		parks := func(identity string, greeted int) {
			t.Helper()
			l.patiently(l.begin(len(l.parking) > 0))
			require.Equal(t, identity, l.parking[len(l.parking)-1].Target.Identity)
			require.Equal(t, greeted, l.target.greeted)
		}
		parks("abc a vendor", 1)
		l.target.uuid = "def"
		parks("abc a vendor", 1)
		time.Sleep(time.Minute)
		parks("def a vendor", 2)
		l.target.uuid = ""
		time.Sleep(time.Minute)
		parks("", 3)
		require.Zero(t, l.source.greeted)
	})
}

// A checkpoint that was written by the clock needs no other one.
func TestAParkedRunWritesNoSecondCheckpoint(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l := newLot(t)
		l.source.change("a")
		r := l.begin(false)
		time.Sleep(time.Minute)
		l.source.reset()
		l.parker.Ask()
		require.True(t, l.parked(r))
		require.Equal(t, []string{"GET /_changes normal1"}, l.source.asked())
		require.Equal(t, `"1-x"`, l.parking[0].UpdateSeq)
	})
}

func TestAnEmptySourceParks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l := newLot(t)
		r := l.begin(false)
		require.Equal(t, []bool{true}, l.told())
		l.parker.Ask()
		require.True(t, l.parked(r))
		require.Equal(t, "0", string(l.state.CheckpointedSourceSeq))
		l.source.change("a")
		r = l.begin(true)
		l.patiently(r)
		require.True(t, l.copied("a"))
	})
}

func TestRunsThatCannotPark(t *testing.T) {
	for name, fields := range map[string][]string{
		"without checkpoints": {`"use_checkpoints":false`},
		"not continuous":      {`"continuous":false`},
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			l := newLot(t)
			l.rep = replication(t, "http://a.example/db", "http://b.example/db", append([]string{`"continuous":true`}, fields...)...)
			if name == "not continuous" {
				l.rep.Continuous = false
			}
			r := l.begin(false)
			synctest.Wait()
			l.parker.Ask()
			time.Sleep(time.Minute)
			require.Empty(t, l.told())
			r.stop()
			_ = r.ended()
			require.False(t, r.result.Parked)
			require.Empty(t, l.parking)
		})
	}
}

// The source changes before or after each of the answers that a run gets while it parks, and while it announces that. If
// the run parks, the change is copied, or nothing could have told of it before the run had announced that it parks.
func TestNoChangeIsMissedBetweenTheLookAndThePark(t *testing.T) {
	for _, fields := range [][]string{nil, {`"doc_ids":["a","b","x"]`}} {
		for _, id := range []string{"x", "filtered"} {
			for step := range 14 {
				testkit.RunBubble(t, fmt.Sprint(len(fields), id, step), func(t *testing.T) {
					l := newLot(t, fields...)
					l.source.change("a")
					r := l.begin(false)
					l.source.change("b")
					require.True(t, l.told()[0])
					at, announced, late := 0, false, false
					var mu sync.Mutex
					tick := func() {
						mu.Lock()
						defer mu.Unlock()
						if at == step {
							l.source.change(id)
							late = announced
						}
						at++
					}
					l.source.when(func(string) { tick() }, func(string) { tick() })
					l.noting(func() error {
						tick()
						mu.Lock()
						defer mu.Unlock()
						announced = true
						return nil
					})
					l.parker.Ask()
					parked := l.parked(r)
					mu.Lock()
					ticks, late := at, late
					mu.Unlock()
					wanted := len(fields) == 0 || id == "x"
					switch {
					case !parked:
						require.Less(t, step, ticks, "it does not park although nothing changed")
						l.source.when(nil, nil)
						l.noting(func() error { return nil })
						l.patiently(r)
						require.Equal(t, wanted, l.copied(id))
					case step < ticks && !late:
						require.Equal(t, wanted, l.copied(id))
					default:
						require.False(t, l.copied(id))
						r = l.begin(true)
						if late {
							l.patiently(r)
							require.Equal(t, wanted, l.copied(id))
						}
					}
				})
			}
		}
	}
}

// A run whose last look fails goes on.
func TestARunThatCannotLookGoesOn(t *testing.T) {
	for _, at := range []string{"PUT /_local", "GET ", "GET /_changes normal1", "announcement"} {
		testkit.RunBubble(t, at, func(t *testing.T) {
			l := newLot(t)
			l.cfg.RetriesPerRequest = 0
			l.source.change("a")
			r := l.begin(false)
			require.Equal(t, []bool{true}, l.told())
			var ill atomic.Bool
			ill.Store(true)
			l.source.when(func(request string) {
				if ill.Load() && request == at {
					panic(http.ErrAbortHandler)
				}
			}, nil)
			if at == "announcement" {
				l.noting(func() error { return errors.New("the store is ill") })
			}
			l.parker.Ask()
			require.False(t, l.parked(r))
			require.Equal(t, []bool{false}, l.told(), "it would only look again")
			time.Sleep(2 * time.Second)
			require.Equal(t, []bool{true}, l.told())
			ill.Store(false)
			l.noting(func() error { return nil })
			l.source.change("b")
			require.Equal(t, []bool{false, true}, l.told())
			require.True(t, l.copied("b"))
			l.parker.Ask()
			require.True(t, l.parked(r))
		})
	}
}

// Filtered changes come all the time. They end no attempt before the filter was asked, and the run parks between two.
func TestAFilteredRunParks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l := newLot(t, `"doc_ids":["a"]`)
		l.source.change("a")
		r := l.begin(false)
		for i := range 5 {
			l.source.change(fmt.Sprint("other", i))
		}
		require.Equal(t, []bool{true}, l.told())
		l.source.reset()
		l.parker.Ask()
		require.True(t, l.parked(r))
		require.Equal(t, `"6-x"`, string(l.state.CheckpointedSourceSeq))
		require.Equal(t, []string{
			"POST /_changes normal1", "POST /_ensure_full_commit", "PUT /_local", "GET ", "GET /_changes normal1",
		}, l.source.asked())
		require.False(t, l.copied("other0"))
	})
}

// An idle run stays idle while its feed is cut off and opened again, and while it asks how far a filter has got.
func TestAnIdleRunStaysIdle(t *testing.T) {
	for _, fields := range [][]string{nil, {`"doc_ids":["a"]`}} {
		testkit.RunBubble(t, fmt.Sprint(fields), func(t *testing.T) {
			l := newLot(t, fields...)
			l.source.change("a")
			r := l.begin(false)
			require.Equal(t, []bool{true}, l.told())
			time.Sleep(20 * time.Minute)
			require.Empty(t, l.told())
			l.parker.Ask()
			require.True(t, l.parked(r))
		})
	}
}

// A run that cannot reach its source goes on, and is not idle again before its feed is open.
func TestARunWithoutItsSourceDoesNotPark(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l := newLot(t)
		l.source.change("a")
		r := l.begin(false)
		require.Equal(t, []bool{true}, l.told())
		time.Sleep(time.Minute)
		l.source.cutFeeds()
		require.Empty(t, l.told(), "a feed that is cut off once")
		time.Sleep(time.Minute)
		var ill atomic.Bool
		ill.Store(true)
		l.source.when(func(string) {
			if ill.Load() {
				panic(http.ErrAbortHandler)
			}
		}, nil)
		l.source.cutFeeds()
		time.Sleep(3 * time.Second)
		l.parker.Ask()
		time.Sleep(10 * time.Second)
		require.Equal(t, []bool{false}, l.told())
		l.parker.Ask()
		ill.Store(false)
		time.Sleep(time.Minute)
		require.Equal(t, []bool{true}, l.told())
		l.parker.Ask()
		require.True(t, l.parked(r))
	})
}

func TestAStopEndsAParkingRun(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l := newLot(t)
		l.source.change("a")
		r := l.begin(false)
		require.Equal(t, []bool{true}, l.told())
		l.source.when(func(request string) {
			if request == "GET /_changes normal1" {
				r.stop()
				time.Sleep(time.Second)
			}
		}, nil)
		l.parker.Ask()
		require.ErrorIs(t, r.ended(), worker.ErrStopped)
		require.False(t, r.result.Parked)
		require.Len(t, l.parking, 1)
	})
}

// A change that comes back to life with the feed is read before the run is asked to park again: a scheduler that needs the
// slot asks whenever the run is idle.
func TestARunThatIsAskedAllTheTimeReadsItsChanges(t *testing.T) {
	for _, fields := range [][]string{nil, {`"doc_ids":["a","x"]`}} {
		testkit.RunBubble(t, fmt.Sprint(fields), func(t *testing.T) {
			l := newLot(t, fields...)
			l.source.change("a")
			changed := 0
			l.noting(func() error {
				if changed++; changed < 5 {
					l.source.change("x")
				}
				return nil
			})
			l.always = true
			r := l.begin(false)
			time.Sleep(time.Minute)
			require.True(t, l.parked(r))
			require.True(t, l.copied("x"))
			require.Equal(t, 5, changed)
		})
	}
}
