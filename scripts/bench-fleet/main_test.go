package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/internal/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	var o options
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	o.register(f)
	require.NoError(t, f.Parse(args))
	return &o, o.check()
}

func TestOptions(t *testing.T) {
	o, err := parse(t)
	require.NoError(t, err)
	require.True(t, o.has(caseRestart))
	o, err = parse(t, "-cases=few")
	require.NoError(t, err)
	require.False(t, o.has(caseFirst))
	for _, args := range [][]string{{"-cases=fewer"}, {"-jobs=0"}, {"-rate=0"}, {"-idle=1ms"}, {"-jobs=10", "-burst=11"}, {"-cases=roll", "-nodes=1", "-store=fdb:x"}} {
		_, err := parse(t, args...)
		require.Error(t, err, args)
	}
}

// TestArrivals: a document counts when it is both written and arrived, in either order.
func TestArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a arrivals
		require.NoError(t, a.await(t.Context()))
		a.arrive("unknown")
		for _, id := range []string{"early", "late"} {
			a.expect(id)
		}
		a.arrive("early")
		ended := make(chan error)
		go func() { ended <- a.await(t.Context()) }()
		time.Sleep(time.Millisecond)
		a.wrote("early")
		a.wrote("late")
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		gone, cancel := context.WithCancelCause(t.Context())
		late := errors.New("too late")
		cancel(late)
		err := a.await(gone)
		require.ErrorIs(t, err, late)
		require.ErrorContains(t, err, "1 documents have not arrived, among them late")
		a.arrive("late")
		require.NoError(t, <-ended)
		require.Equal(t, delays{Documents: 2, P50: 2, P90: 2, P99: 2, Max: 2}, a.take())
		require.Equal(t, delays{}, a.take())
	})
}

// TestFleet runs all cases with few jobs, and checks that nothing is left behind.
func TestFleet(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	o, err := parse(t, "-jobs=30", "-targets=3", "-slots=5", "-idle=1s", "-quiet=1s", "-rate=20", "-duration=1s", "-burst=10",
		"-few-changes=5", "-limit=5m")
	require.NoError(t, err)
	r, err := measure(t.Context(), o, t.Output())
	require.NoError(t, err)
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
	require.Equal(t, 5, r.Few.Documents)
	require.Positive(t, r.First.Rate)
	require.Positive(t, r.Parked.Memory)
	require.Positive(t, r.Changes.Delay.Documents)
	require.Equal(t, 10, r.Burst.Delay.Documents)
	require.Positive(t, r.Restart.Answers)
	var table, object bytes.Buffer
	require.NoError(t, r.print(&table, false))
	require.Contains(t, table.String(), "all jobs parked: memory")
	require.NoError(t, r.print(&object, true))
	var read report
	require.NoError(t, json.Unmarshal(object.Bytes(), &read))
	require.Equal(t, *r, read)
}

// TestFleetOfCouchDB runs the cases with parked jobs on databases of a CouchDB, with its feed and without.
func TestFleetOfCouchDB(t *testing.T) {
	for _, name := range []string{couchDBName, couchDBQuestion} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(t, "-endpoints="+name, "-cases=parked,changes", "-jobs=10", "-targets=2", "-slots=3", "-idle=1s", "-quiet=1s",
				"-rate=5", "-duration=1s", "-burst=1", "-limit=5m")
			require.NoError(t, err)
			r, err := measure(t.Context(), o, t.Output())
			if errors.Is(err, servers.ErrNotInstalled) {
				servers.LeaveOut(t, servers.NameCouchDB, err)
			}
			require.NoError(t, err)
			require.Positive(t, r.Parked.Memory)
			require.Positive(t, r.Changes.Delay.Documents)
		})
	}
}

// TestStillness: a job stands still from the first look that finds it in the queue until one that does not.
func TestStillness(t *testing.T) {
	s := newStillness()
	at := func(second int, ids ...string) { s.note(ids, time.Unix(int64(second), 0)) }
	at(0, "a")
	at(1, "a", "b")
	at(3, "b", "c")
	at(4)
	at(5, "a")
	at(6)
	require.ElementsMatch(t, []time.Duration{3 * time.Second, 3 * time.Second, time.Second, time.Second}, s.spans)
	require.Equal(t, 8*time.Second, s.total())
	require.Equal(t, 4*time.Second, s.inAll["a"])
}
