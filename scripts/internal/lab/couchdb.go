package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"settee/internal/servers"
)

// CouchDB is a CouchDB whose databases are copied.
type CouchDB struct {
	*Server
	// About is its name and version.
	About string

	shards  int
	process *servers.CouchDB // nil for one at a URL
	dir     string           // of the process
}

// OpenCouchDB checks that the CouchDB at a URL answers, or starts the installed one (see package servers) if the URL is
// empty. Its new databases have so many shards.
func OpenCouchDB(ctx context.Context, named string, shards int) (*CouchDB, error) {
	c := &CouchDB{shards: shards}
	if named == "" {
		dir, err := os.MkdirTemp("", "bench-couchdb-")
		if err != nil {
			return nil, err
		}
		c.dir = dir
		c.process, err = servers.StartCouchDB(ctx, servers.CouchDBOptions{Dir: dir, Temporary: true,
			Settings: map[string]map[string]string{
				"replicator": {"max_jobs": "100000"},
				"couchdb":    {"max_dbs_open": "10000"},
			}})
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		named = c.process.Admin()
	}
	root, err := url.Parse(strings.TrimSuffix(named, "/"))
	if err != nil || root.User == nil || root.Host == "" {
		return nil, errors.Join(errors.New("the URL of CouchDB is not one with a name and a password"), c.Close())
	}
	c.Server = NewServer(root)
	var about struct{ Version string }
	if err := c.Ask(ctx, http.MethodGet, "", nil, &about); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.About = "CouchDB " + about.Version
	return c, nil
}

// Close ends a CouchDB that OpenCouchDB has started.
func (c *CouchDB) Close() error {
	if c.Server != nil {
		c.CloseIdle()
	}
	if c.process == nil {
		return nil
	}
	c.process.Kill()
	return os.RemoveAll(c.dir)
}

// Create makes a database with a new name.
func (c *CouchDB) Create(ctx context.Context) (string, error) {
	name := "bench-" + strings.ToLower(rand.Text())
	return name, c.Ask(ctx, http.MethodPut, fmt.Sprintf("%s?q=%d&n=1", name, c.shards), nil, nil)
}

// Remove deletes databases.
func (c *CouchDB) Remove(ctx context.Context, names ...string) error {
	var all error
	for _, name := range names {
		all = errors.Join(all, c.Ask(ctx, http.MethodDelete, name, nil, nil))
	}
	return all
}

// Processor returns the processor time of all its processes, or 0 if it is unknown because the CouchDB is at a URL.
func (c *CouchDB) Processor() (time.Duration, error) {
	if c.process == nil {
		return 0, nil
	}
	return servers.ProcessorTime(c.process.PID())
}
