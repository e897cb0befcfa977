package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/internal/servers"
	"settee/scripts/bench/lab"
)

var built string // the path of settee

// All scenarios have one folder for temporary files, in which nothing may be left.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bench-test-")
	if err != nil {
		panic(err)
	}
	built = filepath.Join(dir, "settee")
	temporary := filepath.Join(dir, "tmp")
	if err := errors.Join(os.Mkdir(temporary, 0o700), os.Setenv("TMPDIR", temporary)); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
			fmt.Fprintln(os.Stderr, "left behind:", left, err)
			status = 1
		}
		_ = os.RemoveAll(dir)
		os.Exit(status)
	}))
}

var build = sync.OnceValue(func() error { return servers.BuildSettee(context.Background(), "../..", "", built) })

// execute runs a scenario with these arguments.
func execute(ctx context.Context, t *testing.T, progress io.Writer, args ...string) (*lab.Report, error) {
	t.Helper()
	require.NoError(t, build())
	return lab.Execute(ctx, scenarios, append(args, "-settee="+built, "-limit=5m"), progress)
}

// measured runs a scenario to its end. It skips the test if a server is not installed.
func measured(t *testing.T, args ...string) *lab.Report {
	t.Helper()
	r, err := execute(t.Context(), t, t.Output(), args...)
	if errors.Is(err, servers.ErrNotInstalled) {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NoError(t, r.Print(t.Output()))
	return r
}

func TestContinuousJobs(t *testing.T) {
	t.Parallel()
	r := measured(t, "load", "-databases=10", "-jobs=10", "-rate=200", "-warm-up=500ms", "-duration=2s")
	require.Contains(t, r.Find("  arrived"), ", 0 lost")
	require.Equal(t, "0", r.Find("  arrived again"))
	require.Regexp(t, `^[1-9]\d* MiB at most$`, r.Find("memory of the node"))
	require.Regexp(t, `^[1-9]\d\d`, r.Find("in all: documents written"), "more than at first")
	require.Regexp(t, `^median \d`, r.Find("delay"))
}

// Each document of a source arrives at all targets.
func TestFan(t *testing.T) {
	t.Parallel()
	r := measured(t, "load", "-databases=1", "-jobs=20", "-sources=1", "-docs=3", "-rate=0", "-warm-up=0s", "-duration=1s")
	require.Equal(t, "60 of 60, 0 lost", r.Find("  arrived"))
}

// Simulated endpoints also answer nodes that read documents one by one.
func TestOneShotJobs(t *testing.T) {
	for _, bulk := range []string{"true", "false"} {
		t.Run(bulk, func(t *testing.T) {
			t.Parallel()
			r := measured(t, "load", "-databases=2", "-jobs=20", "-docs=10", "-once", "-set=replicator/use_bulk_get="+bulk)
			require.Equal(t, "400 of 400, 0 lost", r.Find("  arrived"))
			require.Contains(t, r.Find("  jobs"), "40 completed;")
		})
	}
}

func TestLoadOfServers(t *testing.T) {
	for _, name := range []string{lab.OnSettee, lab.OnCouchDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := measured(t, "load", "-databases=1", "-jobs=3", "-rate=10", "-warm-up=0s", "-duration=1s", "-endpoints="+name)
			require.Contains(t, r.Find("  arrived"), ", 0 lost")
			require.Contains(t, r.Find("  of a core"), "endpoints")
		})
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

// A scenario that is interrupted leaves nothing behind.
func TestInterrupted(t *testing.T) {
	for _, at := range []string{"jobs added", "all jobs run", "measured"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			_, err := execute(ctx, t, interrupt{at, cancel}, "load", "-databases=2", "-jobs=3", "-warm-up=0s", "-duration=100ms", "-rate=10")
			require.ErrorIs(t, err, errInterrupted)
		})
	}
}

// TestFleet runs all cases that need one node.
func TestFleet(t *testing.T) {
	t.Parallel()
	r := measured(t, "fleet", "-jobs=30", "-targets=3", "-slots=5", "-idle=1s", "-quiet=1s", "-rate=20", "-duration=1s", "-burst=10")
	require.Regexp(t, `^[1-9].* jobs/s`, r.Find("documents into _replicator until all jobs have run"))
	require.Regexp(t, `^[1-9]\d* MB`, r.Find("all jobs parked: memory"))
	require.Regexp(t, `; [1-9]\d* documents$`, r.Find("changes in random databases: change to target"))
	require.Regexp(t, `^10 in `, r.Find("databases that change at once: all at their targets"))
	require.Regexp(t, `^\d+\.\d\d s$`, r.Find("restart: answers after"))
}

// TestFleetOfCouchDB runs the cases with parked jobs on databases of a CouchDB, with its feed and without.
func TestFleetOfCouchDB(t *testing.T) {
	for _, name := range []string{lab.OnCouchDB, lab.OnCouchDBWithoutFeed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := measured(t, "fleet", "-endpoints="+name, "-cases=parked,changes", "-jobs=10", "-targets=2", "-slots=3", "-idle=1s",
				"-quiet=1s", "-rate=5", "-duration=1s")
			require.Regexp(t, `^[1-9]\d* MB`, r.Find("all jobs parked: memory"))
			require.Regexp(t, `; [1-9]\d* documents$`, r.Find("changes in random databases: change to target"))
		})
	}
}

func TestMirror(t *testing.T) {
	t.Parallel()
	r := measured(t, "mirror", "-databases=5", "-docs=3", "-new=1")
	require.Contains(t, r.Find("a mirror copies all databases"), "databases/s")
	require.Contains(t, r.Find("a loop of _replicate, by CouchDB"), "databases/s")
	require.Regexp(t, `^\d+\.\d\d$`, r.Find("the mirror's time, of the loop's"))
	require.Contains(t, r.Find("first document of a new database: at the target"), "; 1 databases")
}

func TestCouchDB(t *testing.T) {
	t.Parallel()
	r := measured(t, "couchdb", "-size=0.001", "-pairs=1", "-idle=1ms", "-all")
	for _, name := range []string{"docs", "small", "far-50ms", "burst"} {
		require.Regexp(t, `^\d+\.\d\d \(`, r.Find(name, "time, s"), name)
	}
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"":                                      "usage: bench budget|couchdb|fleet|load|mirror|peers",
		"loads":                                 "usage: ",
		"load more":                             "takes no arguments",
		"load -jobs=0":                          "there must be a job",
		"load -rate=-1":                         "-rate must not be negative",
		"load -databases=1 -jobs=3 -sources=4":  "more sources than jobs",
		"load -endpoints=tape":                  `there is no endpoint "tape"`,
		"fleet -cases=fewer":                    `there is no case "fewer"`,
		"fleet -jobs=0":                         "must be positive",
		"fleet -rate=0":                         "must be positive",
		"fleet -idle=1ms":                       "at least a second",
		"fleet -jobs=10 -burst=11":              "more sources that change at once",
		"fleet -cases=roll -nodes=1 -store=fdb": "needs -nodes",
		"fleet -nodes=1":                        "needs -store fdb",
		"mirror -databases=0":                   "must be positive",
		"mirror -pairs=0":                       "must be positive",
		"mirror -new=0":                         "must be positive",
		"couchdb -pairs=0":                      "must be positive",
		"couchdb -cases=docs,dogs":              "there is no such case",
		"peers -jobs=1":                         "there must be 5 jobs",
	} {
		var printed bytes.Buffer
		_, err := lab.Execute(t.Context(), scenarios, strings.Fields(args), &printed)
		require.ErrorIs(t, err, lab.ErrUsage, args)
		require.Contains(t, printed.String(), want, args)
	}
}
