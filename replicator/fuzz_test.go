package replicator_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/costtest"
	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"
	"settee/replicator"
)

// parseBound is the most memory that parsing may use: that of a selector's field names, which is
// bounded, and some bytes for each byte of the definition.
var parseBound = costtest.Bound{Memory: 32 << 20, MemoryPerByte: 500, Units: 20, BytesPerUnit: 4 << 10}

// FuzzParse checks that parsing never panics or costs too much, that every refusal has a reason,
// and that what is accepted has ids and can be stored and read back.
func FuzzParse(f *testing.F) {
	testkit.SkipRace(f)
	for _, v := range vectors(f) {
		f.Add([]byte(v.Doc))
	}
	for _, r := range couchtest.Recordings(f) {
		if strings.Contains(r.Name, "rep") {
			f.Add([]byte(r.RequestBody))
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
		parseBound.Check(t, len(text), func() { _, _ = replicator.ParseText("x", text, replicator.ParseOptions{}) })
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

// checkDocument checks a document, and the writes of a job into it.
func checkDocument(t *testing.T, text []byte) {
	t.Helper()
	d, err := parseDocument(text, replicator.ParseOptions{})
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
	for _, state := range documentStates {
		checkUpdate(t, text, state)
	}
}
