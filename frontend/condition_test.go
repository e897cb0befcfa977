package frontend_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/frontend/internal/webtest"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/nodes"
	"settee/pkg/sealed/sealedtest"
	"settee/replicator"
	"settee/replicator/jobs"
)

// told is what a test looks at of the member condition.
type told struct {
	State, Reason, Message string
	Since, Until           time.Time
	Fault                  string
	Marks                  map[string]float64 // the count of each
	all                    map[string]any
}

// tells requires that lists, the page of the job and the page of its document tell the same of a document's job, except what is
// of one job only, and returns that.
func (n *node) tells(database, doc string) told {
	n.Helper()
	var all []map[string]any
	page := n.page("/_scheduler/docs/" + url.PathEscape(database))
	for _, row := range page.Docs {
		if row["doc_id"] == doc {
			id := url.PathEscape(row["job_id"].(string))
			all = append(all, row, n.Get("/_scheduler/docs/"+url.PathEscape(database)+"/"+doc).Is(n.T, http.StatusOK).JSON(n.T),
				n.Get("/_scheduler/jobs/"+id).Is(n.T, http.StatusOK).JSON(n.T))
		}
	}
	for _, row := range n.page("/_scheduler/jobs?states=pending,running,crashing,completed,failed").Jobs {
		if row["doc_id"] == doc && row["database"] == database {
			all = append(all, row)
		}
	}
	require.Len(n, all, 4)
	c := all[0]["condition"].(map[string]any)
	for _, row := range all {
		same := row["condition"].(map[string]any)
		delete(same, "queue")
		delete(same, "watch")
		require.Equal(n, c, same)
	}
	text := func(name string) string { t, _ := c[name].(string); return t }
	moment := func(name string) (t time.Time) {
		if c[name] != nil {
			t = at(text(name))
		}
		return t
	}
	out := told{State: text("state"), Reason: text("reason"), Message: text("message"), Since: moment("since"), Until: moment("until"), all: all[0]}
	if fault, ok := c["fault"].(map[string]any); ok {
		out.Fault = fault["text"].(string)
	}
	marks, _ := c["marks"].([]any)
	for _, m := range marks {
		m := m.(map[string]any)
		if out.Marks == nil {
			out.Marks = map[string]float64{}
		}
		out.Marks[m["type"].(string)], _ = m["count"].(float64)
	}
	return out
}

// is requires a state, a reason and a fault.
func (c told) is(t *testing.T, state, reason, fault string) told {
	t.Helper()
	require.Equal(t, []string{state, reason, fault}, []string{c.State, c.Reason, c.Fault})
	return c
}

// weigh gives a database shares.
func (n *node) weigh(database string, weight float64) {
	n.Helper()
	require.NoError(n, n.jobs.Shares.SetWeights(n.Context(), map[string]float64{database: weight}))
}

// A pause by the document and one by the database are one state. It hides neither that the runs fail nor why, and has no time of
// a run that does not come.
func TestConditionOfPausedJobs(t *testing.T) {
	t.Parallel()
	const database = "a/_replicator"
	n := start(t)
	n.Do(http.MethodPut, "/a%2F_replicator", "").Is(t, http.StatusCreated)
	rev := n.Do(http.MethodPut, "/a%2F_replicator/d", definition("")).Is(t, http.StatusCreated).JSON(t)["rev"].(string)
	next := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	require.NoError(t, n.accept().Crash(t.Context(), next, 3, replicator.TextFault("db_not_found", "no")))
	crashing := n.tells(database, "d").is(t, "crashing", "backoff", "db_not_found: no")
	require.Equal(t, next, crashing.Until)
	require.Equal(t, map[string]float64{"failing": 3}, crashing.Marks)

	n.weigh(database, 0)
	byDatabase := n.tells(database, "d").is(t, "paused", "database", "db_not_found: no")
	n.weigh(database, 1)
	n.Do(http.MethodPut, "/a%2F_replicator/d", definition(`"paused": true, "_rev": "`+rev+`"`)).Is(t, http.StatusCreated)
	byDocument := n.tells(database, "d").is(t, "paused", "document", "db_not_found: no")
	for _, c := range []told{byDatabase, byDocument} {
		require.Equal(t, crashing.Marks, c.Marks)
		require.Zero(t, c.Until)
		require.WithinDuration(t, time.Now(), c.Since, time.Minute)
	}
	n.weigh(database, 0)
	n.tells(database, "d").is(t, "paused", "document", "db_not_found: no")

	run := n.Do(http.MethodPost, "/_scheduler/jobs/"+url.PathEscape(byDocument.all["job_id"].(string))+"/_run", "").Is(t, http.StatusAccepted).JSON(t)
	require.Equal(t, n.page("/_scheduler/docs").Docs[0]["condition"], run["condition"])
}

// A job that is parked in a paused database is paused.
func TestConditionOfAParkedJob(t *testing.T) {
	t.Parallel()
	const database = "a/_replicator"
	n := start(t)
	n.Do(http.MethodPut, "/a%2F_replicator", "").Is(t, http.StatusCreated)
	n.Do(http.MethodPut, "/a%2F_replicator/d", definition(`"continuous": true`)).Is(t, http.StatusCreated)
	run := n.accept()
	require.NoError(t, run.Parking(t.Context(), replicator.Parked{Server: "http://a.example/", Database: "db", UpdateSeq: `"7-x"`}))
	_, err := run.Park(t.Context(), nil)
	require.NoError(t, err)
	c := n.tells(database, "d").is(t, "parked", "no_changes", "")
	require.Zero(t, c.Until, "a day later, which is no plan")
	single := n.Get("/_scheduler/docs/a%2F_replicator/d").JSON(t)["condition"].(map[string]any)
	require.Equal(t, map[string]any{"server": "http://a.example/", "database": "db"}, single["watch"])
	n.weigh(database, 0)
	n.tells(database, "d").is(t, "paused", "database", "")
	n.weigh(database, 1)

	woken, err := n.jobs.Watches.Wake(t.Context(), "http://a.example/", []string{"db"})
	require.NoError(t, err)
	require.Equal(t, 1, woken)
	require.Equal(t, map[string]float64{"behind": 0}, n.tells(database, "d").is(t, "pending", "no_node", "").Marks)
}

// A job whose wait is over still says why its last run failed, until a run goes on, and for what it waits now.
func TestConditionOfADueJob(t *testing.T) {
	t.Parallel()
	const database = "a/_replicator"
	n := start(t)
	n.others = dyingAndLiving()
	n.Do(http.MethodPut, "/a%2F_replicator", "").Is(t, http.StatusCreated)
	n.Do(http.MethodPut, "/a%2F_replicator/d", definition("")).Is(t, http.StatusCreated)
	c := n.tells(database, "d").is(t, "pending", "slot", "")
	require.Equal(t, "is about to start", c.Message)
	queue := n.Get("/_scheduler/docs/a%2F_replicator/d").JSON(t)["condition"].(map[string]any)["queue"]
	require.Equal(t, map[string]any{"before": 0.}, queue)

	require.NoError(t, n.accept().Crash(t.Context(), time.Now().Add(time.Hour), 2, replicator.TextFault("db_not_found", "no")))
	id := n.tells(database, "d").is(t, "crashing", "backoff", "db_not_found: no").all["job_id"].(string)
	_, err := n.jobs.Requests.RunNow(t.Context(), id)
	require.NoError(t, err)
	c = n.tells(database, "d").is(t, "pending", "slot", "db_not_found: no")
	require.Equal(t, map[string]float64{"failing": 2}, c.Marks)
	require.Equal(t, []any{"crashing", map[string]any{"error": "db_not_found: no"}, 2.}, []any{c.all["state"], c.all["info"], c.all["error_count"]},
		"as in CouchDB, until its next run")
	for query, want := range map[string]int{
		"states=crashing": 1, "states=pending": 0, "condition=pending": 1, "condition=crashing": 0, "states=error&condition=pending": 1,
	} {
		require.Len(t, n.page("/_scheduler/docs?"+query).Docs, want, query)
		page := n.page("/_scheduler/jobs?" + query)
		require.Len(t, page.Jobs, want, query)
		for _, row := range page.Jobs {
			require.Equal(t, []any{"crashing", c.all["info"]}, []any{row["state"], row["info"]})
		}
	}
	require.EqualValues(t, 1, n.Get("/_scheduler/summary").JSON(t)["jobs"].(map[string]any)["pending"])
	n.weigh(database, 0)
	paused := n.tells(database, "d").is(t, "paused", "database", "db_not_found: no").all
	require.Equal(t, []any{"pending", nil}, []any{paused["state"], paused["info"].(map[string]any)["error"]})
	require.Empty(t, n.page("/_scheduler/jobs?states=crashing").Jobs)
	require.Len(t, n.page("/_scheduler/jobs?states=pending").Jobs, 1)
	n.weigh(database, 1)
	n.others[1].Running = n.others[1].MaxJobs
	require.Equal(t, "waits for a slot", n.tells(database, "d").Message)
	n.others[1].Live = false
	n.tells(database, "d").is(t, "pending", "no_node", "db_not_found: no")

	run := n.accept()
	require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) {
		s.Activity = &replicator.Activity{Doing: replicator.DoingRetrying, Since: time.Now(), Waiting: []replicator.Wait{{Error: "no answer", Until: time.Now()}}}
	}))
	n.tells(database, "d").is(t, "running", "retrying", "no answer")
	require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) { s.Activity = &replicator.Activity{Doing: replicator.DoingCopying} }))
	c = n.tells(database, "d").is(t, "running", "copying", "db_not_found: no")
	require.Equal(t, map[string]float64{"failing": 2}, c.Marks)

	// Its node has died.
	require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) { s.StartTime = time.Now().Add(-time.Minute) }))
	n.tells(database, "d").is(t, "running", "node_lost", "db_not_found: no")
	n.others = append(n.others, nodes.Seen{Node: nodes.Node{Name: "node1", Roles: []string{"replication"}}, Live: true})
	n.tells(database, "d").is(t, "running", "copying", "db_not_found: no")
	require.NoError(t, run.Complete(t.Context(), nil))
	require.Empty(t, n.tells(database, "d").is(t, "completed", "copied_all", "").Marks)
}

// A job that is queued for later says until when, whatever has put it there.
func TestConditionOfADelayedJob(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Do(http.MethodPut, "/_replicator", "").Is(t, http.StatusCreated)
	n.Do(http.MethodPut, "/_replicator/d", definition("")).Is(t, http.StatusCreated)
	held, err := n.jobs.Jobs.Accept(t.Context(), fdbjobs.AcceptOptions{Count: 1})
	require.NoError(t, err)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	require.NoError(t, held[0].Resubmit(t.Context(), until, nil, nil))
	require.Equal(t, until, n.tells("_replicator", "d").is(t, "pending", "delayed", "").Until)
}

// A document that says that it has failed elsewhere says since when.
func TestConditionOfAJobThatFailedElsewhere(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Do(http.MethodPut, "/_replicator", "").Is(t, http.StatusCreated)
	n.Do(http.MethodPut, "/_replicator/d", definition(`"_replication_state": "failed", "_replication_state_time": "2026-01-02T03:04:05Z",
		"_replication_state_reason": "gone"`)).Is(t, http.StatusCreated)
	c := n.tells("_replicator", "d").is(t, "failed", "ended_elsewhere", "gone")
	require.Equal(t, at("2026-01-02T03:04:05Z"), c.Since)
}

// A job whose definition no node can open is told as that everywhere, and only its definition is not to be had.
func TestConditionOfASealedJob(t *testing.T) {
	t.Parallel()
	n := start(t)
	keys := sealedtest.Keys(t, "a")
	layer := fdbjobs.Open(n.DB, []byte("jobs"), fdbjobs.Options{Sealer: keys, Derive: jobs.Derivations()})
	defer layer.Close()
	store, err := jobs.Open(t.Context(), n.DB, layer, jobs.Options{UUID: n.jobs.ServerUUID, Documents: []byte("docs"), Sealer: keys})
	require.NoError(t, err)
	docs := docstore.Open(n.DB, []byte("docs"), docstore.Options{
		Hooks: store.Documents.Hooks(nil), Sealer: keys, Sealed: replicator.IsReplicatorDatabase,
	})
	defer docs.Close()
	db, err := docs.Create(t.Context(), "_replicator")
	require.NoError(t, err)
	_, err = db.Put(t.Context(), docstore.Edit{ID: "d", Body: docjson.Must(definition(""))})
	require.NoError(t, err)
	n.tells("_replicator", "d").is(t, "pending", "no_node", "")

	_, err = accept(t.Context(), n.jobs)
	require.ErrorIs(t, err, fdbjobs.ErrSealed)
	c := n.tells("_replicator", "d")
	require.Equal(t, []string{"crashing", "sealed"}, []string{c.State, c.Reason})
	require.Contains(t, c.Fault, `sealed with the key "a"`)
	require.Contains(t, c.Marks, "failing")
	require.WithinDuration(t, time.Now().Add(time.Minute), c.Until, 30*time.Second)

	path := "/_scheduler/jobs/" + url.PathEscape(c.all["job_id"].(string))
	require.JSONEq(t, `{"total":0,"failures":[]}`, n.Get(path+"/failures").Is(t, http.StatusOK).Body)
	for _, got := range []webtest.Answer{n.Get(path + "/definition"), n.Do(http.MethodPost, path+"/_run", "")} {
		webtest.Refused(t, got, http.StatusInternalServerError, "unreadable", "this node cannot open the definition of the job: it lacks the key")
	}
}
