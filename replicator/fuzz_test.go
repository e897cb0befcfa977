package replicator_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"settee/replicator"

	"github.com/stretchr/testify/require"
)

// FuzzParse checks that parsing never panics, that what it refuses it refuses with
// a reason, and that what it accepts has ids and survives the store.
func FuzzParse(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add([]byte(v.Doc))
	}
	names, err := filepath.Glob("../testdata/wire/*rep*.request")
	require.NoError(f, err)
	require.NotEmpty(f, names)
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(f, err)
		for i := range text {
			if text[i] == '{' {
				f.Add(text[i:])
				break
			}
		}
	}
	f.Add([]byte(`{"cancel": true, "_local_id": "x y"}`))
	f.Add(definition(`"proxy": "socks5://u:p@[::1]:1", "socket_options": "[{recbuf, 1}]", "since_seq": [1, 1e5, "\ud83d\ude00"]`))
	f.Add(definition(`"selector": {"$nor": [{"a": {"$not": {"$in": [1, -5e-7, 99999999999999999999]}}}]}, "user_ctx": {"roles": []}`))

	f.Fuzz(func(t *testing.T, text []byte) {
		checkDocument(t, text)
		request, err := replicator.ParseRequest(text, replicator.ParseOptions{})
		if err == nil && request.Replication == nil {
			require.True(t, request.Cancel && request.ID != "")
			return
		}
		if err != nil {
			request = &replicator.Request{}
		}
		checkParsed(t, request.Replication, err)
	})
}

func checkParsed(t *testing.T, r *replicator.Replication, err error) {
	t.Helper()
	if err != nil {
		var parseErr *replicator.ParseError
		require.ErrorAs(t, err, &parseErr)
		require.NotEmpty(t, parseErr.Reason)
		require.Nil(t, r)
		return
	}
	require.NoError(t, r.Check(replicator.ParseOptions{}))
	_, err = r.ID(serverUUID, "code")
	require.NoError(t, err)

	back := new(replicator.Replication)
	require.NoError(t, json.Unmarshal(storedForm(t, r), back))
	require.Equal(t, r, back)
	require.Equal(t, r.JobID("u"), back.JobID("u"))
	require.True(t, r.Equal(back))
}

// checkDocument checks a text as a document, by ParseDocument and ParseBody, and
// what a job writes into it.
func checkDocument(t *testing.T, text []byte) {
	t.Helper()
	d, err := replicator.ParseDocument(text, replicator.ParseOptions{})
	if err != nil {
		checkParsed(t, nil, err)
		return
	}
	if d.Replication != nil {
		checkParsed(t, d.Replication, nil)
		require.Equal(t, replicator.KeepJob, d.Effect(d.Replication))
	} else {
		require.True(t, d.Deleted || replicator.IgnoredID(d.ID) || d.State == replicator.DocumentFailed)
	}
	_, err = json.Marshal(d.StateTime)
	require.NoError(t, err)
	body, err := replicator.ParseBody(d.ID, d.Deleted, text, replicator.ParseOptions{})
	require.NoError(t, err)
	body.Rev = d.Rev
	require.Equal(t, d, body)
	for _, state := range documentStates {
		checkUpdate(t, text, state)
	}
}
