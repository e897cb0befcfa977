//go:build fdb

package fdbkv

import (
	"fmt"
	"sync"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
)

// apiVersion is the version of FoundationDB's client interface that this package uses.
const apiVersion = 730

// connection is the client's connection to one cluster.
type connection struct {
	fdb.Database
	clusterFile string
	maxWatches  int
	stores      int // under connections.mu
}

// connections are the open connections by cluster file. The binding has such a map too, but it is neither guarded nor
// counts its users.
var connections = struct {
	mu     sync.Mutex
	byFile map[string]*connection
}{byFile: map[string]*connection{}}

// connect returns the connection for clusterFile, and counts one more store.
func connect(clusterFile string, maxWatches int) (*connection, error) {
	connections.mu.Lock()
	defer connections.mu.Unlock()
	if c, ok := connections.byFile[clusterFile]; ok {
		if c.maxWatches != maxWatches {
			return nil, fmt.Errorf("a store on this cluster is open with max_watches=%d, which it would share", c.maxWatches)
		}
		c.stores++
		return c, nil
	}
	if err := fdb.APIVersion(apiVersion); err != nil {
		return nil, fmt.Errorf("starting FoundationDB's client: %w", asKV(err))
	}
	db, err := fdb.OpenDatabase(clusterFile)
	if err != nil {
		return nil, asKV(err)
	}
	if err := db.Options().SetMaxWatches(int64(maxWatches)); err != nil {
		db.Close()
		return nil, fmt.Errorf("setting max_watches: %w", asKV(err))
	}
	c := &connection{Database: db, clusterFile: clusterFile, maxWatches: maxWatches, stores: 1}
	connections.byFile[clusterFile] = c
	return c, nil
}

// release ends the use of the connection by one store. The last one closes it.
func (c *connection) release() {
	connections.mu.Lock()
	defer connections.mu.Unlock()
	if c.stores--; c.stores == 0 {
		delete(connections.byFile, c.clusterFile)
		c.Close()
	}
}
