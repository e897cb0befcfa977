package lab

import (
	"context"
	"net/http"
	"net/url"
	"os"

	"settee/internal/servers"
)

// startCouchDB starts the installed CouchDB (see package servers). It ends with the run.
func (r *Run) startCouchDB(ctx context.Context) (*Server, error) {
	dir, err := os.MkdirTemp(r.Dir, "couchdb-")
	if err != nil {
		return nil, err
	}
	db, err := servers.StartCouchDB(ctx, servers.CouchDBOptions{Dir: dir, Settings: map[string]map[string]string{
		"couchdb": {"max_dbs_open": "10000"},
	}})
	if err != nil {
		return nil, err
	}
	r.AtEnd(db.Kill)
	root, err := url.Parse(db.Admin())
	if err != nil {
		return nil, err
	}
	s := newServer(root)
	s.pid = db.PID()
	r.AtEnd(s.CloseIdle)
	var about struct{ Version string }
	err = s.Ask(ctx, http.MethodGet, "", nil, &about)
	s.About = "CouchDB " + about.Version
	return s, err
}

// StartFoundationDB starts a FoundationDB of one process with the engine memory, and returns the URL of its store. It ends
// with stop, at the latest with the run.
func (r *Run) StartFoundationDB(ctx context.Context) (store string, stop func(), err error) {
	dir, err := os.MkdirTemp(r.Dir, "foundationdb-")
	if err != nil {
		return "", nil, err
	}
	cluster, err := servers.StartFoundationDB(ctx, servers.FoundationDBOptions{Dir: dir})
	if err != nil {
		return "", nil, err
	}
	r.AtEnd(cluster.Stop)
	return "fdb://" + cluster.ClusterFile, cluster.Stop, nil
}
