package replicator_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"settee/pkg/docjson"
	"settee/replicator"

	"github.com/stretchr/testify/require"
)

func document(t *testing.T, members string) *replicator.Document {
	t.Helper()
	d, err := parseDocument(definition(members), replicator.ParseOptions{})
	require.NoError(t, err, members)
	return d
}

func TestMembersOfDocuments(t *testing.T) {
	t.Parallel()
	d := document(t, `"_id": "my rep", "_rev": "3-abc", "_deleted": false, "mine": {"any": ["thing"]},
		"_replication_state": "completed", "_replication_state_time": "2026-11-21T02:48:31+01:00", "_replication_state_reason": "why",
		"_replication_id": "abc+continuous", "_replication_stats": {"docs_read": 8}`)
	require.NotNil(t, d.Replication)
	d.Replication = nil
	require.Equal(t, &replicator.Document{
		ID: "my rep", State: replicator.DocumentCompleted,
		StateTime:   time.Date(2026, 11, 21, 1, 48, 31, 0, time.UTC),
		StateReason: "why", ReplicationID: "abc+continuous", Stats: json.RawMessage(`{"docs_read": 8}`),
	}, d)

	d = document(t, "")
	require.Equal(t, &replicator.Document{Replication: parse(t, definition(""))}, d)
}

func TestDocumentStateFields(t *testing.T) {
	t.Parallel()
	const state = "parameter `_replication_state` must be completed, failed, triggered or error, or missing"
	for _, name := range []string{"completed", "failed", "triggered", "error"} {
		d := document(t, fmt.Sprintf(`"_replication_state": %q`, name))
		require.Equal(t, replicator.DocumentState(name), d.State)
		require.Equal(t, name == "completed" || name == "failed", d.State.Terminal())
		require.NotNil(t, d.Replication)
	}
	for _, test := range []refusedValue{
		{`"_replication_state": "done"`, "_replication_state", state},
		{`"_replication_state": ""`, "_replication_state", state},
		{`"_replication_state": null`, "_replication_state", state},
		{`"_replication_state": ["failed"]`, "_replication_state", state},
	} {
		_, err := parseDocument(definition(test.members), replicator.ParseOptions{})
		require.Equal(t, &replicator.ParseError{Field: test.field, Reason: test.reason}, err, test.members)
	}

	// Versions of CouchDB wrote the other fields in many forms; none is refused.
	for literal, want := range map[string]time.Time{
		`"2011-02-17T16:22:02+01:00"`: time.Date(2011, 2, 17, 15, 22, 2, 0, time.UTC),
		`1297956122`:                  time.Date(2011, 2, 17, 15, 22, 2, 0, time.UTC),
		`"yesterday"`:                 {}, `null`: {}, `1.5`: {}, `{}`: {}, `9999999999999`: {}, `-9999999999999`: {},
		`"9999-12-31T23:59:59-01:00"`: {},
	} {
		require.Equal(t, want, document(t, `"_replication_state_time": `+literal).StateTime, literal)
	}
	for _, literal := range []string{`null`, `5`, `[]`, `["x"]`} {
		d := document(t, fmt.Sprintf(`"_replication_state_reason": %[1]s, "_replication_id": %[1]s, "_replication_stats": %[1]s`, literal))
		require.Empty(t, d.StateReason+d.ReplicationID+string(d.Stats))
	}
}

func TestParseBodyOfDeletedIgnoredAndFailed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"_id": "_design/d", "source": 5, "_replication_state": 5}`,
		`{"_id": "_local/x", "continuous": "yes"}`,
		`{"_id": "x", "_deleted": true, "source": 5, "_replication_state": "done"}`,
	} {
		d, err := parseDocument([]byte(text), replicator.ParseOptions{})
		require.NoError(t, err, text)
		require.Nil(t, d.Replication)
		require.Nil(t, wanted(d))
	}
	// An invalid definition may be the reason of the failure.
	d, err := parseDocument([]byte(`{"_replication_state": "failed", "source": 5}`), replicator.ParseOptions{})
	require.NoError(t, err)
	require.Equal(t, &replicator.Document{State: replicator.DocumentFailed}, d)
	// As in CouchDB, a completed document must be valid.
	_, err = parseDocument([]byte(`{"_replication_state": "completed", "source": 5, "target": 5}`), replicator.ParseOptions{})
	require.EqualError(t, err, "parameter `source` must be the URL of a database, or an object with its `url`")

	// These names only begin like those of design and local documents.
	for _, id := range []string{"_design", "_localx", "design/x", ""} {
		require.False(t, replicator.IgnoredID(id), id)
	}
}

func TestParseBody(t *testing.T) {
	t.Parallel()
	d, err := replicator.ParseBody("x", false, docjson.Must(definition(`"_replication_state": "failed", "owner": "joe"`)), replicator.ParseOptions{})
	require.NoError(t, err)
	require.Equal(t, &replicator.Document{
		ID: "x", State: replicator.DocumentFailed, Replication: parse(t, definition(`"owner": "joe"`)),
	}, d)

	d, err = replicator.ParseBody("x", true, docjson.Body{}, replicator.ParseOptions{})
	require.NoError(t, err)
	require.Equal(t, &replicator.Document{ID: "x", Deleted: true}, d)
	for _, id := range []string{"_design/d", "_local/x"} {
		d, err = replicator.ParseBody(id, false, docjson.Body{}, replicator.ParseOptions{})
		require.NoError(t, err)
		require.Equal(t, &replicator.Document{ID: id}, d)
	}

	for body, reason := range map[string]string{
		``: "invalid UTF-8 JSON", `[]`: "Document must be a JSON object",
		`{}`: "parameter `source` is missing: it must be the URL of a database, or an object with its `url`",
		`{"source": "http://h/db", "target": "http://h/db2", "_replication_state": 1}`: "parameter `_replication_state` must be completed, failed, triggered or error, or missing",
	} {
		_, err := replicator.ParseText("x", []byte(body), replicator.ParseOptions{})
		require.EqualError(t, err, reason, body)
	}
}

func TestEffect(t *testing.T) {
	t.Parallel()
	const (
		plain     = ""
		other     = `"continuous": true`
		spelled   = `"mine": [1, {"continuous": true}], "_rev": "2-x", "continuous": false`
		triggered = `"_replication_state": "triggered"`
		inError   = `"_replication_state": "error", "_replication_state_reason": "x"`
		completed = `"_replication_state": "completed"`
		failed    = `"_replication_state": "failed"`
		broken    = `"_replication_state": "failed", "continuous": 5`
		deleted   = `"_deleted": true`
		design    = `"_id": "_design/d", "continuous": 5`
		local     = `"_id": "_local/d", "continuous": 5`
		none      = "none"
	)
	tests := []struct {
		before, after string
		want          replicator.Effect
	}{
		{none, plain, replicator.StartJob},
		{none, triggered, replicator.StartJob},
		{none, inError, replicator.StartJob},
		{none, completed, replicator.KeepJob},
		{none, failed, replicator.KeepJob},
		{none, broken, replicator.KeepJob},
		{none, deleted, replicator.RemoveJob},
		{none, design, replicator.KeepJob},
		{none, local, replicator.KeepJob},

		{plain, spelled, replicator.KeepJob},
		{plain, triggered, replicator.KeepJob},
		{triggered, inError, replicator.KeepJob},
		{plain, other, replicator.StartJob},
		{plain, other + `, ` + triggered, replicator.StartJob},
		{plain, completed, replicator.KeepJob},
		{plain, failed, replicator.KeepJob},
		{plain, other + `, ` + completed, replicator.RemoveJob},
		{plain, broken, replicator.RemoveJob},
		{plain, deleted, replicator.RemoveJob},

		// The document is ignored until a write removes the state.
		{completed, spelled, replicator.StartJob},
		{failed, plain, replicator.StartJob},
		{broken, plain, replicator.StartJob},
		{completed, completed + `, "mine": 1`, replicator.KeepJob},
		{completed, other + `, ` + completed, replicator.KeepJob},
		{completed, failed, replicator.KeepJob},
		{completed, deleted, replicator.RemoveJob},
		{deleted, plain, replicator.StartJob},
		{deleted, completed, replicator.KeepJob},
	}
	for _, test := range tests {
		var before *replicator.Document
		if test.before != none {
			before = document(t, test.before)
		}
		require.Equal(t, test.want, document(t, test.after).Effect(wanted(before)), "%s then %s", test.before, test.after)
	}
}

func TestEffectOfEveryParameter(t *testing.T) {
	t.Parallel()
	const filtered = `, "filter": "d/f", "query_params": {"a": "1", "b": "2"}`
	before := wanted(document(t, `"mine": 1`))
	for _, members := range []string{
		`"create_target": true`, `"create_target_params": {}`, `"continuous": true`, `"doc_ids": []`, `"selector": {}`, `"filter": "d/f"`,
		`"query_params": {}`, `"since_seq": 0`, `"winning_revs_only": true`, `"use_checkpoints": true`, `"checkpoint_interval": 1`,
		`"use_bulk_get": true`, `"worker_processes": 1`, `"worker_batch_size": 1`, `"http_connections": 1`, `"connection_timeout": 1`,
		`"retries_per_request": 1`, `"socket_options": "[]"`, `"proxy": "http://p"`, `"source_proxy": "http://p"`, `"user_ctx": {}`, `"owner": "joe"`,
		`"source": "http://a.example/db3"`, `"source": "http://u:p@a.example/db1"`, `"target": {"url": "http://b.example/db2", "headers": {"X": "y"}}`,
	} {
		require.Equal(t, replicator.StartJob, document(t, members).Effect(before), members)
		require.Equal(t, replicator.KeepJob, document(t, members+`, "mine": 2`).Effect(wanted(document(t, members))), members)
	}
	// The order of members and the place of equal parameters do not count.
	require.Equal(t, replicator.KeepJob, document(t, `"source": {"auth": {"basic": {"password": "p", "username": "u"}}, "url": "http://a.example:80/db1/"}`+filtered).
		Effect(wanted(document(t, `"query_params": {"b": "2", "a": "1"}, "filter": "d/f", "source": "http://u:p@a.example/db1"`))))
	// A password is a parameter, although ids do not cover it.
	require.Equal(t, replicator.StartJob, document(t, `"source": "http://u:new@a.example/db1"`).
		Effect(wanted(document(t, `"source": "http://u:old@a.example/db1"`))))
}

func withOwner(doc []byte, user *string, admin bool) ([]byte, error) {
	body, err := replicator.ReadDraft(docjson.Must(doc)).WithOwner(user, admin)
	return body.Bytes(), err
}

func TestWithOwner(t *testing.T) {
	t.Parallel()
	joe, ann := new("joe"), new("ann")
	const others = "Can't update replication documents from other users."
	tests := []struct {
		doc   string
		user  *string
		admin bool
		want  string // empty if it is refused
	}{
		{`{ "a": 1.0 }`, joe, false, `{ "a": 1.0,"owner":"joe" }`},
		{`{}`, nil, true, `{"owner":null}`},
		{`{"owner": "joe", "a": 1}`, joe, false, `{"owner": "joe", "a": 1}`},
		{`{"owner": "joe", "a": 1}`, ann, false, ``},
		{`{"owner": "joe", "a": 1}`, nil, false, ``},
		{`{"owner": "joe", "a": 1}`, ann, true, `{"owner": "joe", "a": 1}`},
		{`{"owner": null, "a": 1}`, ann, false, ``},
		{`{"owner": null, "a": 1}`, ann, true, `{"owner": "ann", "a": 1}`},
		{`{"owner": null, "a": 1}`, nil, false, `{"owner": null, "a": 1}`},
		{`{"owner": "joe", "x": 2, "owner": null}`, ann, true, `{"x": 2, "owner": "ann"}`},
	}
	for _, test := range tests {
		got, err := withOwner([]byte(test.doc), test.user, test.admin)
		if test.want == "" {
			require.Equal(t, &replicator.ParseError{Field: "owner", Reason: others}, err, test.doc)
			continue
		}
		require.NoError(t, err, test.doc)
		require.Equal(t, test.want, string(got), test.doc)
	}
	_, err := withOwner([]byte(`{"owner": 5}`), joe, true)
	var parseErr *replicator.ParseError
	require.ErrorAs(t, err, &parseErr)
}
