package worker_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"settee/replicator"
	"settee/replicator/worker"
)

// endpoint serves a source with one document, and an empty target.
func endpoint(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.Method + " " + r.URL.Path {
	case "GET /source", "GET /target":
		fmt.Fprint(w, `{"instance_start_time":"0","update_seq":"1-x"}`)
	case "GET /source/_changes":
		fmt.Fprint(w, `{"results":[{"seq":"1-x","id":"rex","changes":[{"rev":"1-a"}]}],"last_seq":"1-x","pending":0}`)
	case "POST /target/_revs_diff":
		fmt.Fprint(w, `{"rex":{"missing":["1-a"]}}`)
	case "POST /source/_bulk_get":
		fmt.Fprint(w, `{"results":[{"id":"rex","docs":[{"ok":{"_id":"rex","_rev":"1-a","_revisions":{"start":1,"ids":["a"]}}}]}]}`)
	case "POST /target/_bulk_docs":
		body, _ := io.ReadAll(r.Body)
		fmt.Printf("written: %s\n", body)
		fmt.Fprint(w, `[]`)
	case "POST /target/_ensure_full_commit", "POST /source/_ensure_full_commit":
		fmt.Fprint(w, `{"ok":true,"instance_start_time":"0"}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error":"not_found","reason":"missing"}`)
	}
}

// printer is a Reporter that prints. Nodes of settee write to the job instead.
type printer struct{}

func (printer) Identify(context.Context, replicator.ID) error {
	fmt.Println("the replication id is known")
	return nil
}

func (printer) Report(context.Context, worker.Progress) error { return nil }

// This runs a one-shot replication to its end.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(endpoint))
	defer server.Close()
	body := fmt.Appendf(nil, `{"source":"%s/source","target":"%[1]s/target","use_checkpoints":false}`, server.URL)
	request, err := replicator.ParseRequest(body, replicator.ParseOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg := worker.DefaultConfig()
	cfg.ServerUUID = "of this server"
	result, err := worker.Run(context.Background(), worker.Job{Replication: request.Replication}, cfg, printer{})
	fmt.Println(result.Stats.DocsRead, result.Stats.DocsWritten, err)
	// Output:
	// the replication id is known
	// written: {"new_edits":false,"docs":[{"_id":"rex","_rev":"1-a","_revisions":{"start":1,"ids":["a"]}}]}
	// 1 1 <nil>
}
