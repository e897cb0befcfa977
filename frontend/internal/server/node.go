package server

import (
	"net/http"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/collate"

	"settee/frontend/internal/web"
	"settee/pkg/script"
)

// isSelf reports whether a name in a path is this node's: its own name or _local. A node that is alone also has the names
// of a CouchDB that is alone, which scripts contain.
func (e *Endpoints) isSelf(name string) bool {
	switch name {
	case "_local", e.Node:
		return true
	case "nonode@nohost", "couchdb@127.0.0.1":
		live, _ := e.nodeNames()
		return len(live) <= 1
	}
	return false
}

// OfNode returns the action of a path of this node. Nodes do not ask one another, so a request for another node is
// refused. But settings may be written by any name: they are for all nodes.
func (e *Endpoints) OfNode(next http.Handler) web.Action {
	return func(w http.ResponseWriter, r *http.Request) error {
		name := web.PathValue(r, "node")
		if !e.isSelf(name) {
			_, known := e.nodeNames()
			switch {
			case !slices.Contains(known, name):
				return web.NotFound("no such node: " + web.Cut(name))
			case r.Method != http.MethodPut && r.Method != http.MethodDelete:
				return web.NotImplemented("nodes do not ask one another: send the request to " + name + " itself")
			}
		}
		next.ServeHTTP(w, r)
		return nil
	}
}

// NodeName answers GET /_node/{node}.
func (e *Endpoints) NodeName(w http.ResponseWriter, r *http.Request) error {
	return web.Respond(w, r, http.StatusOK, map[string]string{"name": e.Node})
}

// Prometheus answers with the metrics of this node.
func (e *Endpoints) Prometheus(w http.ResponseWriter, r *http.Request) error {
	web.ExtendDeadline(w)
	e.Metrics.ServeHTTP(w, r)
	return nil
}

// Statistics answers _stats, and paths below it with a part of its tree. As in CouchDB the answer is null where there is
// nothing.
func (e *Endpoints) Statistics(w http.ResponseWriter, r *http.Request) error {
	var part any = e.Stats()
	for name := range strings.SplitSeq(web.PathValue(r, "path"), "/") {
		if name != "" {
			members, _ := part.(map[string]any)
			part = members[name]
		}
	}
	return web.Respond(w, r, http.StatusOK, part)
}

// memory is the memory of this node in bytes. As in CouchDB the sum of Other and Processes is all memory.
type memory struct {
	Other         uint64 `json:"other"`
	Processes     uint64 `json:"processes"`
	ProcessesUsed uint64 `json:"processes_used"`
}

// System answers _system, with the ones of CouchDB's members that have a meaning here. Goroutines are the processes.
func (e *Endpoints) System(w http.ResponseWriter, r *http.Request) error {
	values := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/memory/classes/os-stacks:bytes"},
		{Name: "/sched/goroutines/runnable:goroutines"}, {Name: "/sched/goroutines:goroutines"},
		{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/frees:bytes"},
	}
	metrics.Read(values)
	value := func(i int) uint64 { return values[i].Value.Uint64() }
	stacks := value(2) + value(3)
	const bytesOfWord = 8
	return web.Respond(w, r, http.StatusOK, struct {
		Uptime         int64  `json:"uptime"` // seconds
		Memory         memory `json:"memory"`
		RunQueue       uint64 `json:"run_queue"`
		Collections    uint64 `json:"garbage_collection_count"`
		WordsReclaimed uint64 `json:"words_reclaimed"`
		ProcessCount   uint64 `json:"process_count"`
	}{
		int64(time.Since(e.Began).Seconds()), memory{value(0) - value(1) - stacks, stacks, stacks}, value(4), value(6),
		value(7) / bytesOfWord, value(5),
	})
}

// named is a part of this program, and its version.
type named struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Versions answers _versions. The collation version is the selectors' one.
func (e *Endpoints) Versions(w http.ResponseWriter, r *http.Request) error {
	type collation struct {
		Name      string `json:"name"`
		Algorithm string `json:"collation_algorithm_version"`
	}
	return web.Respond(w, r, http.StatusOK, struct {
		JavaScript named     `json:"javascript_engine"`
		Collation  collation `json:"collation_driver"`
		Go         string    `json:"go"`
		Settee     string    `json:"settee"`
	}{
		named{"quickjs", script.EngineVersion}, collation{"golang.org/x/text/collate", collate.UnicodeVersion},
		runtime.Version(), e.Version,
	})
}
