package main

import (
	"flag"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMiddle(t *testing.T) {
	for _, test := range []struct {
		all  []float64
		want float64
	}{
		{[]float64{3}, 3},
		{[]float64{3, 1}, 2},
		{[]float64{9, 1, 3}, 3},
		{[]float64{4, 1, 9, 2}, 3},
	} {
		require.Equal(t, test.want, middle(test.all))
	}
	require.True(t, math.IsNaN(middle(nil)))
}

func TestDelay(t *testing.T) {
	var s sample
	require.Zero(t, delay(50)(s))
	for n := 200; n > 0; n-- {
		s.delays = append(s.delays, time.Duration(n)*time.Millisecond)
	}
	require.Equal(t, 101.0, delay(50)(s))
	require.Equal(t, 199.0, delay(99)(s))
	require.Equal(t, 200.0, delay(100)(s))
}

// A ratio compares the turns of a pair, not the medians.
func TestRatios(t *testing.T) {
	seconds := func(all ...int) (samples []sample) {
		for _, n := range all {
			samples = append(samples, sample{wall: time.Duration(n) * time.Second})
		}
		return samples
	}
	r := result{settee: seconds(10, 1, 3), couchDB: seconds(20, 4, 2)}
	require.Equal(t, "0.50 (0.25-1.50)", ratios(r, wall))
	require.Equal(t, "-", ratios(r, endpoints), "an unknown value")
}

func TestSize(t *testing.T) {
	for n, want := range map[int]string{
		1: "1 bytes", 1000: "1000 bytes", 1024: "1 KiB", 10 << 10: "10 KiB", 4 << 20: "4 MiB", 1 << 30: "1 GiB", 1025: "1025 bytes",
	} {
		require.Equal(t, want, size(n))
	}
}

func defaults(t *testing.T, args ...string) *options {
	t.Helper()
	var o options
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	o.register(f)
	require.NoError(t, f.Parse(args))
	return &o
}

func TestChosenCases(t *testing.T) {
	for _, test := range []struct {
		args string
		want string
	}{
		{"", "docs large small mixed burst delivery"},
		{"-all", "docs large small mixed huge far-50ms far-200ms far-200ms-resets burst delivery many idle"},
		{"-cases=idle,docs", "docs idle"},
	} {
		o := defaults(t, strings.Fields(test.args)...)
		require.NoError(t, o.check())
		chosen, err := o.chosen()
		require.NoError(t, err)
		var names []string
		for _, c := range chosen {
			names = append(names, c.name)
		}
		require.Equal(t, test.want, strings.Join(names, " "))
	}
	require.ErrorContains(t, defaults(t, "-cases=docs,dogs").check(), `there is no case "dogs"`)
	require.Error(t, defaults(t, "-pairs=0").check())
}

func TestTables(t *testing.T) {
	r := report{server: "CouchDB 3.5.0", settee: "settee 1.0", options: defaults(t, "-pairs=1")}
	chosen, err := defaults(t, "-cases=docs,far-50ms,delivery,idle").chosen()
	require.NoError(t, err)
	for i, c := range chosen {
		of := func(factor int) []sample {
			unit := time.Duration(factor*(i+1)) * time.Second
			return []sample{{wall: unit, endpoints: unit / 2, own: unit / 4, memory: 100 << 20, delays: []time.Duration{unit / 100}}}
		}
		r.results = append(r.results, result{benchCase: c, settee: of(1), couchDB: of(4)})
	}
	var out strings.Builder
	require.NoError(t, r.print(&out))
	lines := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		lines[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, line := range []string{
		"docs 1.00 4.00 0.25 (0.25-0.25) 0.50 2.00 0.25 (0.25-0.25) 0.25 100 - - -",
		"far-50ms 2.00 8.00 0.25 (0.25-0.25) 1.00 4.00 0.25 (0.25-0.25) 0.50 100 2.00 2.00 -",
		"delivery settee 30.0 0.25 (0.25-0.25) 30.0 0.25 (0.25-0.25) 1500.00 750.00 100",
		"delivery CouchDB 120.0 120.0 6000.00 3000.00 100",
		"idle 50.00 50.00 1.00 (1.00-1.00) 25.00 100",
		"docs: 50000 documents of 1000 bytes",
		"far-50ms: 50000 documents of 1000 bytes, a round trip of 50ms to both",
		"idle: 1000 jobs",
	} {
		require.Contains(t, lines, line)
	}
}
