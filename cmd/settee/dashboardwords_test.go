package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
)

// toldWords returns the words of a table of docs/http.md.
func toldWords(t *testing.T, column string) []string {
	t.Helper()
	return testkit.Words(t, "../../docs/http.md", column)
}

// The pages show what the node tells, whatever the words: the list and the page of a job have the state, the message and the fault
// of each, and the page of a job has all marks and the advice.
func TestDashboardShowsWhatTheNodeTells(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	var told []map[string]any
	tell := func(condition map[string]any) {
		id := fmt.Sprintf("job-%d", len(told))
		told = append(told, map[string]any{
			"job_id": id, "id": id, "database": "_replicator", "doc_id": id, "user": nil, "source": "http://a.example/x/", "target": "http://b.example/y/",
			"state": "pending", "info": nil, "history": []any{}, "runs": []any{}, "node": nil, "start_time": nil, "condition": condition,
		})
	}
	states := append(toldWords(t, "state"), "newer")
	for i, reason := range append(toldWords(t, "reason"), "newer") {
		tell(map[string]any{"state": states[i%len(states)], "reason": reason, "message": "does " + reason})
	}
	for i, code := range append(toldWords(t, "code"), "newer") {
		fault := map[string]any{"code": code, "message": "source a: " + code + " here", "text": "CouchDB's " + code}
		message := []string{"waits", "has failed: source a: " + code + " here"}[i%2]
		tell(map[string]any{"state": "crashing", "reason": "backoff", "message": message, "fault": fault, "advice": map[string]any{"code": code, "text": "Do " + code}})
	}
	var marks []any
	for i, mark := range append(toldWords(t, "mark"), "newer_mark") {
		marks = append(marks, map[string]any{"type": mark, "since": "2026-01-02T12:00:00Z", "count": 70 + i})
	}
	tell(map[string]any{"state": "running", "reason": "copying", "message": "copies", "marks": marks})

	to, err := url.Parse(withoutAdmin(node.url))
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = map[string]any{"total_rows": len(told), "offset": 0, "jobs": told}
		id, one := strings.CutPrefix(r.URL.Path, "/_scheduler/jobs/")
		switch {
		case one && strings.Contains(id, "/"):
			answer = map[string]any{"total": 0, "failures": []any{}}
		case one:
			for _, job := range told {
				if job["job_id"] == id {
					answer = job
				}
			}
		case r.URL.Path != "/_scheduler/jobs":
			proxy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(front.Close)
	d := openDashboard(t, &process{t: t, url: front.URL + "/"}, adminName, adminPassword)
	d.show("jobs")
	d.WaitText(".total", fmt.Sprintf("%d jobs", len(told)))
	list := d.Text("document.querySelector('table.jobs').innerText")
	for i, job := range told {
		c := job["condition"].(map[string]any)
		seen := []string{c["state"].(string), c["message"].(string)}
		if fault, ok := c["fault"].(map[string]any); ok {
			seen[1] = strings.TrimSuffix(seen[1], ": "+fault["message"].(string))
			seen = append(seen, fault["message"].(string))
			assert.Equal(t, 1, strings.Count(list, fault["message"].(string)), "once: %s", fault["code"])
		}
		for _, text := range seen {
			assert.Contains(t, list, text)
		}
		if i%10 == 0 || i == len(told)-1 || strings.HasPrefix(seen[1], "waits") && i%4 == 0 { // all are shown in the same way
			d.show("jobs/" + job["job_id"].(string))
			d.WaitText("h1", job["job_id"].(string))
			d.WaitText(".now", c["state"].(string))
			d.WaitText(".now", seen[1])
			if advice, ok := c["advice"].(map[string]any); ok {
				d.WaitText("main", advice["text"].(string))
				d.WaitText(".trouble", c["fault"].(map[string]any)["message"].(string))
			}
		}
	}
	facts := d.Text("document.querySelector('main dl').innerText")
	for i := range marks {
		assert.Contains(t, facts, fmt.Sprint(70+i), "%v", marks[i])
	}
	assert.Contains(t, facts, "newer mark")
}
