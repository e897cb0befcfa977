package replicator_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"settee/replicator"

	"github.com/stretchr/testify/require"
)

const serverUUID = "0123456789abcdef0123456789abcdef"

// vector is a document and its id, computed by a CouchDB.
type vector struct {
	UUID          string          `json:"uuid"`
	Doc           json.RawMessage `json:"doc"`
	ReplicationID string          `json:"replication_id"`
	FilterCode    *string         `json:"filter_code"`
}

func vectors(t testing.TB) []vector {
	t.Helper()
	var all []vector
	for _, name := range []string{"replication_ids", "replication_ids_of_roots"} {
		for _, v := range readVectors[vector](t, name) {
			if !strings.Contains(string(v.Doc), "since_seq") { // TestNewerVectors has these
				all = append(all, v)
			}
		}
	}
	require.Len(t, all, 42)
	return all
}

// newerVector is a document and its ids, computed by CouchDB 3.5.0 and by a later one, which has the ids of 3.5.2.
type newerVector struct {
	Doc    json.RawMessage `json:"doc"`
	Before string          `json:"replication_id_3.5.0"`
	ID     any             `json:"replication_id_new"` // a text, or the answer if it was an error
}

func readVectors[V any](t testing.TB, name string) []V {
	t.Helper()
	text, err := os.ReadFile("../testdata/vectors/" + name + ".json")
	require.NoError(t, err)
	var file struct {
		Vectors []V `json:"vectors"`
	}
	require.NoError(t, json.Unmarshal(text, &file))
	return file.Vectors
}

func TestVectors(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		r := parse(t, v.Doc)
		require.Equal(t, v.FilterCode != nil, r.NeedsFilterCode(), "%s", v.Doc)
		code := ""
		if v.FilterCode != nil {
			code = *v.FilterCode
		}
		id, err := r.ID(v.UUID, code)
		require.NoError(t, err, "%s", v.Doc)
		require.Equal(t, v.ReplicationID, id.String(), "%s", v.Doc)

		// The stored form has the same id.
		back := new(replicator.Replication)
		require.NoError(t, json.Unmarshal(storedForm(t, r), back))
		require.Equal(t, r, back)
		again, err := back.ID(v.UUID, code)
		require.NoError(t, err)
		require.Equal(t, id, again)
	}
}

// Ids have since_seq, as in CouchDB 3.5.2 and later. Without since_seq they equal the ids of CouchDB 3.5.0.
func TestNewerVectors(t *testing.T) {
	t.Parallel()
	compared := 0
	for _, v := range readVectors[newerVector](t, "replication_ids_newer") {
		d, err := parseDocument(v.Doc, replicator.ParseOptions{})
		if err != nil {
			require.ErrorContains(t, err, "since_seq", "%s", v.Doc) // it is no sequence
			continue
		}
		r, want := d.Replication, v.ID
		switch string(r.Selector) {
		case `{"a\\.b":1}`, `{"a.":1}`: // CouchDB after 3.5.2 has lost the difference to {"a.b":1}, and refuses the other one
			want = v.Before
		}
		require.Equal(t, want, id(t, r), "%s", v.Doc)
		r.SinceSeq = nil
		require.Equal(t, v.Before, id(t, r), "%s", v.Doc)
		compared++
	}
	require.Equal(t, 22, compared)
}

func id(t *testing.T, r *replicator.Replication) string {
	t.Helper()
	id, err := r.ID(serverUUID, "function(doc) { return true; }")
	require.NoError(t, err)
	return id.String()
}

// These ids come from Erlang/OTP 25 and the selector normalisation of CouchDB 3.5.0, for parts of
// the format that the vectors do not cover.
func TestIDsBeyondTheVectors(t *testing.T) {
	t.Parallel()
	for members, want := range map[string]string{
		`"selector": {"a": [1, 2, 255]}`:                                                                            "e4a1483c4d2ee8a12f15a92a133b2774",
		`"selector": {"a": [1, 2, 256]}`:                                                                            "9f93473d085201139c7c1e2c72c9f198",
		`"selector": {"a": {"$in": [[], {}, [""]]}}`:                                                                "4af04758cd7e8a983c0bc988c3ea9752",
		`"selector": {"a": [1e3, 0.1, -0.0, 1.7976931348623157e308]}`:                                               "6314d668aef5c917aabc9f6987fc4f90",
		`"selector": {"a": [300, -1, 2147483648, -2147483649, 18446744073709551616, -18446744073709551616]}`:        "fba5bc4232bb2c5faa460fd16d62c9eb",
		`"selector": {"$nor": [{"a": {"$exists": true, "$size": 2}}, {"b": {"$elemMatch": {"$gt": 1, "$lt": 9}}}]}`: "02cb1d67acc771749435da37112acd36",
		`"selector": {"$text": "word"}`:                                                                             "22cc7f2069a8a6c68cba00319e57b9d2",
		`"selector": {"$or": []}`:                                                                                   "2b8f610e6577b0f68917b7fb262892f4",
		`"selector": {"ü": {"z": {"$not": {"$regex": "^x"}}}}`:                                                      "5f987c5d8df4986169413800a7ec4076",
		`"doc_ids": []`:           "ae5c562e4f991495db47c02ec4f63e09",
		`"doc_ids": ["x", "a+b"]`: "7990cd3e5d9e95a80bacfd66957c254f",
		`"filter": "_view", "query_params": {"view": "d/v", "keys": [1, 2]}`: "2768af1ac447f358d36145db8ec9afaa",
		`"filter": "d/f", "winning_revs_only": true`:                         "e2c3a701026ea10eb517da670cce4105",
	} {
		require.Equal(t, want, id(t, parse(t, definition(members))), members)
	}
}

func TestWhatIDsCover(t *testing.T) {
	t.Parallel()
	same := [][2]string{
		{`"query_params": {"a": "b"}`, ``},
		{`"filter": "d/f"`, `"filter": "d/f", "query_params": {}`},
		{`"filter": "d/f"`, `"filter": "e/g"`}, // the name does not count, the text does
		{`"doc_ids": ["b", "a"]`, `"doc_ids": ["a", "%62", "a"]`},
		{`"selector": {"a": 1}`, `"selector": {"a": {"$eq": 1}}`},
		{`"selector": {"a": {"b": 1}}`, `"selector": {"a.b": 1}`},
		{`"selector": {"a": 1, "a": 2}`, `"selector": {"a": 2}`},
		{`"selector": {"$not": {"a": {"$gt": 1}}}`, `"selector": {"a": {"$lte": 1}}`},
		{`"selector": {"a": [{"y": 1, "x": 2}]}`, `"selector": {"a": [{"x": 2, "y": 1}]}`},
		{`"selector": {"a": 1e3}`, `"selector": {"a": 1000.0}`},
		{`"selector": {"a": -0}`, `"selector": {"a": 0}`},
	}
	for _, pair := range same {
		require.Equal(t, id(t, parse(t, definition(pair[0]))), id(t, parse(t, definition(pair[1]))), "%s and %s", pair[0], pair[1])
	}
	differ := [][2]string{
		{`"doc_ids": []`, ``},
		{`"selector": {}`, ``},
		{`"doc_ids": []`, `"selector": {}`},
		{`"selector": {"a": 1000}`, `"selector": {"a": 1e3}`},
		{`"selector": {"a": -0.0}`, `"selector": {"a": 0.0}`},
		{`"selector": {"a": [1, 2]}`, `"selector": {"a": [2, 1]}`},
		{`"selector": {"a": 1, "b": 2}`, `"selector": {"b": 2, "a": 1}`},
		{`"filter": "d/f", "query_params": {"a": "1", "b": "2"}`, `"filter": "d/f", "query_params": {"b": "2", "a": "1"}`},
		{`"filter": "_design"`, `"filter": "_other"`},
		{`"since_seq": "5-a"`, ``},
		{`"since_seq": 0`, ``},
		{`"since_seq": 5`, `"since_seq": "5"`},
	}
	for _, pair := range differ {
		require.NotEqual(t, id(t, parse(t, definition(pair[0]))), id(t, parse(t, definition(pair[1]))), "%s and %s", pair[0], pair[1])
	}
}

func TestIDOfEndpointSpellings(t *testing.T) {
	t.Parallel()
	of := func(source string) string { return id(t, parse(t, withSource(source))) }
	plain := of(`"http://h/db"`)
	for _, source := range []string{
		`"http://h/db/"`, `"http://h:80/db"`, `"http://h:5984/db"`, `"https://h/db"`, `"https://h:443/db"`, `"http://u@h/db"`,
		`{"url": "http://h/db", "headers": {"Accept": "application/json"}}`,
	} {
		require.Equal(t, plain, of(source), source)
	}
	for _, source := range []string{
		`"http://H/db"`, `"http://h:443/db"`, `"https://h:5984/db"`, `"http://u:p@h/db"`, `"http://h/db2"`,
		`{"url": "http://h/db", "headers": {"Accept": "text/plain"}}`,
	} {
		require.NotEqual(t, plain, of(source), source)
	}
	// CouchDB's ids have the user name as the URL spells it.
	require.NotEqual(t, of(`"http://u%40:p@h/db"`), of(`{"url": "http://h/db", "auth": {"basic": {"username": "u@", "password": "p"}}}`))
	require.Equal(t, of(`"http://u%40:p@h/db"`), of(`{"url": "http://h/db", "auth": {"basic": {"username": "u%40", "password": "p"}}}`))
}

func TestFilterCodeIsTrimmedAsCouchDBDoes(t *testing.T) {
	t.Parallel()
	r := parse(t, definition(`"filter": "d/f"`))
	of := func(code string) string {
		id, err := r.ID(serverUUID, code)
		require.NoError(t, err)
		return id.String()
	}
	require.Equal(t, of("code"), of("  code "))
	require.Equal(t, of("code\n"), of("  code \n"))
	require.Equal(t, of(""), of("   "))
	for _, other := range []string{"code\n", "\tcode", "code\r", "co\nde"} {
		require.NotEqual(t, of("code"), of(other), "%q", other)
	}
	require.NotEqual(t, of("co\nde"), of(" co\nde "))
	require.NotEqual(t, of("code\n"), of("code \n\n"))
}

func TestIDOfWhatWasNotParsed(t *testing.T) {
	t.Parallel()
	valid := replicator.Endpoint{URL: "http://h/db/"}
	for _, r := range []replicator.Replication{
		{},
		{Source: valid},
		{Source: valid, Target: valid, Selector: json.RawMessage(`{`)},
		{Source: valid, Target: valid, Selector: json.RawMessage(`[]`)},
		{Source: valid, Target: valid, Selector: json.RawMessage(`{"$x": 1}`)},
		{Source: valid, Target: valid, Filter: "_design", QueryParams: json.RawMessage(`5`)},
	} {
		_, err := r.ID(serverUUID, "")
		require.Error(t, err)
		require.True(t, strings.HasPrefix(err.Error(), "computing a replication id: "), err)
		require.NotEmpty(t, r.JobID("joe"))
	}
}
