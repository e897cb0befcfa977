package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"settee/internal/logtest"
	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
	"settee/replicator"
)

// A panic in a run ends the process. Its output contains no secrets either.
func TestPanicInARun(t *testing.T) {
	t.Parallel()
	if panics() != "" {
		panicInARun(t)
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	for _, what := range []string{"error", "endpoint", "replication", "args"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			out, err := runPanicking(ctx, self, what)
			require.Error(t, err)
			require.Contains(t, out, "panic: ")
			require.Contains(t, out, "replicator/scheduler.(*Server).run")
			require.Contains(t, out, "replication started")
			m := &marks{fields: plantedFields}
			require.Empty(t, m.in(out), out)
		})
	}
}

var plantedFields = func() []string {
	m := &marks{}
	m.plant("admin-environment")
	plantedDefinition(m, "http://127.0.0.1:1/x", "http://127.0.0.1:1/y", "")
	return m.fields
}()

// panicInARun runs a node whose store panics in the goroutine of a run.
func panicInARun(t *testing.T) {
	m := &marks{}
	m.plant("admin-environment")
	db, err := memkv.Open(memkv.Options{})
	require.NoError(t, err)
	store := &panicking{Database: db, definition: plantedDefinition(m, "http://127.0.0.1:1/x", "http://127.0.0.1:1/y", "")}
	cfg, _, err := config.Load(config.Options{
		Environ: []string{"COUCHDB_USER=admin", "COUCHDB_PASSWORD=" + m.all()["admin-environment"]},
		Flags:   []string{"chttpd/port=0", "chttpd_auth/iterations=10", "log/level=debug", "replicator/retries_per_request=0"}, Store: plantedEngine(func(kv.Options) (kv.Database, error) { return store, nil }),
	})
	require.NoError(t, err)
	log := &logtest.Journal{}
	go func() {
		_ = serve(context.Background(), cfg, nil, nil, nil, zerolog.New(io.MultiWriter(log, os.Stderr)))
	}()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "settee is running") }, limit, 5*time.Millisecond)
	n := &plantedNode{T: t, m: m, seen: map[string]string{}}
	n.url = regexp.MustCompile(`"url":"(http://[^"]+)"`).FindStringSubmatch(log.String())[1]
	_, _, _ = n.ask(n.admin(), http.MethodPost, "_replicate", store.definition)
	<-time.After(limit) // the process ends earlier
}

// panicking panics in the first write of a run's progress.
type panicking struct {
	kv.Database
	definition string
}

func (p *panicking) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers[:])])
	inRun, inCrash := false, false
	for {
		frame, more := frames.Next()
		inRun = inRun || strings.HasSuffix(frame.Function, "scheduler.(*Server).run")
		inCrash = inCrash || strings.HasSuffix(frame.Function, "scheduler.(*Server).ended")
		if !more {
			break
		}
	}
	if inRun && inCrash {
		p.panic()
	}
	return p.Database.Transact(ctx, fn)
}

func (p *panicking) panic() {
	request, err := replicator.ParseRequest([]byte(p.definition), replicator.ParseOptions{})
	if err != nil {
		panic("the test is wrong")
	}
	switch r := request.Replication; panics() {
	case "error":
		panic(fmt.Errorf("%v, %+v: %s", r.Source, r, r.Target))
	case "endpoint":
		panic(r.Source)
	case "replication":
		panic(r)
	case "args":
		panic(replicator.JobArgs{Replication: r})
	}
}

const panicVariable = "SETTEE_TEST_PANIC"

// panics reports whether this process should panic, and with which value.
func panics() string { return os.Getenv(panicVariable) }

func runPanicking(ctx context.Context, self, what string) (string, error) {
	cmd := exec.CommandContext(ctx, self, "-test.run", "^TestPanicInARun$")
	cmd.Env = append(os.Environ(), panicVariable+"="+what)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
