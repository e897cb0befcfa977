package databases_test

import (
	"net"
	"net/http"
	"testing"

	"github.com/gorilla/mux"
	"go.uber.org/goleak"

	"settee/frontend/internal/access"
	"settee/frontend/internal/databases"
	"settee/frontend/internal/functions"
	"settee/frontend/internal/web"
	"settee/frontend/internal/webtest"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/kvtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

// node is a node with nothing but databases and sessions.
type node struct {
	*webtest.Node
	connections *web.Connections
}

// start starts a node on a store in memory. The settings are section/key=value.
func start(t *testing.T, settings ...string) *node {
	t.Helper()
	return startOn(t, webtest.Memory(t), webtest.ListenTCP(t), settings...)
}

func startOn(t *testing.T, db kv.Database, listener net.Listener, settings ...string) *node {
	t.Helper()
	return startWith(t, db, listener, docstore.Hooks{}, settings...)
}

// startWith starts a node whose document store has these hooks.
func startWith(t *testing.T, db kv.Database, listener net.Listener, hooks docstore.Hooks, settings ...string) *node {
	t.Helper()
	n := &node{Node: webtest.Open(t, db, hooks, settings...)}
	n.connections = web.NewConnections(n.Config, n.MemoryLimit(), 0, n.Logger())
	guard := &access.Guard{Documents: n.Documents, Accounts: n.Accounts, Settings: n.Config}
	run := functions.New(n.Config, n.MemoryLimit())
	t.Cleanup(run.Close)
	endpoints := &databases.Endpoints{
		Documents: n.Documents, Settings: n.Config, Connections: n.connections, Guard: guard, Functions: run, UUIDs: new(web.UUIDs),
		Node: "node1.example",
	}
	server := &web.Server{Settings: n.Config, Connections: n.connections, Log: n.Logger()}
	router := mux.NewRouter().UseEncodedPath().SkipClean(true)
	router.Handle("/_session", server.Endpoint(web.Methods{http.MethodGet: guard.GetSession}))
	endpoints.Route(router, server, func(act web.Action, _ ...string) web.Action { return act })
	router.NotFoundHandler = server.Action(web.UnknownPath)
	n.Serve(listener, server.HTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.Serve(w, r, func(w http.ResponseWriter, r *http.Request) error {
			known, err := guard.Admit(w, r)
			if err == nil {
				router.ServeHTTP(w, known)
			}
			return err
		})
	})))
	return n
}
