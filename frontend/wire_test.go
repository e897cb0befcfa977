package frontend_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

// exchange is what was recorded with a real CouchDB 3.5.
type exchange struct {
	method, target, body string
	answer               answer
}

func recorded(t *testing.T) map[int]exchange {
	t.Helper()
	all := map[int]exchange{}
	for _, r := range couchtest.Recordings(t) {
		if !belongsHere(r.Number) {
			continue
		}
		request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(r.Request)))
		require.NoError(t, err)
		response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(r.Response)), request)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		// Host names in the bodies were replaced: their length is not what the header says.
		_, sent, _ := bytes.Cut(r.Request, []byte("\r\n\r\n"))
		all[r.Number] = exchange{
			method: request.Method, target: request.RequestURI, body: strings.TrimSuffix(string(sent), "\n"),
			answer: answer{response.StatusCode, response.Header, string(body)},
		}
	}
	return all
}

func belongsHere(n int) bool { return n <= 4 || n >= 65 && n <= 84 && n != 80 }

// keys lists the keys of a JSON text in their order, as paths.
func keys(t *testing.T, text string) []string {
	t.Helper()
	var out []string
	decoder := json.NewDecoder(strings.NewReader(text))
	var value func(path string)
	value = func(path string) {
		token, err := decoder.Token()
		require.NoError(t, err)
		delim, _ := token.(json.Delim)
		for (delim == '{' || delim == '[') && decoder.More() {
			inner := path + "[]"
			if delim == '{' {
				key, err := decoder.Token()
				require.NoError(t, err)
				inner = path + "." + key.(string)
				out = append(out, inner)
			}
			value(inner)
		}
		if delim != 0 {
			_, err = decoder.Token()
			require.NoError(t, err)
		}
	}
	value("")
	return out
}

func (n *node) send(e exchange) answer {
	n.Helper()
	if e.body == "" {
		return n.do(e.method, e.target, "")
	}
	return n.do(e.method, e.target, e.body, "Content-Type", "application/json")
}

// sameBytes requires the recorded answer, but what it says of the server.
func sameBytes(t *testing.T, want, got answer) {
	t.Helper()
	require.Equal(t, want.status, got.status, "%s", got.body)
	require.Equal(t, want.body, got.body)
	sameHeader(t, want, got)
}

func sameHeader(t *testing.T, want, got answer) {
	t.Helper()
	for _, name := range []string{"Content-Type", "Cache-Control"} {
		require.Equal(t, want.header.Get(name), got.header.Get(name))
	}
	require.Regexp(t, "^[0-9a-f]{10}$", got.header.Get("X-Couch-Request-ID"))
	require.Equal(t, "settee", got.header.Get("Server"))
	if got.body != "" {
		require.Equal(t, strconv.Itoa(len(got.body)), got.header.Get("Content-Length"))
	}
}

// The exchanges are one session: each goes on with what those before it left.
func TestRecordedExchanges(t *testing.T) {
	t.Parallel()
	n := start(t)
	all := recorded(t)
	require.Len(t, all, 23)

	got := n.send(all[1])
	sameHeader(t, all[1].answer, got)
	want := slices.DeleteFunc(keys(t, all[1].answer.body), func(key string) bool { return key == ".git_sha" })
	require.Equal(t, append(want, ".vendor.version"), keys(t, got.body))
	require.JSONEq(t, `{"couchdb": "Welcome", "version": "3.5.0", "uuid": "0123456789abcdef0123456789abcdef",
		"features": ["scheduler"], "vendor": {"name": "settee", "version": "1.2.3"}}`, got.body)
	for _, number := range []int{2, 3, 4} {
		sameBytes(t, all[number].answer, n.send(all[number]))
	}

	// What is recorded of the results is what a replication node would say here.
	for _, number := range []int{65, 66, 67} {
		waiting := n.posting(all[number].body)
		n.complete(n.accept(), all[number].answer.body)
		sameBytes(t, all[number].answer, <-waiting)
	}
	for _, number := range []int{68, 69, 70, 71} {
		waiting := n.posting(all[number].body)
		said := all[number].answer.json(t)
		require.NoError(t, n.accept().Fail(t.Context(), said["error"].(string), said["reason"].(string)))
		sameBytes(t, all[number].answer, <-waiting)
	}

	// A bad request is not a failure of the server.
	refused(t, n.send(all[72]), http.StatusBadRequest, "bad_request",
		"parameter `source` is missing: it must be the URL of a database, or an object with its `url`")
	for _, number := range []int{73, 74, 75} {
		sameBytes(t, all[number].answer, n.send(all[number]))
	}
	got = n.send(all[76])
	refused(t, got, http.StatusMethodNotAllowed, "method_not_allowed", "Only POST allowed")
	require.Equal(t, "POST", got.header.Get("Allow"))
	sameBytes(t, all[76].answer, n.post(""))

	started := n.send(all[77])
	require.Equal(t, all[77].answer.status, started.status)
	require.Equal(t, keys(t, all[77].answer.body), keys(t, started.body))
	require.Regexp(t, `^\{"ok":true,"_local_id":"[0-9a-f]{32}\+continuous"\}\n$`, started.body)
	n.accept()
	listing(t, all[78].answer, n.send(all[78]))
	job := all[79]
	job.target = "/_scheduler/jobs/" + strings.Replace(started.localID(t), "+", "%2B", 1)
	listing(t, job.answer, n.send(job))

	cancelled := n.send(all[81])
	require.Equal(t, all[81].answer.status, cancelled.status)
	require.Equal(t, started.body, cancelled.body)
	for _, number := range []int{82, 83, 84} {
		sameBytes(t, all[number].answer, n.send(all[number]))
	}
}

// listing requires a list of jobs, or a job, with the recorded keys, and state
// behind them. CouchDB's job had no info yet.
func listing(t *testing.T, want, got answer) {
	t.Helper()
	require.Equal(t, want.status, got.status)
	sameHeader(t, want, got)
	withoutInfo := slices.DeleteFunc(keys(t, got.body), func(key string) bool { return strings.Contains(key, ".info.") })
	var expected []string
	for _, key := range keys(t, want.body) {
		expected = append(expected, key)
		if prefix, last := strings.CutSuffix(key, ".start_time"); last {
			expected = append(expected, prefix+".state")
		}
	}
	require.Equal(t, expected, withoutInfo)

	job := got.json(t)
	if rows, ok := job["jobs"].([]any); ok {
		require.EqualValues(t, 1, job["total_rows"])
		require.EqualValues(t, 0, job["offset"])
		job = rows[0].(map[string]any)
	}
	require.Equal(t, adminName, job["user"])
	for _, name := range []string{"database", "doc_id"} {
		require.Nil(t, job[name], name)
	}
	require.Equal(t, "http://couch.example:5984/wire/", job["source"])
	require.Equal(t, "http://couch.example:5984/wirecopy/", job["target"])
	require.Equal(t, "<0.1.0>", job["pid"])
	require.Equal(t, "node1", job["node"])
	require.Equal(t, "running", job["state"])
	_, err := time.Parse("2006-01-02T15:04:05Z", job["start_time"].(string))
	require.NoError(t, err)
	for i, what := range []string{"started", "added"} {
		event := job["history"].([]any)[i].(map[string]any)
		require.Equal(t, what, event["type"])
		_, err := time.Parse("2006-01-02T15:04:05Z", event["timestamp"].(string))
		require.NoError(t, err)
	}
}
