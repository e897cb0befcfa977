package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/pkg/couch/couchtest"
	"settee/scripts/internal/lab"
)

func TestMain(m *testing.M) {
	if asked, err := simulate(); asked {
		lab.Exit(name, err, 1)
	}
	dir, err := os.MkdirTemp("", "load-test-")
	if err != nil {
		lab.Exit(name, err, 1)
	}
	built = filepath.Join(dir, "settee")
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		_ = os.RemoveAll(dir)
		os.Exit(status)
	}))
}

var (
	built     string // the path of settee
	buildOnce = sync.OnceValue(func() error { return lab.Build(context.Background(), built) })
)

func parse(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	var o options
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	o.register(f)
	require.NoError(t, f.Parse(args))
	return &o, o.complete()
}

// loaded runs a test with these flags. It checks that everything has arrived, and that nothing is left behind.
func loaded(t *testing.T, args ...string) *report {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	require.NoError(t, buildOnce())
	o, err := parse(t, append([]string{"-limit=5m", "-settee=" + built}, args...)...)
	require.NoError(t, err)
	r, err := load(t.Context(), o, t.Output())
	require.NoError(t, err)
	require.Zero(t, r.Lost)
	require.Equal(t, r.Total.Due, r.Total.Arrived)
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
	var table, object bytes.Buffer
	require.NoError(t, r.print(&table, false))
	require.Contains(t, table.String(), fmt.Sprintf("%d of %d, 0 lost", r.Total.Due, r.Total.Due))
	require.NoError(t, r.print(&object, true))
	var read report
	require.NoError(t, json.Unmarshal(object.Bytes(), &read))
	require.Equal(t, *r, read)
	return r
}

func TestContinuousJobs(t *testing.T) {
	r := loaded(t, "-databases=10", "-jobs=10", "-rate=200", "-warm-up=500ms", "-duration=2s")
	require.GreaterOrEqual(t, r.Seconds, 2.0)
	require.Greater(t, r.Total.Written, int64(100), "more than at first")
	require.Equal(t, 100, r.Jobs["running"]+r.Jobs["pending"]+r.Jobs["crashing"])
	require.Positive(t, r.Memory.Max)
	require.Positive(t, r.Processor.Node)
}

// Each document of a source arrives at all targets.
func TestFan(t *testing.T) {
	r := loaded(t, "-databases=1", "-jobs=20", "-sources=1", "-rate=20", "-warm-up=0s", "-duration=1s")
	require.Equal(t, 20*r.Total.Written, r.Total.Due)
}

func TestOneShotJobs(t *testing.T) {
	r := loaded(t, "-databases=2", "-jobs=20", "-docs=10", "-once")
	require.EqualValues(t, 400, r.Total.Due)
	require.Equal(t, 40, r.Jobs["completed"])
	require.Positive(t, r.JobsEnded)
}

// Simulated endpoints also answer nodes that read documents one by one.
func TestWithoutBulkGet(t *testing.T) {
	loaded(t, "-databases=1", "-jobs=5", "-docs=10", "-once", "-set=replicator/use_bulk_get=false")
}

func TestPeriodicJobs(t *testing.T) {
	loaded(t, "-databases=1", "-jobs=5", "-every=1s", "-rate=20", "-warm-up=0s", "-duration=1s")
}

// Databases of a CouchDB are removed.
func TestCouchDB(t *testing.T) {
	server := couchtest.SharedCouchDB(t)
	admin := couchtest.As(server.URL, server.Username, server.Password)
	r := loaded(t, "-databases=1", "-jobs=3", "-rate=10", "-warm-up=0s", "-duration=1s", "-endpoints="+admin)
	require.True(t, strings.HasPrefix(r.Endpoints, "CouchDB 3"), r.Endpoints)

	failed := func(err error) { t.Error(err) }
	e, err := openCouchDB(t.Context(), plan{Jobs: 2, Sources: 1, Docs: 1, DocSize: 1}, admin, failed)
	require.NoError(t, err)
	databases := slices.Concat(e.sources, e.targets)
	require.Len(t, databases, 3)
	server.Do(t, http.MethodGet, "/"+databases[0], nil, http.StatusOK)
	require.NoError(t, e.close(t.Context()))
	for _, name := range databases {
		server.Do(t, http.MethodGet, "/"+name, nil, http.StatusNotFound)
	}
}

// interrupt cancels a context when a text is printed.
type interrupt struct {
	at     string
	cancel context.CancelCauseFunc
}

var errInterrupted = errors.New("interrupted")

func (i interrupt) Write(text []byte) (int, error) {
	if bytes.Contains(text, []byte(i.at)) {
		i.cancel(errInterrupted)
	}
	return len(text), nil
}

// A test that is interrupted leaves nothing behind, also in a store that goes on.
func TestInterrupted(t *testing.T) {
	for _, at := range []string{"jobs added", "all jobs run", "measured"} {
		t.Run(at, func(t *testing.T) {
			require.NoError(t, buildOnce())
			t.Setenv("TMPDIR", t.TempDir())
			store := "-store=pebble:" + t.TempDir()
			args := []string{store, "-settee=" + built, "-databases=2", "-jobs=3", "-warm-up=0s", "-duration=100ms", "-rate=10"}
			o, err := parse(t, args...)
			require.NoError(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			_, err = load(ctx, o, interrupt{at, cancel})
			require.ErrorIs(t, err, errInterrupted)
			left, err := os.ReadDir(os.TempDir())
			require.NoError(t, err)
			require.Empty(t, left)
			loaded(t, args...)
		})
	}
}

func TestOptions(t *testing.T) {
	for args, want := range map[string]string{
		"-jobs=0":                             "there must be a job",
		"-databases=1 -jobs=3 -sources=4":     "more sources than jobs",
		"-rate=-1":                            "positive",
		"-once -every=1s":                     "exclude each other",
		"-endpoints=couchdb -endpoint-cpus=0": "for simulated endpoints",
	} {
		_, err := parse(t, strings.Fields(args)...)
		require.ErrorContains(t, err, want, args)
	}
	for args, want := range map[string]int{"": 1000, "-once": 500, "-once -jobs=10": 100, "-every=1s -max-jobs=7": 7} {
		o, err := parse(t, strings.Fields(args)...)
		require.NoError(t, err)
		require.Equal(t, want, o.maxJobs, args)
	}
}

func TestTraffic(t *testing.T) {
	// Jobs 0 and 2 read source 0, and job 1 reads source 1.
	tr := newTraffic(plan{Jobs: 3, Sources: 2, Docs: 1}, func(context.Context, int, int) error { return nil })
	require.NoError(t, tr.fill(t.Context()))
	require.NoError(t, tr.open(t.Context()))
	require.NoError(t, tr.add(t.Context(), 0))
	tr.arrive(0, []int{0, 1})
	tr.arrive(0, []int{1})
	tr.arrive(1, []int{0})
	tr.arrive(2, []int{1})
	require.Equal(t, []int{0}, tr.lacks(2, []int{0, 1}))
	soon, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	require.ErrorIs(t, tr.await(soon), errInterrupted)
	require.NoError(t, tr.start(t.Context()))
	require.NoError(t, tr.end(t.Context()))
	c, err := tr.count(t.Context())
	require.NoError(t, err)
	require.Equal(t, flow{Written: 3, Due: 5, Arrived: 4}, c.Total)
	require.Equal(t, flow{Written: 1, Due: 2, Arrived: 4}, c.Window)
	require.EqualValues(t, 1, c.Backlog)
	require.EqualValues(t, 1, c.Again)
	require.Equal(t, []string{"d00000000 of source 0 at target 2"}, c.Missing)
	require.Len(t, tr.delays, 2, "of the document that was written in the window")
	tr.arrive(2, []int{0})
	require.NoError(t, tr.await(t.Context()))
}

func TestBound(t *testing.T) {
	r := report{Cores: 2, Seconds: 10, Processor: processor{Node: 5, Endpoints: 2}}
	o := options{rate: 100, nodeCPUs: "1"}
	kept := counts{Seconds: 10, Window: flow{Written: 960, Due: 960}, Backlog: 90}
	require.Empty(t, r.bound(&o, kept))
	require.Contains(t, r.bound(&o, counts{Seconds: 10, Window: flow{Written: 800, Due: 800}}), "the sources")
	behind := counts{Seconds: 10, Window: flow{Written: 1000, Due: 1000}, Backlog: 2000}
	require.Contains(t, r.bound(&o, behind), "other than processors")
	r.Processor.Node = 9.5
	require.Contains(t, r.bound(&o, behind), "of the node")
	o.nodeCPUs = ""
	r.Processor.Endpoints = 9
	require.Contains(t, r.bound(&o, behind), "of the machine")
}

func TestCountCPUs(t *testing.T) {
	for list, want := range map[string]int{"": 0, "0": 1, "1,3": 2, "0-3": 4, "0,2-3": 3, "0-3:2": 0, "3-1": 0} {
		require.Equal(t, want, countCPUs(list), list)
	}
}

func TestDocNumbers(t *testing.T) {
	docs, err := docNumbers([]byte(`{"docs":[{"id":"d00000007","rev":"1-d"},{"id":"d00000012"}]}`), `"id":"`)
	require.NoError(t, err)
	require.Equal(t, []int{7, 12}, docs)
	_, err = docNumbers([]byte(`{"id":"d7`), `"id":"`)
	require.Error(t, err)
}
