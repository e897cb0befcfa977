package frontend_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/fdbjobs"
	"settee/frontend"
	"settee/frontend/accounts"
	"settee/frontend/internal/webtest"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/nodes"
	"settee/pkg/sealed"
	"settee/replicator"
	"settee/replicator/jobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

// onlyAdmin returns accounts with the administrator only, for handlers without a store.
func onlyAdmin(t *testing.T) *accounts.Accounts {
	t.Helper()
	_, _, only := emptyStore(t)
	return only
}

// emptyStore returns the parts of a node with a store in memory and one account, the administrator's.
func emptyStore(t *testing.T) (*docstore.Store, *config.Live, *accounts.Accounts) {
	t.Helper()
	n := webtest.Open(t, webtest.Memory(t), docstore.Hooks{})
	return n.Documents, n.Config, n.Accounts
}

// node is a frontend and its store.
type node struct {
	*webtest.Node
	layer  *fdbjobs.Layer
	jobs   *jobs.Store
	others []nodes.Seen // nodes of the store, beside this one
	// registry, if set, has the nodes.
	registry atomic.Pointer[nodes.Registry]
	handler  *frontend.Handler
	server   *http.Server
}

// start starts a node on a store in memory. The settings are section/key=value.
func start(t *testing.T, settings ...string) *node {
	t.Helper()
	return startOn(t, webtest.Memory(t), webtest.ListenTCP(t), settings...)
}

func startOn(t *testing.T, db kv.Database, listener net.Listener, settings ...string) *node {
	t.Helper()
	n := &node{layer: fdbjobs.Open(db, []byte("jobs"), fdbjobs.Options{Derive: jobs.Derivations(), Sealer: (*sealed.Keys)(nil)})}
	var err error
	n.jobs, err = jobs.Open(t.Context(), db, n.layer, jobs.Options{UUID: "0123456789abcdef0123456789abcdef", Documents: []byte("docs")})
	require.NoError(t, err)
	n.Node = webtest.Open(t, db, n.jobs.Documents.Hooks(nil), settings...)
	t.Cleanup(n.layer.Close)
	n.handler = frontend.New(frontend.Options{
		Jobs: n.jobs, Documents: n.Documents, Accounts: n.Accounts, Config: n.Config, Node: "node1.example", Version: "1.2.3", Log: n.Logger(),
		Memory: n.MemoryLimit(),
		Nodes:  n.seen, Cordon: n.cordon, Stats: func() map[string]any { return someStats },
		WriteFailure: func() error { return context.Cause(kv.Writable(db)) },
	})
	t.Cleanup(n.handler.Close)
	n.server = frontend.NewServer(n.handler)
	n.Serve(listener, n.server)
	return n
}

func (n *node) post(body string) webtest.Answer {
	n.Helper()
	return n.Do(http.MethodPost, "/_replicate", body, "Content-Type", "application/json")
}

// posting posts without waiting for the answer.
func (n *node) posting(body string) <-chan webtest.Answer {
	out := make(chan webtest.Answer, 1)
	go func() {
		a, err := n.Request(http.MethodPost, "/_replicate", body, "Content-Type", "application/json")
		assert.NoError(n, err)
		out <- a
	}()
	return out
}

// definition is the body of a replication with some more members.
func definition(members string) string {
	text := `{"source": {"url": "http://a.example/db", "auth": {"basic": {"username": "adm", "password": "` + webtest.Secret + `"}},
		"headers": {"X-Key": "` + webtest.Secret + `"}}, "target": "http://adm:` + webtest.Secret + `@b.example/db"`
	if members != "" {
		text += ", " + members
	}
	return text + "}"
}

// accept takes a job and starts it, as a replication node does.
func (n *node) accept() *jobs.Run {
	n.Helper()
	run, err := accept(n.Context(), n.jobs)
	require.NoError(n, err)
	require.NoError(n, run.Start(n.Context(), "node1", "<0.1.0>"))
	return run
}

// opened accepts a job whose run has opened its databases, and so keeps its replication id from jobs of other users.
func (n *node) opened() *jobs.Run {
	n.Helper()
	run := n.accept()
	base, _, continuous := strings.Cut(run.Job().ReplicationID(), "+continuous")
	require.NoError(n, run.Identify(n.Context(), replicator.ID{Base: base, Continuous: continuous}))
	require.NoError(n, run.Opened(n.Context()))
	return run
}

func (n *node) complete(run *jobs.Run, result string) {
	n.Helper()
	require.NoError(n, run.Complete(n.Context(), func(s *replicator.JobState) { s.Result = json.RawMessage(result) }))
}

// accepting takes a job and starts it when there is one, unless the test ends before that.
func (n *node) accepting() <-chan *jobs.Run {
	out := make(chan *jobs.Run, 1)
	go func() {
		run, err := accept(n.Context(), n.jobs)
		if err == nil && run.Start(n.Context(), "node1", "<0.1.0>") == nil {
			out <- run
		}
	}()
	return out
}

// accept takes a job.
func accept(ctx context.Context, store *jobs.Store) (*jobs.Run, error) {
	runs, err := store.Runs.Accept(ctx, 1, nil)
	if err != nil {
		return nil, err
	}
	return runs[0], nil
}
