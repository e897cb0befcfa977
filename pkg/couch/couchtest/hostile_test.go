package couchtest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"
)

func ask(t *testing.T, client *http.Client, method, url, body string, edit ...func(*http.Request)) (int, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for _, e := range edit {
		e(request)
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

func TestHostileIsADatabase(t *testing.T) {
	t.Parallel()
	h := couchtest.NewHostile(1)
	h.Add("a", 10, 5)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	url := server.URL + "/db"
	_, text, err := ask(t, server.Client(), http.MethodGet, url+"/_changes", "")
	require.NoError(t, err)
	require.Equal(t, `{"results":[{"seq":"1-x","id":"a","changes":[{"rev":"1-00000000000000000000000000000002"}]}],"last_seq":"1-x","pending":0}`, text)
	_, text, err = ask(t, server.Client(), http.MethodPost, url+"/_bulk_docs",
		`{"new_edits":false,"docs":[{"_id":"b","_rev":"1-b","filler":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}]}`)
	require.NoError(t, err)
	require.Equal(t, "[]", text)
	_, text, err = ask(t, server.Client(), http.MethodPost, url+"/_bulk_get", `{"docs":[{"id":"b","rev":"1-b"},{"id":"c","rev":"1-c"}]}`)
	require.NoError(t, err)
	require.Equal(t, `{"results":[{"id":"b","docs":[{"ok":{"_id":"b","_rev":"1-b","_revisions":{"start":1,"ids":["b"]},"filler":"`+strings.Repeat("x", 40)+`"}}]},`+
		`{"id":"c","docs":[{"error":{"id":"c","rev":"1-c","error":"not_found","reason":"missing"}}]}]}`, text)
	_, text, err = ask(t, server.Client(), http.MethodPost, url+"/_revs_diff", `{"b":["1-b"],"c":["1-c"]}`)
	require.NoError(t, err)
	require.Equal(t, `{"c":{"missing":["1-c"]}}`+"\n", text)
	h.Switch(couchtest.Status500, couchtest.Changes)
	status, _, err := ask(t, server.Client(), http.MethodGet, url+"/_changes", "")
	require.NoError(t, err)
	require.Equal(t, 500, status)
	h.Switch(couchtest.None, couchtest.Changes)
	status, _, err = ask(t, server.Client(), http.MethodGet, url+"/_changes", "")
	require.NoError(t, err)
	require.Equal(t, 200, status)
	require.Equal(t, 3, h.Requests(couchtest.Changes))

	h.Limit(50, false)
	status, _, err = ask(t, server.Client(), http.MethodPost, url+"/_revs_diff", strings.Repeat(" ", 51))
	require.NoError(t, err)
	require.Equal(t, 413, status)
	h.Limit(50, true)
	_, _, err = ask(t, server.Client(), http.MethodPost, url+"/_revs_diff", strings.Repeat(" ", 51))
	require.Error(t, err)
}

func TestHostileSessions(t *testing.T) {
	t.Parallel()
	h := couchtest.NewHostile(1)
	h.Username, h.Password = "u", "p"
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	status, _, err := ask(t, server.Client(), http.MethodGet, server.URL+"/db", "")
	require.NoError(t, err)
	require.Equal(t, 401, status)
	status, _, err = ask(t, server.Client(), http.MethodGet, server.URL+"/db", "", func(r *http.Request) { r.SetBasicAuth("u", "p") })
	require.NoError(t, err)
	require.Equal(t, 200, status)
	status, _, err = ask(t, server.Client(), http.MethodPost, server.URL+"/_session", `{"name":"u","password":"wrong"}`)
	require.NoError(t, err)
	require.Equal(t, 401, status)
	status, _, err = ask(t, server.Client(), http.MethodPost, server.URL+"/_session", `{"name":"u","password":"p"}`)
	require.NoError(t, err)
	require.Equal(t, 200, status)
	cookie := func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "AuthSession", Value: "session1"}) }
	status, _, err = ask(t, server.Client(), http.MethodGet, server.URL+"/db", "", cookie)
	require.NoError(t, err)
	require.Equal(t, 200, status)
	h.Switch(couchtest.CookieExpires, couchtest.Info)
	status, _, err = ask(t, server.Client(), http.MethodGet, server.URL+"/db", "", cookie)
	require.NoError(t, err)
	require.Equal(t, 401, status)
}

func TestHostileInABubble(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := couchtest.NewHostile(1)
		h.Switch(couchtest.OneByteASec, couchtest.Info)
		client := &http.Client{Transport: couchtest.Pipe(t, map[string]http.Handler{"a.example": h})}
		began := time.Now()
		_, text, err := ask(t, client, http.MethodGet, "http://a.example/db", "")
		require.NoError(t, err)
		require.Equal(t, time.Duration(len(text))*time.Second, time.Since(began))
		_, _, err = ask(t, client, http.MethodGet, "http://b.example/db", "")
		require.ErrorContains(t, err, "no such host in the pipe")
	})
}
