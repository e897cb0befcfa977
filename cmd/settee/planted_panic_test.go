package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/config"
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

// panicInARun runs a node whose log panics in the goroutine of a run.
func panicInARun(t *testing.T) {
	m := &marks{}
	m.plant("admin-environment")
	crash := &panicking{plantedDefinition(m, "http://127.0.0.1:1/x", "http://127.0.0.1:1/y", "")}
	cfg, _, err := config.Load(config.Options{
		Environ: []string{"COUCHDB_USER=admin", "COUCHDB_PASSWORD=" + m.all()["admin-environment"]},
		Flags:   []string{"chttpd/port=0", "chttpd_auth/iterations=10", "log/level=debug", "replicator/retries_per_request=0", "settee/store=mem:"},
	})
	require.NoError(t, err)
	log := &testkit.Journal{}
	go func() {
		_ = (&node{cfg: cfg, log: zerolog.New(io.MultiWriter(log, os.Stderr, crash))}).run(context.Background())
	}()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "settee is running") }, limit, 5*time.Millisecond)
	n := &plantedNode{T: t, m: m, seen: map[string]string{}}
	n.url = regexp.MustCompile(`"url":"(http://[^"]+)"`).FindStringSubmatch(log.String())[1]
	_, _, _ = n.ask(n.admin(), http.MethodPost, "_replicate", crash.definition)
	<-time.After(limit) // the process ends earlier
}

// panicking is a log that panics when a run says why it has failed, in the goroutine of the run.
type panicking struct{ definition string }

func (p *panicking) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("http_request_failed")) {
		p.panic()
	}
	return len(line), nil
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
