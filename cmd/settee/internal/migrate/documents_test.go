package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/cmd/settee/internal/remote"
	"settee/pkg/config"
)

func parsed(t *testing.T, ok string) *document {
	t.Helper()
	d, err := parseDocument(json.RawMessage(`{"id":"a","docs":[{"ok":` + ok + `}]}`))
	require.NoError(t, err)
	require.NotNil(t, d)
	return d
}

func TestWhoseADocumentIs(t *testing.T) {
	t.Parallel()
	couchdb, settee := new(Server), new(Server)
	const deleted = `{"_id":"a","_rev":"2-bb","_deleted":true,"_revisions":{"start":2,"ids":["bb","aa"]}`
	mover := &Mover{CouchDB: couchdb, Settee: settee}
	moved := &transfer{Mover: mover, ids: map[*Server]string{couchdb: "c1", settee: "s1"}}
	for body, left := range map[string]*Server{
		deleted + `,"` + Mark + `":{"to":"http://x","id":"s1"}}`: couchdb,
		deleted + `,"` + Mark + `":{"to":"http://x","id":"c1"}}`: settee,
	} {
		assert.True(t, moved.belongs(left, parsed(t, body)), "it has moved to the other server")
		assert.False(t, moved.belongs(mover.other(left), parsed(t, body)), "it has moved to another one")
	}
	mover.TakeOver = true
	assert.True(t, moved.belongs(couchdb, parsed(t, deleted+`,"`+Mark+`":{"to":"http://x","id":"lost"}}`)))
	assert.False(t, moved.belongs(couchdb, parsed(t, deleted+`}`)), "somebody has deleted it")
}

func TestResultsOfBulkGet(t *testing.T) {
	t.Parallel()
	d := parsed(t, `{"_id":"a","_rev":"2-bb","_revisions":{"start":2,"ids":["bb","aa"]},"source":"x"}`)
	assert.Equal(t, "2-bb", d.rev)
	assert.Equal(t, []string{"bb", "aa"}, d.history)
	assert.False(t, d.deleted)
	assert.Nil(t, d.moved())
	assert.NotContains(t, d.body, "_revisions")
	deleted := `{"_id":"a","_rev":"2-bb","_deleted":true,"_revisions":{"start":2,"ids":["bb","aa"]}`
	assert.Nil(t, parsed(t, deleted+`}`).moved(), "somebody has deleted it")
	assert.Equal(t, &mark{}, parsed(t, deleted+`,"`+Mark+`":true}`).moved(), "it names no database")
	assert.Equal(t, &mark{To: "http://x", ID: "a"}, parsed(t, deleted+`,"`+Mark+`":{"to":"http://x","id":"a"}}`).moved())
	for _, gone := range []string{`{"id":"a","docs":[]}`, `{"id":"a","docs":[{"error":{"error":"not_found"}}]}`} {
		d, err := parseDocument(json.RawMessage(gone))
		require.NoError(t, err)
		assert.Nil(t, d, "it was replaced meanwhile")
	}
	for _, bad := range []string{`[]`, `{"id":"a","docs":[{"ok":1}]}`, `{"id":"a","docs":[{"ok":{"_rev":1}}]}`} {
		_, err := parseDocument(json.RawMessage(bad))
		require.Error(t, err, bad)
	}
}

// Both servers, and each repetition of a move, make the same revision of a document that moves.
func TestRevisionsOfDocumentsThatMove(t *testing.T) {
	t.Parallel()
	d := parsed(t, `{"_id":"a","_rev":"3-cc","_deleted":true,"_revisions":{"start":3,"ids":["cc","bb","aa"]},"source":"x","`+Mark+`":true}`)
	child := childOf("3-cc")
	assert.Equal(t, child, childOf("3-cc"))
	assert.NotEqual(t, child, childOf("3-cd"))
	require.Regexp(t, "^4-[0-9a-f]{32}$", child)
	text, err := json.Marshal(d.revived())
	require.NoError(t, err)
	assert.JSONEq(t, fmt.Sprintf(`{"_id":"a","_rev":%q,"_revisions":{"start":4,"ids":[%q,"cc","bb","aa"]},"source":"x"}`, child, strings.TrimPrefix(child, "4-")), string(text))
	text, err = json.Marshal(d.copied())
	require.NoError(t, err)
	assert.JSONEq(t, `{"_id":"a","_rev":"3-cc","_deleted":true,"_revisions":{"start":3,"ids":["cc","bb","aa"]},"source":"x","`+Mark+`":true}`, string(text))
}

func TestResultsAreReadOneByOne(t *testing.T) {
	t.Parallel()
	read := func(text string) (found []string, err error) {
		err = eachResult(json.NewDecoder(strings.NewReader(text)), func(raw json.RawMessage) error {
			found = append(found, string(raw))
			return nil
		})
		return found, err
	}
	found, err := read(`{"results":[1,{"a":[2]}],"last_seq":3}`)
	require.NoError(t, err)
	assert.Equal(t, []string{"1", `{"a":[2]}`}, found)
	for _, bad := range []string{``, `[]`, `{"error":"x"}`, `{"results":{}}`, `{"results":[1`, `{"results":[1,`} {
		_, err := read(bad)
		require.Error(t, err, bad)
	}
	stop := errors.New("stop")
	require.ErrorIs(t, eachResult(json.NewDecoder(strings.NewReader(`{"results":[1,2]}`)), func(json.RawMessage) error { return stop }), stop)
}

func TestWhatCouchDBCannotRun(t *testing.T) {
	t.Parallel()
	for body, refused := range map[string]bool{`{}`: false, `{"every":"1h"}`: true, `{"schedule":"0 0 * * *"}`: true, `{"paused":true}`: true, `{"paused":false}`: false} {
		d := new(document)
		require.NoError(t, json.Unmarshal([]byte(body), &d.body))
		reason, err := refusedByCouchDB(t.Context(), d)
		require.NoError(t, err)
		assert.Equal(t, refused, reason != "", body)
	}
}

func TestInParallel(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, checksAtOnce, 100} {
		seen := make([]atomic.Int32, n)
		require.NoError(t, inParallel(t.Context(), n, func(_ context.Context, i int) error { seen[i].Add(1); return nil }))
		for i := range seen {
			assert.Equal(t, int32(1), seen[i].Load())
		}
	}
	failed := errors.New("failed")
	require.ErrorIs(t, inParallel(t.Context(), 100, func(_ context.Context, i int) error {
		if i == 50 {
			return failed
		}
		return nil
	}), failed)
}

func TestPaths(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "/a%2F_replicator/_local%2Fx%3F", remote.Path("a/_replicator", "_local/x?"))
}

func TestAnswersOfServers(t *testing.T) {
	t.Parallel()
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error":"not_found","reason":"missing"}`)
			return
		}
		_, _ = io.WriteString(w, `{"uuid":"u"}`)
	}))
	defer peer.Close()
	connected, err := remote.Connect("CouchDB", strings.Replace(peer.URL, "://", "://admin:hidden@", 1), peer.Client().Transport)
	require.NoError(t, err)
	s := &Server{connected}
	assert.NotContains(t, s.String(), "hidden")
	found, err := s.has(t.Context(), "missing")
	require.NoError(t, err)
	assert.False(t, found)
	found, err = s.has(t.Context(), "there")
	require.NoError(t, err)
	assert.True(t, found)
	err = s.Get(t.Context(), "/missing", nil)
	assert.True(t, remote.IsStatus(err, http.StatusNotFound))
	assert.False(t, remote.IsStatus(err, http.StatusConflict))
	assert.False(t, remote.IsStatus(io.EOF, http.StatusNotFound))
	assert.Equal(t, "missing", reasonOf(err))
	assert.Equal(t, "EOF", reasonOf(io.EOF))
}

// A document that a check refuses stays, whatever the status is. An answer that is about the command ends it, and the error
// names the document.
func TestWhatSetteeRefuses(t *testing.T) {
	t.Parallel()
	status := 0
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"error":"why","reason":"because"}`)
	}))
	defer peer.Close()
	connected, err := remote.Connect("settee", peer.URL, peer.Client().Transport)
	require.NoError(t, err)
	s := &Server{connected}
	for _, status = range []int{400, 413, 415, 422} {
		_, refusal, err := s.check(t.Context(), &document{id: "d"})
		require.NoError(t, err)
		assert.Equal(t, "settee refuses it: because", refusal, status)
	}
	for _, status = range []int{401, 403, 404, 405, 408, 429, 500, 503} {
		_, _, err := s.check(t.Context(), &document{id: "d"})
		assert.True(t, remote.IsStatus(err, status))
		require.ErrorContains(t, err, `document "d"`)
	}
}

// A server that refuses a whole batch is asked again with parts of it, until the document is found that it refuses.
func TestBatchesThatAreRefused(t *testing.T) {
	t.Parallel()
	var stored []string
	status := 0
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Docs []struct {
				ID string `json:"_id"`
			}
		}
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
		for _, d := range body.Docs {
			if d.ID == "2" || d.ID == "5" {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, `{"error":"too_large","reason":"`+d.ID+`"}`)
				return
			}
		}
		for _, d := range body.Docs {
			stored = append(stored, d.ID)
		}
		_, _ = io.WriteString(w, `[]`)
	}))
	defer peer.Close()
	connected, err := remote.Connect("settee", peer.URL, peer.Client().Transport)
	require.NoError(t, err)
	s := &Server{connected}
	write := func() (refused []refusal, err error) {
		b := batch{to: s, db: "_replicator", refused: func(r refusal) error { refused = append(refused, r); return nil }}
		for _, id := range []string{"0", "1", "2", "3", "4", "5", "6"} {
			require.NoError(t, b.add(t.Context(), map[string]json.RawMessage{"_id": textOf(id)}, 1))
		}
		err = b.flush(t.Context())
		return refused, err
	}
	status = http.StatusRequestEntityTooLarge
	refused, err := write()
	require.NoError(t, err)
	assert.Equal(t, []refusal{{"2", "too_large", "2"}, {"5", "too_large", "5"}}, refused)
	assert.Equal(t, []string{"0", "1", "3", "4", "6"}, stored)
	status = http.StatusInternalServerError
	_, err = write()
	assert.True(t, remote.IsStatus(err, status))
}

func TestPortions(t *testing.T) {
	t.Parallel()
	for pattern, ids := range map[string]map[string]bool{
		"":        {"": true, "a": true},
		"films-*": {"films-": true, "films-1/2": true, "films": false, "my films-1": false},
		"a?c.*":   {"abc.": true, "aéc.d": true, "ac.": false, "abcd": false},
		"*\n*":    {"a\nb": true, "ab": false},
	} {
		for id, selected := range ids {
			assert.Equal(t, selected, NewPortion(pattern, 0).selects(id), "%q %q", pattern, id)
		}
	}
}

func TestLinesOfPlans(t *testing.T) {
	t.Parallel()
	planned := Planned{Document: "d", Database: "_replicator", Source: "a", Target: "b", State: "running", ID: "1"}
	for want, change := range map[string]func(p *Planned){
		`_replicator: "d", a to b, running, id 1: from the beginning`: func(p *Planned) { p.Start = "from the beginning" },
		`_replicator: "d", a to b, running, id 1: goes on from 12-x; old`: func(p *Planned) {
			p.Checkpoint, p.Warnings = json.RawMessage(`"12-x"`), []string{"old"}
		},
		`_replicator: "d", a to b, running, id 1: stays at CouchDB: no`: func(p *Planned) { p.Refused = "no" },
	} {
		p := planned
		change(&p)
		assert.Equal(t, want, p.String())
	}
	long := Planned{Checkpoint: json.RawMessage(`"` + strings.Repeat("7", 1000) + `"`)}
	assert.Less(t, len(long.String()), 100)
	assert.Equal(t, "_replicator: 3 jobs at CouchDB (1 failed, 2 running), 1 of them would stay; 4 moved from there; 5 at settee; those at CouchDB were not selected, were kept, or are newer than the move; 2 jobs run nowhere, because a move was interrupted: run --move or --back again; the database is paused in settee, because a way back was interrupted: run --move or --back again",
		DatabasePlan{"_replicator", 3, map[string]int{"running": 2, "failed": 1}, 1, 4, 5, 2, 0, "", 0, true}.String())
	assert.Equal(t, "_replicator: 1 job at CouchDB (1 running), and 7 others that were not selected; 0 moved from there; 0 at settee",
		DatabasePlan{Database: "_replicator", CouchDB: 1, States: map[string]int{"running": 1}, Left: 7}.String())
	assert.Equal(t, "_replicator: 1 document moved to settee, 2 kept", Moved{Moved: 1, Kept: 2, Database: "_replicator", To: "settee"}.String())
	assert.Equal(t, "_replicator: 10 documents moved to settee, 0 kept, 90 not selected", Moved{Moved: 10, Left: 90, Database: "_replicator", To: "settee"}.String())
	assert.Equal(t, "_replicator: 0 jobs at CouchDB; 0 moved from there; 0 at settee", DatabasePlan{Database: "_replicator"}.String())
}

func TestSettingsOfTheCluster(t *testing.T) {
	t.Parallel()
	usual := new(config.Config).Shown()["replicator"]["max_churn"]
	c := Cluster{UUID: "u", set: map[string]map[string]string{"replicator": {"max_jobs": "7", "max_churn": usual, "interval": "x", "unknown": "1"}}}
	text := string(c.INI())
	assert.Contains(t, text, "\nuuid = u\n")
	assert.Contains(t, text, "\nmax_jobs = 7\n")
	assert.NotContains(t, text, "\nmax_churn", "it is the default")
	assert.NotContains(t, text, "\nunknown")
	assert.Contains(t, text, "; unknown: left out: ")
	assert.Contains(t, text, "; "+verifyCertificates+": not set.")
}

// A plan says which documents share a replication id, as far as their jobs would run.
func TestPlanNamesSharedReplicationIDs(t *testing.T) {
	t.Parallel()
	p := planner{first: map[string]string{}}
	warningsOf := func(planned Planned) []string {
		p.noteID(&planned)
		return planned.Warnings
	}
	assert.Empty(t, warningsOf(Planned{Document: "ended", Database: "_replicator", ID: "x"}), "it does not run")
	assert.Empty(t, warningsOf(Planned{Document: "refused", Database: "_replicator", ID: "x", runs: true, Refused: "no"}))
	assert.Empty(t, warningsOf(Planned{Document: "a", Database: "_replicator", ID: "x", runs: true}))
	assert.Empty(t, warningsOf(Planned{Document: "unknown", Database: "_replicator", runs: true}))
	assert.Equal(t, []string{`document "a" of _replicator has the same replication id: the job of one of them fails`},
		warningsOf(Planned{Document: "b", Database: "team/_replicator", ID: "x", runs: true}))
}
