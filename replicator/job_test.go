package replicator_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"settee/replicator"

	"github.com/stretchr/testify/require"
)

var epoch = time.Date(2026, 11, 21, 1, 48, 29, 0, time.UTC)

// unrounded is epoch with a fraction of a second, in another time zone.
var unrounded = epoch.Add(987654321 * time.Nanosecond).In(time.FixedZone("", 3600))

func TestStates(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]replicator.State{
		"pending": replicator.StatePending, "running": replicator.StateRunning, "crashing": replicator.StateCrashing,
		"completed": replicator.StateCompleted, "failed": replicator.StateFailed, "Running": replicator.StateRunning,
		"initializing": replicator.StatePending, "error": replicator.StateCrashing,
	} {
		state, err := replicator.ParseState(name)
		require.NoError(t, err)
		require.Equal(t, want, state, name)
		require.Equal(t, want == "completed" || want == "failed", state.Terminal())
	}
	for _, name := range []string{"", "flying", "triggered", " running"} {
		_, err := replicator.ParseState(name)
		require.ErrorIs(t, err, replicator.ErrUnknownState, name)
	}
}

// A job is failing from the first crash in a row until it has no errors in another state, or ends.
func TestFollowErrors(t *testing.T) {
	t.Parallel()
	before, now := epoch.Add(-time.Hour), epoch
	for _, test := range []struct {
		state       replicator.State
		errors      int
		since, want time.Time
	}{
		{replicator.StateCrashing, 1, time.Time{}, now},
		{replicator.StateCrashing, 2, before, before},
		{replicator.StateCrashing, 0, before, before}, // its definition cannot be opened
		{replicator.StateRunning, 2, before, before},
		{replicator.StatePending, 2, before, before},
		{replicator.StateRunning, 0, before, time.Time{}},
		{replicator.StatePending, 0, before, time.Time{}},
		{replicator.StateRunning, 0, time.Time{}, time.Time{}},
		{replicator.StateCompleted, 0, before, time.Time{}},
		{replicator.StateFailed, 3, before, time.Time{}},
	} {
		state := replicator.JobState{State: test.state, ErrorCount: test.errors, CrashingSince: test.since}
		state.FollowErrors(now)
		require.Equal(t, test.want, state.CrashingSince, test)
	}
}

func TestJobArgsJSON(t *testing.T) {
	t.Parallel()
	r := parse(t, definition(""))
	transient, err := (&replicator.JobArgs{Replication: r, User: new("joe"), ReplicationID: "abc", Added: unrounded}).Stored()
	require.NoError(t, err)
	require.JSONEq(t, `{"replication": {"source": {"url": "http://a.example/db1/"}, "target": {"url": "http://b.example/db2/"}},
		"database": null, "doc_id": null, "user": "joe", "replication_id": "abc", "added": "2026-11-21T01:48:29Z"}`, string(transient))

	args := replicator.JobArgs{Replication: r, Definition: "1-a", Database: new("_replicator"), DocID: new("doc"), Added: epoch}
	stored, err := args.Stored()
	require.NoError(t, err)
	var back replicator.JobArgs
	require.NoError(t, json.Unmarshal(stored, &back))
	require.Equal(t, args, back)
}

func TestJobStateJSON(t *testing.T) {
	t.Parallel()
	state := replicator.JobState{
		State: replicator.StateRunning, Definition: "1-a", ReplicationID: "abc+continuous", Node: "n1", PID: "<0.1.0>",
		StartTime: epoch, LastUpdated: epoch, ErrorCount: 2,
		History:   replicator.History{{Timestamp: epoch, Type: replicator.EventStarted}},
		Stats:     replicator.Stats{DocCounts: replicator.DocCounts{DocsRead: 3}},
		SourceSeq: json.RawMessage(`"5-x"`), CheckpointedSourceSeq: json.RawMessage(`3`), ThroughSeq: json.RawMessage(`[4,"y"]`),
		ChangesPending: new(int64(7)), Error: "why", ErrorCode: "error", Result: json.RawMessage(`{"ok":true}`),
	}
	stored, err := json.Marshal(state)
	require.NoError(t, err)
	var back replicator.JobState
	require.NoError(t, json.Unmarshal(stored, &back))
	require.Equal(t, state, back)

	stored, err = json.Marshal(replicator.JobState{State: replicator.StatePending, LastUpdated: unrounded})
	require.NoError(t, err)
	require.JSONEq(t, `{"state": "pending", "last_updated": "2026-11-21T01:48:29Z", "history": [], "error_count": 0,
		"stats": {"revisions_checked": 0, "missing_revisions_found": 0, "docs_read": 0, "docs_written": 0,
		"doc_write_failures": 0, "bulk_get_docs": 0, "bulk_get_attempts": 0}}`, string(stored))
}

func TestNoCredentialsAreStoredInErrors(t *testing.T) {
	t.Parallel()
	const text = "could not open http://adm:s3cret@h/db/"
	state := replicator.JobState{
		State:   replicator.StateCrashing,
		Error:   text,
		History: replicator.History{{Timestamp: epoch, Type: replicator.EventCrashed, Reason: text}},
	}
	stored, err := json.Marshal(&state)
	require.NoError(t, err)
	require.NotContains(t, string(stored), "s3cret")
	require.Equal(t, "could not open http://adm:*****@h/db/", state.Info().Error)

	state.SetError("db_not_found", text)
	require.Equal(t, "db_not_found: could not open http://adm:*****@h/db/", state.Error)
	code, reason := state.ErrorBody()
	require.Equal(t, "db_not_found", code)
	require.Equal(t, "could not open http://adm:*****@h/db/", reason)

	state.SetError("", "boom")
	code, reason = state.ErrorBody()
	require.Equal(t, "error", code)
	require.Equal(t, "boom", reason)

	state.SetError("", "")
	require.Empty(t, state.Error+state.ErrorCode)

	state.SetError("", "x"+strings.Repeat("ü", 5000)+"\xff")
	require.Less(t, len(state.Error), 1001)
	require.True(t, utf8.ValidString(state.Error))
}

func TestHistory(t *testing.T) {
	t.Parallel()
	var history replicator.History
	for i := range 30 {
		history.Push(replicator.Event{Type: replicator.EventCrashed, Timestamp: unrounded, Reason: fmt.Sprintf("%d http://u:p@h", i)}, 20)
	}
	require.Len(t, history, 20)
	require.Equal(t, replicator.Event{Type: "crashed", Timestamp: epoch, Reason: "29 http://u:*****@h"}, history[0])
	require.Equal(t, "10 http://u:*****@h", history[19].Reason)

	before := history[:5:5]
	history.Push(replicator.Event{Type: replicator.EventStarted, Timestamp: epoch}, 5)
	require.Len(t, history, 5)
	require.Equal(t, "29 http://u:*****@h", before[0].Reason, "an earlier copy does not change")

	text, err := json.Marshal(history[0])
	require.NoError(t, err)
	require.Equal(t, `{"timestamp":"2026-11-21T01:48:29Z","type":"started"}`, string(text))

	history.Push(replicator.Event{Type: replicator.EventStopped, Code: replicator.EndParked}, 1)
	require.Equal(t, "it had copied everything, and waits for changes without a slot", history[0].Reason)
	history.Push(replicator.Event{Type: replicator.EventStarted}, 0)
	require.Empty(t, history)
}

func TestInfo(t *testing.T) {
	t.Parallel()
	shown := func(state replicator.JobState) string {
		text, err := json.Marshal(state.Info())
		require.NoError(t, err)
		return string(text)
	}
	state := replicator.JobState{State: replicator.StatePending}
	require.Equal(t, "null", shown(state))

	state = replicator.JobState{State: replicator.StateCompleted} // elsewhere
	require.Equal(t, "{}", shown(state))
	state.Stats.DocsWritten = 7 // its document has statistics without a start_time
	require.Contains(t, shown(state), `"docs_written":7`)

	state = replicator.JobState{State: replicator.StateRunning, StartTime: epoch}
	const none = `{"revisions_checked":0,"missing_revisions_found":0,"docs_read":0,"docs_written":0,"changes_pending":null,` +
		`"doc_write_failures":0,"bulk_get_docs":0,"bulk_get_attempts":0,"checkpointed_source_seq":"0","source_seq":"0"}`
	require.Equal(t, none, shown(state))

	state.Stats.Add(replicator.Stats{RevisionsChecked: 1, MissingRevisionsFound: 2, DocCounts: replicator.DocCounts{DocsRead: 3, DocsWritten: 4, DocWriteFailures: 5}, BulkGetDocs: 6, BulkGetAttempts: 7})
	state.Stats.Add(replicator.Stats{RevisionsChecked: 10, MissingRevisionsFound: 20, DocCounts: replicator.DocCounts{DocsRead: 30, DocsWritten: 40, DocWriteFailures: 50}, BulkGetDocs: 60, BulkGetAttempts: 70})
	state.ChangesPending = new(int64(8))
	state.CheckpointedSourceSeq, state.ThroughSeq, state.SourceSeq = json.RawMessage(`"1-a"`), json.RawMessage(`"2-b"`), json.RawMessage(`"3-c"`)
	const counters = `{"revisions_checked":11,"missing_revisions_found":22,"docs_read":33,"docs_written":44,"changes_pending":8,` +
		`"doc_write_failures":55,"bulk_get_docs":66,"bulk_get_attempts":77,"checkpointed_source_seq":"1-a"`
	for _, waiting := range []replicator.State{replicator.StateRunning, replicator.StatePending} {
		state.State = waiting
		require.Equal(t, counters+`,"source_seq":"3-c","through_seq":"2-b"}`, shown(state))
	}
	state.State = replicator.StateCompleted
	require.Equal(t, counters+`}`, shown(state))

	old := state // a source with other sequences than strings
	old.State = replicator.StateRunning
	old.CheckpointedSourceSeq, old.ThroughSeq, old.SourceSeq = json.RawMessage(`0`), json.RawMessage(`12`), json.RawMessage(`[13,"x"]`)
	require.Equal(t, strings.TrimSuffix(counters, `"1-a"`)+`"0","source_seq":"[13,\"x\"]","through_seq":"12"}`, shown(old))
	old.CheckpointedSourceSeq = json.RawMessage(`null`) // it is not known
	require.Contains(t, shown(old), `"checkpointed_source_seq":null,`)

	// Only a crashing or failed job shows its error; later progress is shown again.
	state.SetError("", "boom")
	require.Equal(t, counters+`}`, shown(state))
	for _, broken := range []replicator.State{replicator.StateCrashing, replicator.StateFailed} {
		state.State = broken
		require.Equal(t, `{"error":"boom"}`, shown(state))
	}
}

func TestStatsForms(t *testing.T) {
	t.Parallel()
	stats := replicator.Stats{RevisionsChecked: 1, MissingRevisionsFound: 2, DocCounts: replicator.DocCounts{DocsRead: 3, DocsWritten: 4, DocWriteFailures: 5}, BulkGetDocs: 6, BulkGetAttempts: 7}
	text, err := json.Marshal(replicator.CheckpointStats(stats))
	require.NoError(t, err)
	require.Equal(t, `{"missing_checked":1,"missing_found":2,"docs_read":3,"docs_written":4,"doc_write_failures":5,"bulk_get_docs":6,"bulk_get_attempts":7}`, string(text))
	text, err = json.Marshal(stats)
	require.NoError(t, err)
	require.Equal(t, `{"revisions_checked":1,"missing_revisions_found":2,"docs_read":3,"docs_written":4,"doc_write_failures":5,"bulk_get_docs":6,"bulk_get_attempts":7}`, string(text))
}
