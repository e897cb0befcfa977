package webtest

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/accounts"
	"settee/frontend/internal/access"
	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/couch/couchtest"
	"settee/pkg/docstore"
	"settee/pkg/kv"
)

// Node is a node under test: its stores, and a client that makes requests as the administrator.
type Node struct {
	*testing.T
	DB        kv.Database
	Journal   *Journal
	Documents *docstore.Store
	Accounts  *accounts.Accounts
	Config    *config.Live
	// Serve sets the fields below.
	Address string
	Client  *http.Client
	Dial    func(context.Context) (net.Conn, error)
}

// Open opens the stores of a node on an engine, which is closed when the test ends. The settings are section/key=value.
func Open(t *testing.T, db kv.Database, hooks docstore.Hooks, settings ...string) *Node {
	t.Helper()
	cfg, _, err := config.Load(config.Options{Flags: slices.Concat(Settings, settings)})
	require.NoError(t, err)
	n := &Node{T: t, DB: db, Journal: new(Journal)}
	n.Config, err = config.OpenLive(t.Context(), cfg, config.LiveOptions{Store: db, Prefix: []byte("config")})
	require.NoError(t, err)
	n.Documents = docstore.Open(db, []byte("docs"), docstore.Options{Hooks: hooks, Security: json.RawMessage(access.DefaultSecurity)})
	t.Cleanup(func() {
		n.Documents.Close()
		require.NoError(t, db.Close())
		lines, _ := n.Journal.Lines()
		assert.NotContains(t, lines, Secret)
	})
	n.Accounts, err = accounts.Open(t.Context(), accounts.Options{
		Store: db, Prefix: []byte("accounts"), Documents: n.Documents, Config: n.Config, Log: n.Logger(),
	})
	require.NoError(t, err)
	return n
}

// Logger returns the log that writes into the journal.
func (n *Node) Logger() zerolog.Logger { return zerolog.New(n.Journal).Level(zerolog.DebugLevel) }

// MemoryLimit returns the number of bytes that requests may use.
func (n *Node) MemoryLimit() int64 {
	return cmp.Or(config.MemoryLimit.Get(n.Config.Current())/4, web.DefaultMemory)
}

// Serve answers requests until the test ends.
func (n *Node) Serve(listener net.Listener, server *http.Server) {
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	n.Address = listener.Addr().String()
	n.Dial = func(ctx context.Context) (net.Conn, error) {
		if pipes, ok := listener.(*couchtest.PipeListener); ok {
			return pipes.Dial(ctx)
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", n.Address)
	}
	transport := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return n.Dial(ctx) },
		DisableCompression: true,
	}
	n.Client = &http.Client{Transport: AsAdmin{transport}}
	n.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(n, server.Shutdown(context.Background()))
		require.ErrorIs(n, <-served, http.ErrServerClosed)
	})
}
