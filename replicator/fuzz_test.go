package replicator_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"settee/internal/costtest"
	"settee/replicator"

	"github.com/stretchr/testify/require"
)

// parseBound is what a definition may cost: the names of a selector's fields, which
// have a limit, and some bytes for each of its own.
var parseBound = costtest.Bound{Memory: 32 << 20, MemoryPerByte: 500, Units: 20, BytesPerUnit: 4 << 10}

// FuzzParse checks that parsing never panics or costs too much, that what it refuses
// it refuses with a reason, and that what it accepts has ids and survives the store.
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

	for _, members := range []string{
		`"since_seq": ` + strings.Repeat("7", 1001), `"since_seq": [` + strings.Repeat("7", 20_000) + `]`, `"mine": ` + strings.Repeat("7", 20_000),
		`"selector": {"a": -` + strings.Repeat("7", 1000) + `}`, `"selector": ` + strings.Repeat(`{"$not":`, 2000) + `{"a":1}` + strings.Repeat("}", 2000),
		`"selector": {"` + strings.Repeat("n", 1000) + `": {"$and": [` + strings.Repeat(`{"a":1},`, 2000) + `1]}}`,
		`"selector": ` + strings.Repeat(`{"a.b":`, 2000) + `1` + strings.Repeat("}", 2000), `"selector": {"$or": [` + strings.Repeat(`1,`, 20_000) + `1]}`,
		`"query_params": {"a": ` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`, `"doc_ids": [` + strings.Repeat(`"%41",`, 5000) + `""]`,
		`"socket_options": "[` + strings.Repeat("{nodelay,true},", 2000) + `{recbuf,1}]"`, `"user_ctx": {"roles": [` + strings.Repeat(`"a",`, 5000) + `1]}`,
	} {
		f.Add(definition(members))
	}

	f.Fuzz(func(t *testing.T, text []byte) {
		var request *replicator.Request
		var err error
		parseBound.Check(t, len(text), func() { request, err = replicator.ParseRequest(text, replicator.ParseOptions{}) })
		parseBound.Check(t, len(text), func() { _, _ = replicator.ParseDocument(text, replicator.ParseOptions{}) })
		checkDocument(t, text)
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
