package replicator_test

import (
	"testing"

	"settee/replicator"

	"github.com/stretchr/testify/require"
)

func TestPersistentJobID(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0f3a|my doc", replicator.PersistentJobID("0f3a", "my doc"))
}

func TestJobIDsOfEqualReplications(t *testing.T) {
	t.Parallel()
	same := [][2]string{
		{
			`{"source": "http://joe:pw@h/db", "target": "http://b/c", "continuous": true}`,
			`{"continuous": true, "target": "http://b:80/c/", "source": {"auth": {"basic": {"password": "pw", "username": "joe"}}, "url": "http://H:80/db/"}}`,
		},
		{
			`{"source": "http://us%40er:pw@h/db", "target": "http://b/c"}`,
			`{"source": {"url": "http://h/db", "headers": {"Authorization": "` + basicHeader("us@er:other") + `"}}, "target": "http://b/c"}`,
		},
		{
			`{"source": {"url": "http://u:p@h/db", "headers": {"B": "1", "a": "2"}}, "target": "http://b/c"}`,
			`{"source": {"url": "http://h/db", "headers": {"A": "2", "Authorization": "` + basicHeader("u:p") + `", "b": "1", "Accept": "application/json"}}, "target": "http://b/c"}`,
		},
		{
			string(definition(`"selector": {"a": {"$in": [{"x": 1, "y": 2}]}, "b": 1}`)),
			string(definition(`"selector": {"b": 1, "a": {"$in": [{"y": 2, "x": 1}]}}`)),
		},
		{string(definition(`"doc_ids": ["a", "b", "a"]`)), string(definition(`"doc_ids": ["b", "%61"]`))},
		{string(definition(`"filter": "d/f", "query_params": {"a": "1", "b": "2"}`)), string(definition(`"query_params": {"b": "2", "a": "1"}, "filter": "d/f"`))},
		{string(definition(`"filter": "d/f", "query_params": {}`)), string(definition(`"filter": "d/f"`))},
		{string(definition(`"query_params": {"a": "1"}`)), string(definition(``))},
		{string(definition(`"winning_revs_only": false, "continuous": false, "create_target": false, "worker_processes": 9`)), string(definition(``))},
	}
	for _, pair := range same {
		first, second := parse(t, []byte(pair[0])), parse(t, []byte(pair[1]))
		require.Equal(t, first.JobID("joe"), second.JobID("joe"), "%s and %s", pair[0], pair[1])
		require.Regexp(t, "^[0-9a-f]{32}$", first.JobID("joe"))
	}
}

func TestJobIDsOfDifferentReplications(t *testing.T) {
	t.Parallel()
	docs := []string{
		string(definition(``)),
		string(definition(`"continuous": true`)),
		string(definition(`"create_target": true`)),
		string(definition(`"winning_revs_only": true`)),
		string(definition(`"doc_ids": []`)),
		string(definition(`"doc_ids": ["a"]`)),
		string(definition(`"selector": {}`)),
		string(definition(`"selector": {"a": 1}`)),
		string(definition(`"selector": {"a": 1.0}`)),
		string(definition(`"selector": {"a": [1, 2]}`)),
		string(definition(`"selector": {"a": [2, 1]}`)),
		string(definition(`"since_seq": "1-a"`)),
		string(definition(`"since_seq": 1`)),
		string(definition(`"filter": "d/f"`)),
		string(definition(`"filter": "d/g"`)),
		string(definition(`"filter": "_design"`)),
		string(definition(`"filter": "d/f", "query_params": {"a": "1"}`)),
		`{"source": "https://a.example/db1", "target": "http://b.example/db2"}`,
		`{"source": "http://a.example:5984/db1", "target": "http://b.example/db2"}`,
		`{"source": "http://a.example/DB1", "target": "http://b.example/db2"}`,
		`{"source": "http://u:p@a.example/db1", "target": "http://b.example/db2"}`,
		`{"source": "http://a.example/db1", "target": "http://u:p@b.example/db2"}`,
		`{"source": {"url": "http://a.example/db1", "headers": {"X": "1"}}, "target": "http://b.example/db2"}`,
		`{"source": "http://b.example/db2", "target": "http://a.example/db1"}`,
	}
	seen := map[string]string{}
	for _, doc := range docs {
		for _, user := range []string{"", "joe"} {
			jobID := parse(t, []byte(doc)).JobID(user)
			require.NotContains(t, seen, jobID, "%s of %q and %s", doc, user, seen[jobID])
			seen[jobID] = doc
		}
	}
}

func TestEqual(t *testing.T) {
	t.Parallel()
	base := parse(t, definition(`"selector": {"a": 1, "b": 2}, "owner": "joe", "mine": 1`))
	require.True(t, base.Equal(parse(t, definition(`"owner": "joe", "selector": {"b": 2, "a": 1}, "_rev": "2-x"`))))
	for _, other := range []string{
		`"selector": {"a": 1, "b": 3}, "owner": "joe"`,
		`"selector": {"a": 1, "b": 2}, "owner": "ann"`,
		`"selector": {"a": 1, "b": 2}, "owner": "joe", "worker_processes": 4`,
		`"selector": {"a": 1, "b": 2}, "owner": "joe", "proxy": "http://p"`,
	} {
		require.False(t, base.Equal(parse(t, definition(other))), other)
	}
	withPassword := func(source string) *replicator.Replication {
		return parse(t, []byte(`{"target": "http://b/c", "source": `+source+`}`))
	}
	inURL := withPassword(`"http://u%40:p@h/db"`)
	require.True(t, inURL.Equal(withPassword(`{"url": "http://h:80/db/", "auth": {"basic": {"username": "u@", "password": "p"}}}`)))
	require.False(t, inURL.Equal(withPassword(`"http://u%40:q@h/db"`)))

	require.False(t, inURL.Equal(nil))
	require.False(t, (*replicator.Replication)(nil).Equal(inURL))
	require.True(t, (*replicator.Replication)(nil).Equal(nil))
}
