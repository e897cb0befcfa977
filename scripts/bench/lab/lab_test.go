package lab

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/pkg/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestArrivals: a document counts when it is both written and at all targets, in either order.
func TestArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Arrivals
		require.NoError(t, a.Await(t.Context()))
		a.Arrive("unknown")
		a.expect("early", 1)
		a.expect("late", 2)
		a.Arrive("early")
		ended := make(chan error)
		go func() { ended <- a.Await(t.Context()) }()
		time.Sleep(time.Millisecond)
		a.wrote("early")
		a.wrote("late")
		a.Arrive("late")
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		gone, cancel := context.WithCancelCause(t.Context())
		late := errors.New("too late")
		cancel(late)
		err := a.Await(gone)
		require.ErrorIs(t, err, late)
		require.ErrorContains(t, err, "1 of 2 documents have not arrived everywhere, among them late")
		require.Equal(t, Counts{Written: 2, Due: 3, Arrived: 2}, a.Counts())
		a.Arrive("late")
		require.NoError(t, <-ended)
		require.Equal(t, Delays{0, 0, 2 * time.Millisecond}, a.Take())
		require.Empty(t, a.Take())
	})
}

// Delays are those of documents that are written after the last Take.
func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Arrivals
		a.expect("before", 1)
		a.wrote("before")
		time.Sleep(time.Second)
		a.Take()
		a.expect("after", 1)
		a.wrote("after")
		a.Arrive("before")
		a.Arrive("after")
		require.Len(t, a.Take(), 1)
	})
}

func TestAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("refused")
		d := Databases{Sources: 3, Targets: 3, Jobs: 3, Put: func(context.Context, int, int) error { return nil }}
		r := newRandom(1)
		err := d.WriteDuring(t.Context(), r, 100, func(ctx context.Context) error { return retry.Wait(ctx, 10*time.Second) })
		require.NoError(t, err)
		require.InDelta(t, 1000, d.Counts().Written, 200)
		err = d.WriteDuring(t.Context(), r, 0, func(ctx context.Context) error { return failed })
		require.ErrorIs(t, err, failed)
		d.Put = func(context.Context, int, int) error { return failed }
		err = d.WriteDuring(t.Context(), r, 100, func(ctx context.Context) error { return retry.Wait(ctx, time.Hour) })
		require.ErrorIs(t, err, failed)
	})
}

// A ratio compares the systems of one turn, not their medians. Each system begins in turn.
func TestInTurns(t *testing.T) {
	values := [][2]float64{{10, 20}, {1, 4}, {3, 2}}
	var order []int
	all, err := InTurns(len(values), []string{"ours", "theirs"}, func(turn, system int) (Sample, error) {
		order = append(order, system)
		return Sample{"time": values[turn][system]}, nil
	})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 1, 0, 0, 1}, order)
	ours, theirs := all[0], all[1]
	require.Equal(t, "0.50 (0.25-1.50)", ours.Ratios("time", theirs))
	require.Equal(t, 3.0, ours.Median("time"))
	require.Equal(t, "-", ours.Ratios("memory", theirs), "an unknown value")
	_, err = InTurns(1, []string{"ours"}, func(int, int) (Sample, error) { return nil, errors.New("too slow") })
	require.EqualError(t, err, "ours: too slow")
}

func TestMedianAndPercentiles(t *testing.T) {
	require.True(t, math.IsNaN(median(nil)))
	for want, all := range map[float64][]float64{3: {9, 1, 3}, 2: {3, 1}, 4: {4}, 3.5: {4, 1, 9, 3}} {
		require.Equal(t, want, median(all))
	}
	var d Delays
	for n := range 200 {
		d = append(d, time.Duration(n+1)*time.Millisecond)
	}
	require.Equal(t, "median 101.0 ms, p90 181.0, p99 199.0, at most 200.0; 200", d.String())
	require.Zero(t, Delays(nil).Percentile(50))
}

// All processors may be used by what is not told apart.
func TestUsed(t *testing.T) {
	m := Meter{{Name: "nothing", Time: func() (time.Duration, error) { return time.Hour, nil }}}
	u, err := m.Measure(func() error { return nil })
	require.NoError(t, err)
	require.Zero(t, u.Of(0))
	u = Used{Seconds: 10, parties: []string{"node", "others"}, of: []float64{5, 2}}
	require.Equal(t, "node 50.0 %, others 20.0 %", u.String())
	require.Contains(t, u.Bound(), "something other")
	u.of[0] = 1e6
	require.Equal(t, "the processors of the machine", u.Bound())
}

func TestReport(t *testing.T) {
	var r Report
	r.Table("nothing", "a", "b")
	r.Targets("settee %d", 1)
	r.Measured("speed", "2", "%.1f", 3.0)
	r.Measured("  more", "", "%s", Number(0, 2))
	require.Equal(t, "3.0", r.Find("speed"))
	require.Equal(t, "-", r.Find("  more"))
	require.Empty(t, r.Find("less"))
	var text strings.Builder
	require.NoError(t, r.Print(&text))
	require.Contains(t, text.String(), "what    target  measured\nspeed   2       3.0\n  more          -\n")
	require.NotContains(t, text.String(), "nothing")
}

// TestPage: a page gets the tables in the place for them, again and again.
func TestPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(path, []byte("# Page\n<!-- measured: one -->\nold\n<!-- end -->\nthe rest\n"), 0o600))
	var r Report
	r.Table("About\nit", "what", "ratio")
	r.Row("time", "0.50 (0.25-1.50)")
	for range 2 {
		require.NoError(t, r.Write(path, "one"))
	}
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Regexp(t, `^# Page
<!-- measured: one -->

Measured on \d{4}-\d\d-\d\d, on \d+ processors \(.+\), \d+ kB of memory, Linux \S+, go1\S+\.

About

it

\| what \| ratio \|
\| --- \| --- \|
\| time \| 0\.50 \(0\.25-1\.50\) \|
<!-- end -->
the rest
$`, string(page))
	require.ErrorContains(t, r.Write(path, "two"), "has no place for two")
}
