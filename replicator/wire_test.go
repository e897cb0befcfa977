package replicator_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
	"settee/replicator"
)

func reasonOf(t *testing.T, body string) string {
	t.Helper()
	var answer struct{ Reason string }
	require.NoError(t, json.Unmarshal([]byte(body), &answer))
	return answer.Reason
}

// decodeStrictly decodes a JSON text that has no other members than the value.
func decodeStrictly(t *testing.T, text string, value any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(value))
}

func TestRecordedRequestsThatCouchDBRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		number        int
		field, reason string
		couchDBs      bool // the reason is CouchDB's text
	}{
		{72, "source", "parameter `source` is missing: it must be the URL of a database, or an object with its `url`", false},
		{73, "", "invalid UTF-8 JSON", true},
		{74, "continuous", "parameter `continuous` must be a boolean", true},
		{75, "filter", "`doc_ids`,`filter`,`selector` are mutually exclusive", true},
		{97, "target", "parameter `target` is missing: it must be the URL of a database, or an object with its `url`", false},
		{98, "worker_processes", "parameter `worker_processes` must be an integer of at least 1", false},
		{99, "selector", "`doc_ids`,`filter`,`selector` are mutually exclusive", false},
		{100, "source", "parameter `source` must be the URL of a database, or an object with its `url`", false},
		{101, "source", "parameter `source` has an invalid url: its host is not valid", false},
		{102, "source", "parameter `source` must be a URL with protocol http or https", false},
		{103, "proxy", "`proxy` is mutually exclusive with `source_proxy`", false},
		{104, "doc_ids", "parameter `doc_ids` must be an array", false},
		{105, "user_ctx", "parameter `user_ctx` must be an object with `name` and `roles`", false},
		{106, "source", "parameter `source` must be a full URL with protocol http or https: names of local databases are not supported", false},
		{107, "continuous", "parameter `continuous` must be a boolean", false},
		{110, "filter", "Invalid filter. Must match `ddocname/filtername`.", true},
		{111, "proxy", "parameter `proxy` must be a URL with protocol http, https or socks5", false},
	}
	for _, test := range tests {
		r := couchtest.Recorded(t, test.number)
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			require.GreaterOrEqual(t, r.Status, 400)
			var err error
			if r.Target == "/_replicate" {
				_, err = replicator.ParseRequest([]byte(r.RequestBody), replicator.ParseOptions{})
			} else {
				_, err = parseDocument([]byte(r.RequestBody), replicator.ParseOptions{})
			}
			var parseErr *replicator.ParseError
			require.ErrorAs(t, err, &parseErr)
			require.Equal(t, &replicator.ParseError{Field: test.field, Reason: test.reason}, parseErr)
			require.Contains(t, parseErr.Error(), test.field)
			if test.couchDBs {
				require.Equal(t, reasonOf(t, r.Body), test.reason)
			} else if strings.Contains(reasonOf(t, r.Body), "bad_request") {
				// CouchDB's reason is an Erlang term around this text.
				require.Contains(t, reasonOf(t, r.Body), test.reason)
			}
		})
	}
}

func TestRecordedRequestsThatCouchDBAccepted(t *testing.T) {
	t.Parallel()
	var request *replicator.Request
	for _, number := range []int{65, 66, 67, 68, 69, 70, 71, 77, 81, 82, 83} {
		var err error
		request, err = replicator.ParseRequest([]byte(couchtest.Recorded(t, number).RequestBody), replicator.ParseOptions{})
		require.NoError(t, err, number)
	}
	require.Equal(t, &replicator.Request{Cancel: true, ID: "abc+continuous"}, request)
}

// Document writes that CouchDB accepted are accepted, and those it answered with 403 are refused
// in that form.
func TestRecordedDocumentWrites(t *testing.T) {
	t.Parallel()
	for number := 85; number <= 111; number++ {
		r := couchtest.Recorded(t, number)
		if r.RequestBody == "" {
			continue // a GET
		}
		d, err := parseDocument([]byte(r.RequestBody), replicator.ParseOptions{})
		switch {
		case number == 108: // CouchDB takes a since_seq that is no sequence, and its job crashes for good
			require.Equal(t, http.StatusCreated, r.Status)
			require.EqualError(t, err, "parameter `since_seq` must be an update sequence: a string, an array, or an integer of 0 or more")
		case r.Status == http.StatusCreated:
			require.NoError(t, err, r.Name)
			require.Equal(t, replicator.StartJob, d.Effect(nil), r.Name)
		default:
			require.Equal(t, http.StatusForbidden, r.Status, r.Name)
			var parseErr *replicator.ParseError
			require.ErrorAs(t, err, &parseErr, r.Name)
			var theirs replicator.Refusal
			decodeStrictly(t, r.Body, &theirs)
			require.Equal(t, theirs.Error, parseErr.Forbidden().Error, r.Name)
		}
	}
}

// A document as written, and as stored with an owner.
func TestRecordedOwner(t *testing.T) {
	t.Parallel()
	written, stored := couchtest.Recorded(t, 85).RequestBody, couchtest.Recorded(t, 90).Body
	owned, err := withOwner([]byte(written), new("admin"), true)
	require.NoError(t, err)
	var want map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(stored), &want))
	delete(want, "_id")
	delete(want, "_rev")
	text, err := json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, string(text), strings.ReplaceAll(string(owned), "couch.example:5984", "127.0.0.1:15984"))

	// Only the owner is added.
	before, err := parseDocument(owned, replicator.ParseOptions{})
	require.NoError(t, err)
	require.Equal(t, new("admin"), wanted(before).Owner)
	again, err := withOwner(owned, new("admin"), true)
	require.NoError(t, err)
	require.Equal(t, string(owned), string(again))
}

// Documents of completed and failed jobs, byte for byte.
func TestRecordedTerminalStates(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 1, 48, 31, 0, time.UTC)
	completed := replicator.JobState{
		State: replicator.StateCompleted, LastUpdated: at, StartTime: at,
		Stats: replicator.Stats{RevisionsChecked: 9, MissingRevisionsFound: 8, DocCounts: replicator.DocCounts{DocsRead: 8, DocsWritten: 8}, BulkGetDocs: 5, BulkGetAttempts: 7},
	}
	failed := replicator.JobState{
		State: replicator.StateFailed, LastUpdated: at.Add(4 * time.Second),
		Error: "Replication `721cacbc2676c193091b9dd4825d86c2+continuous` specified by document `w4` already started, " +
			"triggered by document `w1` from db `_replicator`",
	}
	for number, state := range map[int]replicator.JobState{89: completed, 91: failed} {
		text := []byte(strings.TrimSpace(couchtest.Recorded(t, number).Body))
		d, err := parseDocument(text, replicator.ParseOptions{})
		require.NoError(t, err)
		require.Equal(t, replicator.DocumentState(state.State), d.State)
		require.Equal(t, state.LastUpdated, d.StateTime)
		require.Equal(t, state.Error, d.StateReason)
		require.Equal(t, replicator.KeepJob, d.Effect(nil))
		if d.Stats != nil {
			var stats replicator.DocumentStats
			require.NoError(t, json.Unmarshal(d.Stats, &stats))
			state.CheckpointedSourceSeq = stats.CheckpointedSourceSeq
			require.Equal(t, state.DocumentStats(), stats)
		}

		without, err := replicator.ClearDocumentState(text)
		require.NoError(t, err)
		require.NotContains(t, string(without), "_replication_")
		d, err = parseDocument(without, replicator.ParseOptions{})
		require.NoError(t, err)
		require.Equal(t, replicator.StartJob, d.Effect(nil))

		with, err := state.UpdateDocument(without)
		require.NoError(t, err)
		require.Equal(t, string(text), string(with))
	}
}

// A running, a completed, a crashing and a failed document in _scheduler/docs and
// _scheduler/jobs.
func TestRecordedInfo(t *testing.T) {
	t.Parallel()
	var listing struct {
		Docs []struct {
			State replicator.State
			Info  json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal([]byte(couchtest.Recorded(t, 92).Body), &listing))
	require.Len(t, listing.Docs, 4)
	for _, doc := range listing.Docs {
		var info *replicator.Info
		decodeStrictly(t, string(doc.Info), &info)
		state := replicator.JobState{State: doc.State}
		if info != nil && info.Error != "" {
			state.SetError("", info.Error)
		}
		if info != nil && info.Progress != nil {
			state.StartTime = epoch
			state.Stats.RevisionsChecked = info.RevisionsChecked
			state.Stats.MissingRevisionsFound = info.MissingRevisionsFound
			state.Stats.DocsRead = info.DocsRead
			state.Stats.DocsWritten = info.DocsWritten
			state.Stats.BulkGetDocs = info.BulkGetDocs
			state.Stats.BulkGetAttempts = info.BulkGetAttempts
			state.CheckpointedSourceSeq = info.CheckpointedSourceSeq
		}
		text, err := json.Marshal(state.Info())
		require.NoError(t, err)
		require.Equal(t, string(doc.Info), string(text))
	}
}

// The counters of a recorded checkpoint.
func TestRecordedCheckpointStats(t *testing.T) {
	t.Parallel()
	var checkpoint struct {
		History []replicator.CheckpointStats
	}
	require.NoError(t, json.Unmarshal([]byte(couchtest.Recorded(t, 67).Body), &checkpoint))
	require.Equal(t, replicator.Stats{
		RevisionsChecked: 1, MissingRevisionsFound: 1, DocCounts: replicator.DocCounts{DocsRead: 1, DocsWritten: 1}, BulkGetDocs: 1, BulkGetAttempts: 1,
	}, replicator.Stats(checkpoint.History[0]))
}

// The errors of POST /_replicate, and their form in listings.
func TestRecordedErrors(t *testing.T) {
	t.Parallel()
	for _, number := range []int{68, 69, 70, 71} {
		var body struct{ Error, Reason string }
		require.NoError(t, json.Unmarshal([]byte(couchtest.Recorded(t, number).Body), &body))
		var state replicator.JobState
		state.SetError(body.Error, body.Reason)
		code, reason := state.ErrorBody()
		require.Equal(t, body.Error, code)
		require.Equal(t, body.Reason, reason)
	}
	var state replicator.JobState
	state.SetError("db_not_found", "could not open http://127.0.0.1:15984/nosuchdb/")
	require.Equal(t, "db_not_found: could not open http://127.0.0.1:15984/nosuchdb/", state.Error)
}
