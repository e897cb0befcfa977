package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/cmd/settee/internal/remote"
)

// nodeAnswers are a node's answers, with a job that crashes, one that runs, and a text that would clear the terminal.
var nodeAnswers = map[string]string{
	"/_scheduler/summary": `{"jobs": {"running": 1, "pending": 2, "crashing": 1}, "oldest_due": "2026-01-02T11:00:00Z"}`,
	"/_scheduler/nodes":   `{"nodes": [{"name": "n", "roles": ["replication"], "live": true, "running": 2, "max_jobs": 2}]}`,
	"/_scheduler/rates": `{"since": 0, "step": 10, "docs_written": [0, 500, 1], "doc_write_failures": [0, 0, 0],
		"bytes_received": [0, 20000, 0], "bytes_sent": [0, 10000, 0]}`,
	"/_scheduler/problems": `{"attention": 1, "total_rows": 1, "problems": [{"kind": "failing", "message": "b.example: 500 \u001b[2Jfull",
		"jobs": 1, "first": [{"job_id": "a", "database": "_replicator", "doc_id": "本棚"}]}]}`,
	"running": `{"jobs": [{"job_id": "b", "database": "_replicator", "doc_id": "films", "state": "running", "condition": {"state": "running", "reason": "copying", "message": "copies changes"},
		"info": {"docs_read": 5, "docs_written": 1234, "changes_pending": 77}}]}`,
}

// fakeNode returns a node that answers the requests of the overview, with 503 once refused is closed.
func fakeNode(t *testing.T, refused <-chan struct{}) *Node {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := nodeAnswers[r.URL.Path]
		if r.URL.Path == "/_scheduler/jobs" {
			answer = nodeAnswers[r.FormValue("sort")+r.FormValue("condition")]
		}
		select {
		case <-refused:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		default:
		}
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Preference-Applied", r.Header.Get("Prefer"))
		if r.Header.Get("If-None-Match") == "" {
			_, _ = w.Write([]byte(answer))
			return
		}
		select { // there is no news
		case <-r.Context().Done():
		case <-refused:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s, err := remote.Connect("settee", server.URL, transport)
	require.NoError(t, err)
	return &Node{s}
}

// shown returns what is on a terminal.
func shown(terminal vt.MockTerm, width, height int) string {
	var out strings.Builder
	for y := range height {
		for x := range width {
			out.WriteString(terminal.GetCell(vt.Coord{X: vt.Col(x), Y: vt.Row(y)}).C)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// The screen of settee top follows the node, the size of the terminal and the keyboard.
func TestTop(t *testing.T) {
	t.Parallel()
	const limit = time.Minute
	refused := make(chan struct{})
	node := fakeNode(t, refused)
	terminal := vt.NewMockTerm(vt.MockOptSize{X: 120, Y: 24})
	screen, err := tcell.NewTerminfoScreenFromTty(terminal)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- node.Top(t.Context(), screen) }()
	shows := func(width, height int, texts ...string) {
		t.Helper()
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			text := shown(terminal, width, height)
			for _, want := range texts {
				assert.Contains(t, text, want)
			}
		}, limit, 10*time.Millisecond)
	}
	shows(120, 24, node.Host(), "1 of 4 jobs needs attention. All 2 slots are used, and 2 jobs wait, the oldest for ", "1 crashing", "50 documents a second",
		"b.example: 500 \uFFFD[2Jfull", "_replicator/本棚", "_replicator/films", "1,234", "77", "copies changes")
	terminal.SetSize(vt.Coord{X: 60, Y: 12})
	shows(60, 12, "1 of 4 jobs needs attention.", "LEFT  WHAT IT DOES")
	close(refused)
	shows(60, 12, "not up to date: ")
	terminal.SendRaw([]byte("x"))
	select {
	case err := <-ended:
		require.Fail(t, "a key that means nothing ended it", "%v", err)
	case <-time.After(10 * time.Millisecond):
	}
	terminal.SendRaw([]byte("q"))
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(limit):
		require.Fail(t, "q did not end it")
	}
}

// A node that refuses the first request leaves the terminal alone.
func TestTopOfNoNode(t *testing.T) {
	t.Parallel()
	refused := make(chan struct{})
	close(refused)
	terminal := vt.NewMockTerm(vt.MockOptSize{X: 40, Y: 5})
	screen, err := tcell.NewTerminfoScreenFromTty(terminal)
	require.NoError(t, err)
	err = fakeNode(t, refused).Top(t.Context(), screen)
	require.True(t, remote.IsStatus(err, http.StatusServiceUnavailable), "%v", err)
	assert.Empty(t, strings.Trim(shown(terminal, 40, 5), " \n\x00"))

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	screen, err = tcell.NewTerminfoScreenFromTty(vt.NewMockTerm())
	require.NoError(t, err)
	require.ErrorIs(t, fakeNode(t, nil).Top(canceled, screen), context.Canceled)
}
