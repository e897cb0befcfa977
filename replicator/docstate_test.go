package replicator_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"settee/replicator"

	"github.com/stretchr/testify/require"
)

// ownFields are the fields that a job writes into a document.
var ownFields = []string{
	"_replication_state", "_replication_state_time", "_replication_state_reason", "_replication_id", "_replication_stats",
}

// documentStates has a job in each state.
var documentStates = []replicator.JobState{
	{State: replicator.StatePending, LastUpdated: unrounded, ReplicationID: "abc"},
	{State: replicator.StateRunning, LastUpdated: unrounded, ReplicationID: "abc+continuous", StartTime: unrounded},
	{State: replicator.StateCrashing, LastUpdated: unrounded, ReplicationID: "abc", Error: "db_not_found: could not open http://u:p@h/db/"},
	{
		State: replicator.StateCompleted, LastUpdated: unrounded, StartTime: unrounded, ReplicationID: "abc",
		Stats: replicator.Stats{DocCounts: replicator.DocCounts{DocsRead: 3}}, CheckpointedSourceSeq: json.RawMessage(`"3-x"`),
	},
	{State: replicator.StateFailed, LastUpdated: unrounded, Error: "why & how"},
}

const (
	statsOfNone = `{"revisions_checked":0,"missing_revisions_found":0,"docs_read":3,"docs_written":0,"changes_pending":null,` +
		`"doc_write_failures":0,"bulk_get_docs":0,"bulk_get_attempts":0,"checkpointed_source_seq":"3-x","start_time":"2026-11-21T01:48:29Z"}`
	completedAs = `"_replication_state":"completed","_replication_state_time":"2026-11-21T01:48:29Z","_replication_stats":` + statsOfNone
	failedAs    = `"_replication_state":"failed","_replication_state_time":"2026-11-21T01:48:29Z","_replication_state_reason":"why & how"`
	runningAs   = `"_replication_state":"triggered","_replication_state_time":"2026-11-21T01:48:29Z","_replication_id":"abc+continuous"`
	crashingAs  = `"_replication_state":"error","_replication_state_time":"2026-11-21T01:48:29Z",` +
		`"_replication_state_reason":"db_not_found: could not open http://u:*****@h/db/","_replication_id":"abc"`
)

func TestUpdateDocument(t *testing.T) {
	t.Parallel()
	const user = "{ \"b\" : [1.0, 1e2],\n\t\"a\":\"\\u00fc\\/\", \"b\" : {} \n}\n"
	const kept = "{ \"b\" : [1.0, 1e2],\n\t\"a\":\"\\u00fc\\/\", \"b\" : {}"
	states := map[replicator.State]replicator.JobState{}
	for _, state := range documentStates {
		states[state.State] = state
	}
	tests := []struct {
		name  string
		state replicator.State
		doc   string
		want  string
	}{
		{"pending", replicator.StatePending, user, user},
		{"completed", replicator.StateCompleted, user, kept + "," + completedAs + " \n}\n"},
		{"failed", replicator.StateFailed, user, kept + "," + failedAs + " \n}\n"},
		{"triggered", replicator.StateRunning, user, kept + "," + runningAs + " \n}\n"},
		{"error", replicator.StateCrashing, user, kept + "," + crashingAs + " \n}\n"},
		{"empty object", replicator.StateFailed, ` { } `, ` {` + failedAs + ` } `},
		{
			"replaces in place", replicator.StateFailed,
			`{"_replication_state" : "triggered", "a": 1, "_replication_state_time": "2020-01-01T00:00:00Z", "b": 2}`,
			`{"_replication_state" : "failed", "a": 1, "_replication_state_time": "2026-11-21T01:48:29Z", "b": 2,"_replication_state_reason":"why & how"}`,
		},
		{
			"keeps the time of an unchanged state", replicator.StateFailed,
			`{"_replication_state": "failed", "_replication_state_time": "2020-01-01T00:00:00Z"}`,
			`{"_replication_state": "failed", "_replication_state_time": "2020-01-01T00:00:00Z","_replication_state_reason":"why & how"}`,
		},
		{
			"adds missing fields", replicator.StateFailed,
			`{"_replication_state": "failed"}`,
			`{"_replication_state": "failed","_replication_state_time":"2026-11-21T01:48:29Z","_replication_state_reason":"why & how"}`,
		},
		{
			"removes the reason, and the id of another replication", replicator.StateCompleted,
			`{"_replication_state_reason": "x", "_replication_id": "i", "a": 1}`,
			`{"a": 1,` + completedAs + `}`,
		},
		{
			"keeps its own id", replicator.StateCompleted,
			`{"_replication_id": "abc", "a": 1}`,
			`{"_replication_id": "abc", "a": 1,` + completedAs + `}`,
		},
		{
			"removes the statistics", replicator.StateFailed,
			`{"a": 1, "_replication_stats": {"docs_read": [1, 2]}, "b": 2}`,
			`{"a": 1, "b": 2,` + failedAs + `}`,
		},
		{
			"removes duplicates", replicator.StateRunning,
			`{"_replication_state": 1, "a": 1, "_replication_state": 2, "_replication_stats": 1, "_replication_stats": 2}`,
			`{"a": 1, "_replication_state": "triggered","_replication_state_time":"2026-11-21T01:48:29Z","_replication_id":"abc+continuous"}`,
		},
		{
			"escaped names", replicator.StateFailed,
			`{"_replication\u005fstate": "completed"}`,
			`{"_replication\u005fstate": "failed","_replication_state_time":"2026-11-21T01:48:29Z","_replication_state_reason":"why & how"}`,
		},
		{
			"ignores nested names", replicator.StateFailed,
			`{"a": {"_replication_state": "x", "_replication_stats": 1}, "b": ["_replication_stats"]}`,
			`{"a": {"_replication_state": "x", "_replication_stats": 1}, "b": ["_replication_stats"],` + failedAs + `}`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			state := states[test.state]
			got, err := state.UpdateDocument([]byte(test.doc))
			require.NoError(t, err)
			require.Equal(t, test.want, string(got))
			again, err := state.UpdateDocument(got)
			require.NoError(t, err)
			require.Equal(t, test.want, string(again))
		})
	}

	unknown := replicator.JobState{State: replicator.StateCrashing, Error: "x", LastUpdated: unrounded}
	got, err := unknown.UpdateDocument([]byte(`{"_replication_id": "old"}`))
	require.NoError(t, err)
	require.Equal(t, `{"_replication_id": null,"_replication_state":"error","_replication_state_time":"2026-11-21T01:48:29Z","_replication_state_reason":"x"}`, string(got))
	spoilt := replicator.JobState{State: replicator.StateCompleted, CheckpointedSourceSeq: json.RawMessage(`"`)}
	_, err = spoilt.UpdateDocument([]byte(`{}`))
	require.ErrorContains(t, err, "writing the statistics of a replication")
	for _, text := range []string{``, `[]`, `{`, `{} x`, "{\"a\": \"\xff\"}", `null`} {
		var parseErr *replicator.ParseError
		_, err := unknown.UpdateDocument([]byte(text))
		require.ErrorAs(t, err, &parseErr, "%q", text)
		_, err = replicator.ClearDocumentState([]byte(text))
		require.ErrorAs(t, err, &parseErr, "%q", text)
	}
}

func TestClearDocumentState(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`:                              `{}`,
		` { "a" : 1.0 }`:                  ` { "a" : 1.0 }`,
		`{"_replication_state": "error"}`: `{}`,
		`{ "_replication_state": "error", "_replication_state_time": 5, "_replication_state_reason": [1, {"_id": 2}], "_replication_id": null, "_replication_stats": {} }`: `{  }`,
		`{"a": 1, "_replication_state": "error", "b": 2, "_replication_id": null}`:                                                                                         `{"a": 1, "b": 2}`,
		`{ "_replication_state": "error",  "b": 2}`: `{ "b": 2}`,
	} {
		got, err := replicator.ClearDocumentState([]byte(text))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}

// A document reads back what a job wrote into it.
func TestUpdatedDocumentsAreReadBack(t *testing.T) {
	t.Parallel()
	want := map[replicator.State]replicator.Document{
		replicator.StatePending:  {},
		replicator.StateRunning:  {State: replicator.DocumentTriggered, ReplicationID: "abc+continuous"},
		replicator.StateCrashing: {State: replicator.DocumentError, ReplicationID: "abc", StateReason: "db_not_found: could not open http://u:*****@h/db/"},
		replicator.StateCompleted: {
			State: replicator.DocumentCompleted, Stats: json.RawMessage(statsOfNone),
		},
		replicator.StateFailed: {State: replicator.DocumentFailed, StateReason: "why & how"},
	}
	for _, state := range documentStates {
		text, err := state.UpdateDocument(definition(""))
		require.NoError(t, err)
		got, err := parseDocument(text, replicator.ParseOptions{})
		require.NoError(t, err)
		expected := want[state.State]
		expected.Replication = parse(t, definition(""))
		if expected.State != "" {
			expected.StateTime = time.Date(2026, 11, 21, 1, 48, 29, 0, time.UTC)
		}
		require.Equal(t, &expected, got)
	}
}

// usersMembers returns the members of an object, without the fields that a job writes.
func usersMembers(t *testing.T, text []byte) map[string]json.RawMessage {
	t.Helper()
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &members))
	for _, name := range ownFields {
		delete(members, name)
	}
	return members
}

// checkUpdate checks that writing a job's state keeps every byte of the user.
func checkUpdate(t *testing.T, text []byte, state replicator.JobState) {
	t.Helper()
	before := bytes.Clone(text)
	updated, err := state.UpdateDocument(text)
	require.NoError(t, err)
	require.Equal(t, before, text, "the argument is not changed")
	require.True(t, json.Valid(updated), "%s", updated)
	require.Equal(t, usersMembers(t, text), usersMembers(t, updated))

	again, err := state.UpdateDocument(updated)
	require.NoError(t, err)
	require.Equal(t, string(updated), string(again))

	cleared, err := replicator.ClearDocumentState(text)
	require.NoError(t, err)
	clearedAgain, err := replicator.ClearDocumentState(updated)
	require.NoError(t, err)
	require.Equal(t, string(cleared), string(clearedAgain))
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(cleared, &members))
	require.Equal(t, usersMembers(t, text), members)
}

// FuzzUpdateDocument runs checkUpdate for every text that is an object.
func FuzzUpdateDocument(f *testing.F) {
	for _, text := range []string{
		`{}`, ` { } `, `{"_replication_state":1,"a":2,"_replication_state":3}`, "{\n \"a\" : {\"b\": [ ]},\r\t\"_replication_stats\" : -0.0 }",
		`{"":"\"","_replication\u005fid":"\\","_replication_id":"}"}`, `{"_replication_state":"error"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := replicator.ClearDocumentState(text); err != nil {
			for _, state := range documentStates[1:] {
				_, err := state.UpdateDocument(text)
				require.Error(t, err)
			}
			return
		}
		for _, state := range documentStates {
			checkUpdate(t, text, state)
		}
	})
}
