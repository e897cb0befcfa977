package webtest

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Answer is what a client got.
type Answer struct {
	Request string // its method and target, if they are known
	Status  int
	Header  http.Header
	Body    string
}

// Is requires the answer's status, and returns the answer.
func (a Answer) Is(t *testing.T, status int) Answer {
	t.Helper()
	require.Equal(t, status, a.Status, "%s: %s", a.Request, a.Body)
	return a
}

// JSON returns the body as an object.
func (a Answer) JSON(t *testing.T) map[string]any {
	t.Helper()
	var value map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.Body), &value), "%s", a.Body)
	return value
}

// LocalID returns the _local_id of an answer to POST /_replicate.
func (a Answer) LocalID(t *testing.T) string {
	t.Helper()
	id, _ := a.JSON(t)["_local_id"].(string)
	require.NotEmpty(t, id)
	return id
}

// Rev is the revision that an answer has.
func (a Answer) Rev(t *testing.T) string {
	t.Helper()
	rev, _ := a.JSON(t)["rev"].(string)
	require.NotEmpty(t, rev, "%s", a.Body)
	return rev
}

// Results reads the answer to a bulk write.
func (a Answer) Results(t *testing.T) (results []map[string]any) {
	t.Helper()
	require.Equal(t, http.StatusCreated, a.Status, "%s", a.Body)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.NoError(t, json.Unmarshal([]byte(a.Body), &results), "%s", a.Body)
	return results
}

// Stream sends a request as it is, with headers as pairs. The caller reads the answer, and closes it.
func (n *Node) Stream(method, target, body string, headers ...string) (*http.Response, error) {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(n.Context(), method, "http://"+n.Address+"/", reader)
	if err != nil {
		return nil, err
	}
	r.URL.Opaque = "//" + n.Address + target // not cleaned
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	return n.Client.Do(r)
}

// Request sends a request as it is, with headers as pairs, and reads the answer.
func (n *Node) Request(method, target, body string, headers ...string) (Answer, error) {
	response, err := n.Stream(method, target, body, headers...)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	assert.NotContains(n, string(text), Secret)
	for name, values := range response.Header {
		assert.NotContains(n, strings.Join(values, " "), Secret, name)
	}
	return Answer{method + " " + target, response.StatusCode, response.Header, string(text)}, err
}

// Do sends a request, with headers as pairs.
func (n *Node) Do(method, target, body string, headers ...string) Answer {
	n.Helper()
	a, err := n.Request(method, target, body, headers...)
	require.NoError(n, err)
	return a
}

// Get sends a GET.
func (n *Node) Get(target string) Answer {
	n.Helper()
	return n.Do(http.MethodGet, target, "")
}

// Put sends a PUT.
func (n *Node) Put(target, body string, headers ...string) Answer {
	n.Helper()
	return n.Do(http.MethodPut, target, body, headers...)
}

// PostJSON posts JSON to a database, or to what is below one.
func (n *Node) PostJSON(target, body string) Answer {
	n.Helper()
	return n.Do(http.MethodPost, target, body, "Content-Type", "application/json")
}

// Refused requires an error with a status, a code and a reason.
func Refused(t *testing.T, a Answer, status int, code, reason string) {
	t.Helper()
	require.Equal(t, status, a.Status, "%s: %s", a.Request, a.Body)
	want := map[string]any{"error": code, "reason": reason}
	require.Equal(t, want, a.JSON(t))
}
