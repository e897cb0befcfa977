package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv/kvtest"
)

// BenchmarkReplicateOne times a POST to _replicate that copies a database with one document into a new one on the same
// node. replicate/put is the median ratio to the PUT that wrote the document. With FoundationDB, nodes on FoundationDB
// and on a directory take turns, and fdb/pebble is the ratio of their times.
func BenchmarkReplicateOne(b *testing.B) {
	embedded := serveTimed(b, "pebble:"+filepath.Join(b.TempDir(), "data"))
	nodes := map[string]*timedNode{"pebble": embedded}
	storeURL, clustered := kvtest.ClusterURL(b)
	if clustered {
		nodes["fdb"] = serveTimed(b, storeURL)
	}
	for n := 0; b.Loop(); n++ {
		for _, node := range nodes {
			node.replicateOne(b, n)
		}
	}
	b.ReportMetric(0, "ns/op") // ns/op includes more than what is measured
	for engine, node := range nodes {
		replicate, put := median(node.replicates), median(node.puts)
		b.ReportMetric(float64(replicate.Microseconds())/1000, engine+"-ms")
		b.ReportMetric(float64(replicate)/float64(put), engine+"-replicate/put")
	}
	if clustered {
		b.ReportMetric(float64(median(nodes["fdb"].replicates))/float64(median(embedded.replicates)), "fdb/pebble")
	}
}

// timedNode is a node with the durations of its requests.
type timedNode struct {
	*process
	puts, replicates []time.Duration
}

func serveTimed(b *testing.B, store string) *timedNode {
	b.Helper()
	return &timedNode{process: serveNode(b, store)}
}

// replicateOne creates a database with one document and replicates it.
func (n *timedNode) replicateOne(b *testing.B, number int) {
	b.Helper()
	source, target := fmt.Sprint("source", number), fmt.Sprint("target", number)
	n.timed(b, http.MethodPut, "/"+source, "", http.StatusCreated)
	n.puts = append(n.puts, n.timed(b, http.MethodPut, "/"+source+"/doc", `{"a":1}`, http.StatusCreated))
	n.replicates = append(n.replicates, n.timed(b, http.MethodPost, "/_replicate",
		fmt.Sprintf(`{"source":%q,"target":%q,"create_target":true}`, n.url+"/"+source, n.url+"/"+target), http.StatusOK))
}

// timed makes a request, checks the status and returns the duration.
func (n *timedNode) timed(b *testing.B, method, path, body string, want int) time.Duration {
	b.Helper()
	began := time.Now()
	status, answer := n.request(method, path, body)
	took := time.Since(began)
	require.Equal(b, want, status, answer)
	return took
}

func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[len(times)/2]
}
