package replicator_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"settee/replicator"

	"github.com/stretchr/testify/require"
)

// recorded returns the body of the request of that number, and the status and the
// body of what CouchDB 3.5.0 answered.
func recorded(t *testing.T, number string) (request []byte, status int, response []byte) {
	t.Helper()
	read := func(kind string) *bufio.Reader {
		names, err := filepath.Glob("../testdata/wire/" + number + "-*." + kind)
		require.NoError(t, err)
		require.Len(t, names, 1, number)
		text, err := os.ReadFile(names[0])
		require.NoError(t, err)
		return bufio.NewReader(bytes.NewReader(text))
	}
	// The bodies hold other host names than those that were sent, so that
	// Content-Length does not fit: they go to the end of the file.
	body := func(r *bufio.Reader) []byte {
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		_, text, found := bytes.Cut(text, []byte("\r\n\r\n"))
		require.True(t, found)
		return bytes.TrimSpace(text)
	}
	answer, err := http.ReadResponse(read("response"), nil)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return body(read("request")), answer.StatusCode, text
}

func reasonOf(t *testing.T, body []byte) string {
	t.Helper()
	var answer struct{ Reason string }
	require.NoError(t, json.Unmarshal(body, &answer))
	return answer.Reason
}

func TestRecordedRequestsThatCouchDBRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		number, field, reason string
		couchDBs              bool // the reason is CouchDB's own
	}{
		{"072", "source", "parameter `source` is missing: it must be the URL of a database, or an object with its `url`", false},
		{"073", "", "invalid UTF-8 JSON", true},
		{"074", "continuous", "parameter `continuous` must be a boolean", true},
		{"075", "filter", "`doc_ids`,`filter`,`selector` are mutually exclusive", true},
		{"097", "target", "parameter `target` is missing: it must be the URL of a database, or an object with its `url`", false},
		{"098", "worker_processes", "parameter `worker_processes` must be an integer from 1 to 100", false},
		{"099", "selector", "`doc_ids`,`filter`,`selector` are mutually exclusive", false},
		{"100", "source", "parameter `source` must be the URL of a database, or an object with its `url`", false},
		{"101", "source", "parameter `source` has an invalid url: its host is not valid", false},
		{"102", "source", "parameter `source` must be a URL with protocol http or https", false},
		{"103", "proxy", "`proxy` is mutually exclusive with `source_proxy`", false},
		{"104", "doc_ids", "parameter `doc_ids` must be an array", false},
		{"105", "user_ctx", "parameter `user_ctx` must be an object with `name` and `roles`", false},
		{"106", "source", "parameter `source` must be a full URL with protocol http or https: names of local databases are not supported", false},
		{"107", "continuous", "parameter `continuous` must be a boolean", false},
		{"110", "filter", "Invalid filter. Must match `ddocname/filtername`.", true},
		{"111", "proxy", "parameter `proxy` must be a URL with protocol http, https or socks5", false},
	}
	for _, test := range tests {
		t.Run(test.number, func(t *testing.T) {
			t.Parallel()
			body, status, answer := recorded(t, test.number)
			require.GreaterOrEqual(t, status, 400)
			parse := func() error {
				_, err := replicator.ParseDocument(body, replicator.ParseOptions{})
				return err
			}
			if test.number < "097" {
				parse = func() error {
					_, err := replicator.ParseRequest(body, replicator.ParseOptions{})
					return err
				}
			}
			var parseErr *replicator.ParseError
			require.ErrorAs(t, parse(), &parseErr)
			require.Equal(t, &replicator.ParseError{Field: test.field, Reason: test.reason}, parseErr)
			require.Contains(t, parseErr.Error(), test.field)
			if test.couchDBs {
				require.Equal(t, reasonOf(t, answer), test.reason)
			} else if strings.Contains(reasonOf(t, answer), "bad_request") {
				// CouchDB's reason is an Erlang term around this text.
				require.Contains(t, reasonOf(t, answer), test.reason)
			}
		})
	}
}

// CouchDB takes a since_seq that is no sequence, and its job crashes for good.
func TestRecordedSinceSeqObject(t *testing.T) {
	t.Parallel()
	body, status, _ := recorded(t, "108")
	require.Equal(t, http.StatusCreated, status)
	_, err := replicator.ParseDocument(body, replicator.ParseOptions{})
	require.EqualError(t, err, "parameter `since_seq` must be an update sequence: a string, an array, or an integer of 0 or more")
}

func TestRecordedRequestsThatCouchDBTook(t *testing.T) {
	t.Parallel()
	for _, number := range []string{"065", "066", "067", "068", "069", "070", "071", "077", "081", "082", "083"} {
		body, _, _ := recorded(t, number)
		_, err := replicator.ParseRequest(body, replicator.ParseOptions{})
		require.NoError(t, err, number)
	}
	body, _, _ := recorded(t, "083")
	request, err := replicator.ParseRequest(body, replicator.ParseOptions{})
	require.NoError(t, err)
	require.Equal(t, &replicator.Request{Cancel: true, ID: "abc+continuous"}, request)
}

// Writes of documents: what CouchDB took is taken, and what it answered 403 to is
// refused in the form of that answer.
func TestRecordedDocumentWrites(t *testing.T) {
	t.Parallel()
	for number := 85; number <= 111; number++ {
		name := fmt.Sprintf("%03d", number)
		body, status, answer := recorded(t, name)
		if len(body) == 0 {
			continue // a GET
		}
		d, err := replicator.ParseDocument(body, replicator.ParseOptions{})
		if status == http.StatusCreated && name != "108" { // which TestRecordedSinceSeqObject is about
			require.NoError(t, err, name)
			require.Equal(t, replicator.StartJob, d.Effect(nil), name)
			continue
		}
		var parseErr *replicator.ParseError
		require.ErrorAs(t, err, &parseErr, name)
		if name == "108" {
			continue
		}
		require.Equal(t, http.StatusForbidden, status, name)
		var theirs replicator.Refusal
		decoder := json.NewDecoder(bytes.NewReader(answer))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&theirs), name)
		require.Equal(t, theirs.Error, parseErr.Forbidden().Error, name)
	}
}

// A document as it was written and as it is stored: with an owner.
func TestRecordedOwner(t *testing.T) {
	t.Parallel()
	written, _, _ := recorded(t, "085")
	_, _, stored := recorded(t, "090")
	owned, err := replicator.SetOwner(written, new("admin"), true)
	require.NoError(t, err)
	var want map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(stored, &want))
	delete(want, "_id")
	delete(want, "_rev")
	text, err := json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, string(text), strings.ReplaceAll(string(owned), "couch.example:5984", "127.0.0.1:15984"))

	// What was added is no other replication, but for whose it is.
	before, err := replicator.ParseDocument(owned, replicator.ParseOptions{})
	require.NoError(t, err)
	require.Equal(t, new("admin"), before.Wanted().Owner)
	again, err := replicator.SetOwner(owned, new("admin"), true)
	require.NoError(t, err)
	require.Equal(t, string(owned), string(again))
}

// Documents whose jobs have ended, byte for byte.
func TestRecordedTerminalStates(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 1, 48, 31, 0, time.UTC)
	completed := replicator.JobState{
		State: replicator.StateCompleted, LastUpdated: at, StartTime: at,
		Stats: replicator.Stats{RevisionsChecked: 9, MissingRevisionsFound: 8, DocsRead: 8, DocsWritten: 8, BulkGetDocs: 5, BulkGetAttempts: 7},
	}
	failed := replicator.JobState{
		State: replicator.StateFailed, LastUpdated: at.Add(4 * time.Second),
		Error: "Replication `721cacbc2676c193091b9dd4825d86c2+continuous` specified by document `w4` already started, " +
			"triggered by document `w1` from db `_replicator`",
	}
	for number, state := range map[string]replicator.JobState{"089": completed, "091": failed} {
		_, _, text := recorded(t, number)
		text = bytes.TrimSpace(text)
		d, err := replicator.ParseDocument(text, replicator.ParseOptions{})
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
		d, err = replicator.ParseDocument(without, replicator.ParseOptions{})
		require.NoError(t, err)
		require.Equal(t, replicator.StartJob, d.Effect(nil))

		with, err := state.UpdateDocument(without)
		require.NoError(t, err)
		require.Equal(t, string(text), string(with))
	}
}

// A running, a completed, a crashing and a failed document as _scheduler/docs and
// _scheduler/jobs show them.
func TestRecordedInfo(t *testing.T) {
	t.Parallel()
	var listing struct {
		Docs []struct {
			State replicator.State
			Info  json.RawMessage
		}
	}
	_, _, answer := recorded(t, "092")
	require.NoError(t, json.Unmarshal(answer, &listing))
	require.Len(t, listing.Docs, 4)
	for _, doc := range listing.Docs {
		var info *replicator.Info
		decoder := json.NewDecoder(bytes.NewReader(doc.Info))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&info))
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

// The counters in a recorded checkpoint.
func TestRecordedCheckpointStats(t *testing.T) {
	t.Parallel()
	_, _, answer := recorded(t, "067")
	var checkpoint struct {
		History []replicator.CheckpointStats
	}
	require.NoError(t, json.Unmarshal(answer, &checkpoint))
	require.Equal(t, replicator.Stats{
		RevisionsChecked: 1, MissingRevisionsFound: 1, DocsRead: 1, DocsWritten: 1, BulkGetDocs: 1, BulkGetAttempts: 1,
	}, replicator.Stats(checkpoint.History[0]))
}

// The errors of POST /_replicate, and the form that listings have them in.
func TestRecordedErrors(t *testing.T) {
	t.Parallel()
	for _, number := range []string{"068", "069", "070", "071"} {
		_, _, answer := recorded(t, number)
		var body struct{ Error, Reason string }
		require.NoError(t, json.Unmarshal(answer, &body))
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
