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

// piped starts a server inside a synctest bubble, on connections that are pipes in memory, and opens a
// database of it. Inside the bubble time passes only while everyone waits. The server has all names.
func piped(t *testing.T, handler http.HandlerFunc, edit ...func(*couch.Config)) *couch.Database {
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
	cfg := couch.Config{URL: "http://couch.example/db", Transport: transport}
	for _, e := range edit {
		e(&cfg)
	}
	db, err := couch.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return db
}
