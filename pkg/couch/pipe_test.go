package couch_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"

	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
)

// piped starts a server in a synctest bubble, on connections in memory, and opens a database of it. In the bubble time
// passes only while all goroutines wait. The server answers for every host name.
func piped(t *testing.T, handler http.HandlerFunc, edit ...func(*couch.Config)) *couch.Database {
	t.Helper()
	db, err := couch.Open(pipedConfig(t, handler, edit...))
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// pipedServer is piped for the root of the server.
func pipedServer(t *testing.T, handler http.HandlerFunc) *couch.Server {
	t.Helper()
	server, err := couch.OpenServer(pipedConfig(t, handler, func(c *couch.Config) { c.URL = "http://couch.example" }))
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func pipedConfig(t *testing.T, handler http.HandlerFunc, edit ...func(*couch.Config)) couch.Config {
	t.Helper()
	listener := couchtest.ListenPipe()
	var running sync.WaitGroup // the server and its handlers
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Done()
		handler(w, r)
	})}
	running.Go(func() { _ = server.Serve(listener) })
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return listener.Dial(ctx)
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		running.Wait()
	})
	cfg := couch.DefaultConfig()
	cfg.URL, cfg.Transport = "http://couch.example/db", transport
	for _, e := range edit {
		e(&cfg)
	}
	return cfg
}
