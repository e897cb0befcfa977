package frontend_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/frontend/internal/webtest"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/nodes"
	"settee/replicator"
)

func TestListJobs(t *testing.T) {
	t.Parallel()
	n := start(t)
	require.Equal(t, `{"total_rows":0,"offset":0,"jobs":[]}`+"\n", n.Get("/_scheduler/jobs").Body)
	const many = 105
	for i := range many {
		require.Equal(t, http.StatusAccepted, n.post(definition(fmt.Sprintf(`"continuous": true, "doc_ids": ["%d"]`, i))).Status)
	}
	list := func(query string) (total, offset int, ids []string) {
		got := n.Get("/_scheduler/jobs"+query).Is(t, http.StatusOK)
		var page struct {
			TotalRows int `json:"total_rows"`
			Offset    int `json:"offset"`
			Jobs      []struct{ ID string }
		}
		require.NoError(t, json.Unmarshal([]byte(got.Body), &page))
		ids = []string{}
		for _, job := range page.Jobs {
			ids = append(ids, job.ID)
		}
		return page.TotalRows, page.Offset, ids
	}
	_, _, all := list("?limit=1000")
	require.Len(t, all, many)
	slices.Sort(all)
	require.Len(t, slices.Compact(all), many)
	_, _, all = list("?limit=1000")
	for query, want := range map[string]struct{ begin, end, offset int }{
		"":                              {0, 100, 0},
		"?limit=3":                      {0, 3, 0},
		"?limit=0":                      {0, 0, 0},
		"?skip=103":                     {103, 105, 103},
		"?skip=50&limit=20":             {50, 70, 50},
		"?skip=500":                     {105, 105, 105},
		"?skip=10000&limit=1000":        {105, 105, 105},
		"?limit=99999999999":            {0, 105, 0},
		"?skip=99999999999999999999":    {105, 105, 105},
		"?limit=2&limit=7&unknown=true": {0, 2, 0},
	} {
		total, offset, ids := list(query)
		require.Equal(t, many, total)
		require.Equal(t, want.offset, offset, query)
		require.Equal(t, append([]string{}, all[want.begin:want.end]...), ids, query)
	}
	for query, reason := range map[string]string{
		"?limit=x":                "Invalid value for integer parameter `limit`: it must be a whole number of at least 0",
		"?limit=":                 "Invalid value for integer parameter `limit`: it must be a whole number of at least 0",
		"?limit=-1":               "Invalid value for integer parameter `limit`: it must be a whole number of at least 0",
		"?limit=1.5":              "Invalid value for integer parameter `limit`: it must be a whole number of at least 0",
		"?skip=-1":                "Invalid value for integer parameter `skip`: it must be a whole number of at least 0",
		"?skip=" + webtest.Secret: "Invalid value for integer parameter `skip`: it must be a whole number of at least 0",
		"?limit=%zz":              "the query of the URL is not percent-encoded as it should be",
	} {
		webtest.Refused(t, n.Get("/_scheduler/jobs"+query), http.StatusBadRequest, "query_parse_error", reason)
	}
}

func TestJobInEachState(t *testing.T) {
	t.Parallel()
	n := start(t)
	id := n.post(definition(`"continuous": true`)).LocalID(t)
	job := func() map[string]any {
		t.Helper()
		got := n.Get("/_scheduler/jobs/"+id).Is(t, http.StatusOK)
		row := got.JSON(t)
		require.Equal(t, id, row["id"])
		require.Equal(t, "http://a.example/db/", row["source"])
		require.Equal(t, "http://b.example/db/", row["target"])
		return row
	}
	row := job()
	require.Equal(t, "pending", row["state"])
	for _, name := range []string{"pid", "node", "start_time", "info", "database", "doc_id"} {
		require.Nil(t, row[name], name)
	}
	require.Equal(t, webtest.AdminName, row["user"])
	require.Equal(t, row, n.Get("/_scheduler/jobs/"+row["job_id"].(string)).Is(t, http.StatusOK).JSON(t))
	require.Len(t, row["history"], 1)

	run := n.accept()
	left := int64(3)
	require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) {
		s.Stats.DocsRead, s.ChangesPending, s.SourceSeq = 12, &left, json.RawMessage(`"15-<x>"`)
	}))
	row = job()
	require.Equal(t, "running", row["state"])
	require.NotNil(t, row["pid"])
	info := row["info"].(map[string]any)
	require.EqualValues(t, 12, info["docs_read"])
	require.EqualValues(t, 3, info["changes_pending"])
	require.Equal(t, "15-<x>", info["source_seq"])
	require.Equal(t, "0", info["checkpointed_source_seq"])

	require.NoError(t, run.Crash(t.Context(), time.Now(), 1, &replicator.Fault{
		Code: replicator.FaultDatabaseMissing, Side: replicator.SideTarget, Database: "http://adm:" + webtest.Secret + "@b.example/",
	}))
	row = job()
	require.Equal(t, "crashing", row["state"])
	require.Nil(t, row["pid"], "it does not run")
	require.Equal(t, map[string]any{"error": "db_not_found: could not open http://adm:*****@b.example/"}, row["info"])
	require.Equal(t, "db_not_found: could not open http://adm:*****@b.example/", row["history"].([]any)[0].(map[string]any)["reason"])

	// Taken, but not yet started: it runs, and what it has counted is shown.
	held, err := accept(t.Context(), n.jobs)
	require.NoError(t, err)
	row = job()
	require.Equal(t, "running", row["state"])
	require.EqualValues(t, 12, row["info"].(map[string]any)["docs_read"])

	require.NoError(t, held.Fail(t.Context(), replicator.TextFault("", "given up")))
	row = job()
	require.Equal(t, "failed", row["state"])
	require.Equal(t, map[string]any{"error": "given up"}, row["info"])
	runs := row["runs"].([]any)
	require.Len(t, runs, 1)
	first := runs[0].(map[string]any)
	require.NotNil(t, first["start"])
	require.NotNil(t, first["end"])
	require.NotNil(t, first["node"])
	for _, name := range []string{"start", "end", "node"} {
		delete(first, name)
	}
	require.Equal(t, map[string]any{
		"outcome": "crashed", "docs_read": 0., "docs_written": 0., "doc_write_failures": 0.,
		"reason": "db_not_found: could not open http://adm:*****@b.example/", "code": "database_missing",
	}, first)
	require.EqualValues(t, 0, n.Get("/_scheduler/jobs").JSON(t)["total_rows"], "what has ended is not listed")
}

func TestJobOfADocument(t *testing.T) {
	t.Parallel()
	n := start(t)
	database, doc, user := "acct/_replicator", "a doc/with+ä", "bob"
	request, err := replicator.ParseRequest([]byte(definition("")), replicator.ParseOptions{})
	require.NoError(t, err)
	want, err := request.Replication.ID(n.jobs.ServerUUID, "")
	require.NoError(t, err)
	db, err := n.Documents.Create(t.Context(), database)
	require.NoError(t, err)
	_, err = db.Put(t.Context(), docstore.Edit{ID: doc, Body: docjson.Must(definition(`"user_ctx": {"name": "bob"}`))})
	require.NoError(t, err)
	id := replicator.PersistentJobID(db.Instance(), doc)
	escaped := strings.ReplaceAll(url.PathEscape(id), "+", "%2B")
	for _, name := range []string{
		escaped, strings.Replace(escaped, "%20", "+", 1), strings.Replace(escaped, "%7C", "|", 1), strings.Replace(escaped, "d", "%64", 1),
	} {
		got := n.Get("/_scheduler/jobs/"+name).Is(t, http.StatusOK)
		row := got.JSON(t)
		require.Equal(t, want.String(), row["id"])
		require.Equal(t, database, row["database"])
		require.Equal(t, doc, row["doc_id"])
		require.Equal(t, user, row["user"])
		require.Len(t, row["history"], 1)
	}
	run := n.accept()
	require.NoError(t, run.Identify(t.Context(), want))
	require.NoError(t, run.Opened(t.Context()))
	require.Equal(t, want.String(), n.Get("/_scheduler/jobs/" + want.String()).JSON(t)["id"])
	n.post(definition(`"continuous": true, "doc_ids": []`)).Is(t, http.StatusAccepted)
	continuous := n.page("/_scheduler/jobs").Jobs[1]["id"].(string)
	require.Contains(t, continuous, "+continuous")
	for _, plus := range []string{"+", "%2B", "%20"} {
		got := n.Get("/_scheduler/jobs/" + strings.Replace(continuous, "+", plus, 1))
		require.Equal(t, continuous, got.JSON(t)["id"], plus)
	}
	webtest.Refused(t, n.post(definition("")), http.StatusConflict, "conflict",
		"the replication "+want.String()+" exists already, triggered by document `"+doc+"` from db `"+database+"`")
	webtest.Refused(t, n.post(`{"cancel": true, "id": "`+want.String()+`"}`), http.StatusNotFound, "not_found", "missing")
}

func TestMissingJobs(t *testing.T) {
	t.Parallel()
	n := start(t)
	for _, name := range []string{"nope", "%2F", "%00", "%FF", "a+b", strings.Repeat("x", 2_001), strings.Repeat("%00", 4_000)} {
		webtest.Refused(t, n.Get("/_scheduler/jobs/"+name), http.StatusNotFound, "not_found", "missing")
	}
}

// Lists of jobs are restricted by state, database and user, and searched.
func TestListJobsFilters(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Do(http.MethodPut, "/a%2F_replicator", "").Is(t, http.StatusCreated)
	for _, id := range []string{"ended", "waits"} {
		n.Do(http.MethodPut, "/a%2F_replicator/"+id, definition(`"doc_ids": ["`+id+`"]`)).Is(t, http.StatusCreated)
		if id == "ended" {
			require.NoError(t, n.accept().Complete(t.Context(), nil))
		}
	}
	transient := n.post(definition(`"continuous": true`)).LocalID(t)
	n.post(definition(`"continuous": true, "create_target": true`)).Is(t, http.StatusAccepted)
	for query, want := range map[string][]string{
		"":                         {"waits", "<nil>", "<nil>"},
		"states=completed,failed":  {"ended"},
		"states=":                  nil,
		"database=a%2F_replicator": {"waits"},
		"database=a/_replicator&states=completed": {"ended"},
		"database=":                                {"<nil>", "<nil>"},
		"user=" + webtest.AdminName:                {"<nil>", "<nil>"},
		"user=" + webtest.AdminName + "&database=": {"<nil>", "<nil>"},
		"user=bob":                                 nil,
		"user=":                                    nil,
		"q=WAIT":                                   {"waits"},
		"q=WAIT&user=" + webtest.AdminName:         nil,
		"q=" + url.QueryEscape(transient):          {"<nil>"},
		"q=nowhere":                                nil,
	} {
		page := n.page("/_scheduler/jobs?" + query)
		require.Equal(t, want, page.ids(), query)
		if !strings.Contains(query, "q=") {
			require.Len(t, want, page.Total, query)
			require.Nil(t, page.Scanned)
			continue
		}
		require.NotNil(t, page.Scanned, query)
	}
	require.Equal(t, 3, *n.page("/_scheduler/jobs?q=nowhere").Scanned)
	require.Equal(t, 1, *n.page("/_scheduler/jobs?q=" + url.QueryEscape(transient)).Scanned)
	first := n.page("/_scheduler/jobs?limit=1&q=b.example")
	require.Len(t, first.ids(), 1)
	require.Len(t, n.page("/_scheduler/jobs?q=b.example&start_key="+first.Next).ids(), 2)
	require.Equal(t, []string{"ended"}, n.page("/_scheduler/docs?q=END").ids())
	for query, reason := range map[string]string{
		"states=odd":         "States must be one or more of [initializing,error,running,pending,crashing,completed,failed]",
		"q=x&skip=1":         "`skip` cannot be combined with `q`: use `start_key`",
		"database=x&user=an": "`user` is for jobs without a database, and cannot be combined with a `database`",
	} {
		webtest.Refused(t, n.Get("/_scheduler/jobs?"+query), http.StatusBadRequest, "query_parse_error", reason)
	}
	webtest.Refused(t, n.Get("/_scheduler/jobs?database=none"), http.StatusNotFound, "not_found", "Database does not exist.")
}

// Runs that were asked to park, or end, are no slots in use, whatever the node last said of their number.
func TestSlotsInUse(t *testing.T) {
	t.Parallel()
	n := start(t)
	for i := range 7 {
		n.post(definition(fmt.Sprintf(`"continuous": true, "doc_ids": ["%d"]`, i))).Is(t, http.StatusAccepted)
		n.accept()
	}
	slots := func(held, running int) map[string]any {
		n.others = []nodes.Seen{{Node: nodes.Node{Name: "node1", Roles: []string{"replication"}, Held: held, Running: running, MaxJobs: 5}, Live: true}}
		summary := n.Get("/_scheduler/summary").Is(t, http.StatusOK).JSON(t)
		require.EqualValues(t, 7, summary["jobs"].(map[string]any)["running"])
		return summary["slots"].(map[string]any)
	}
	require.Equal(t, map[string]any{"used": 5., "total": 5.}, slots(7, 5))
	require.Equal(t, map[string]any{"used": 5., "total": 5.}, slots(6, 5), "another one was asked since")
	require.Equal(t, map[string]any{"used": 3., "total": 5.}, slots(7, 3))
	require.Equal(t, map[string]any{"used": 5., "total": 5.}, slots(0, 0), "they began since")
	require.Equal(t, map[string]any{"used": 0., "total": 5.}, slots(8, 0), "one ended since")
}

// The summary counts the jobs, and problems group those that need attention by what is wrong at which end.
func TestSummary(t *testing.T) {
	t.Parallel()
	n := start(t)
	require.JSONEq(t, `{"jobs":{"pending":0,"scheduled":0,"parked":0,"paused":0,"running":0,"crashing":0,"completed":0,"failed":0},"slots":{"used":0,"total":0},"databases":0,"users":0,"mirrors":[]}`, n.Get("/_scheduler/summary").Is(t, http.StatusOK).Body)
	n.Do(http.MethodPut, "/a%2F_replicator", "").Is(t, http.StatusCreated)
	missing := replicator.FaultAt(replicator.FaultDatabaseMissing, replicator.SideTarget, replicator.Endpoint{URL: "http://b.example/db/"}, replicator.RequestOpen, "404")
	for i := range 25 {
		n.Do(http.MethodPut, fmt.Sprintf("/a%%2F_replicator/%02d", i), definition(fmt.Sprintf(`"doc_ids": ["%d"]`, i))).
			Is(t, http.StatusCreated)
		run := n.accept()
		require.NoError(t, run.ListRefused(t.Context(), []replicator.Failure{{ID: "x"}}, 1))
		require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) { s.Stats.DocWriteFailures = 1 }))
		require.NoError(t, run.Crash(t.Context(), time.Now().Add(time.Hour), 1, missing))
	}
	n.post(definition(`"continuous": true`)).Is(t, http.StatusAccepted)
	got := n.Get("/_scheduler/summary").Is(t, http.StatusOK).JSON(t)
	require.Equal(t, map[string]any{"pending": 1., "scheduled": 0., "parked": 0., "paused": 0., "running": 0., "crashing": 25., "completed": 0., "failed": 0.}, got["jobs"])
	require.EqualValues(t, 1, got["databases"])
	require.EqualValues(t, 1, got["users"])
	row := n.page("/_scheduler/jobs?sort=failing&limit=1").Jobs[0]
	require.Equal(t, "crashing", row["state"])
	require.Equal(t, map[string]any{"error": "db_not_found: could not open http://b.example/db/"}, row["info"])
	marks := row["condition"].(map[string]any)["marks"].([]any)
	require.EqualValues(t, 1, marks[0].(map[string]any)["count"])
	require.NotEmpty(t, marks[0].(map[string]any)["since"])

	problems := n.Get("/_scheduler/problems").Is(t, http.StatusOK).JSON(t)
	require.EqualValues(t, 25, problems["attention"])
	problem := problems["problems"].([]any)[0].(map[string]any)
	first := problem["first"].([]any)
	require.Len(t, first, 25)
	require.Equal(t, n.page("/_scheduler/jobs?states=crashing&limit=1").Jobs[0]["condition"], first[0].(map[string]any)["condition"])
	delete(problem, "first")
	require.NotEmpty(t, problem["since"])
	delete(problem, "since")
	require.Equal(t, map[string]any{
		"kind": "failing", "code": "database_missing", "side": "target", "host": "b.example", "jobs": 25.,
		"message": "target b.example: the database does not exist",
		"advice":  map[string]any{"code": "create_target", "text": "Set create_target, or create the database, or correct its name."},
	}, problem)

	// Nobody is needed for jobs of a paused database.
	n.weigh("a/_replicator", 0)
	require.JSONEq(t, `{"attention": 0, "total_rows": 0, "problems": []}`, n.Get("/_scheduler/problems").Is(t, http.StatusOK).Body)
	require.EqualValues(t, 25, n.Get("/_scheduler/summary").JSON(t)["jobs"].(map[string]any)["paused"])
	n.weigh("a/_replicator", 1)

	var found []string
	for _, sort := range []string{"failing", "documents_refused"} {
		for key := ""; ; {
			query := "/_scheduler/jobs?states=crashing&limit=10&sort=" + sort
			if key != "" {
				query += "&start_key=" + key
			}
			page := n.page(query)
			found = append(found, page.ids()...)
			require.NotNil(t, page.Scanned)
			if key = page.Next; key == "" {
				break
			}
		}
	}
	require.Len(t, found, 50)

	run := n.accept()
	require.NoError(t, run.Start(t.Context(), "node", "pid"))
	require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) {
		s.Activity, s.NoProgressSince = &replicator.Activity{Doing: replicator.DoingReading}, time.Unix(1_790_000_000, 0)
	}))
	stuck := n.page("/_scheduler/jobs?sort=stuck")
	require.Len(t, stuck.ids(), 1)
	require.Empty(t, n.page("/_scheduler/jobs?sort=behind").ids())
	require.Equal(t, run.Job().ID, stuck.Jobs[0]["job_id"])
	require.Contains(t, stuck.Jobs[0]["condition"].(map[string]any)["marks"], map[string]any{"type": "stuck", "since": "2026-09-21T14:13:20Z"})
	require.Equal(t, map[string]any{"batches_in_flight": 0.}, stuck.Jobs[0]["activity"])
	require.Nil(t, n.Get("/_scheduler/jobs?sort=failing").JSON(t)["total_rows"], "it is not known")
	needs := n.Get("/_scheduler/problems").JSON(t)["problems"].([]any)[1].(map[string]any)
	require.Equal(t, []any{"stuck", "unknown", "no request has failed", "2026-09-21T14:13:20Z", 1.},
		[]any{needs["kind"], needs["code"], needs["message"], needs["since"], needs["jobs"]})
	require.Equal(t, run.Job().ID, needs["first"].([]any)[0].(map[string]any)["job_id"])
	byOwner := n.page("/_scheduler/jobs?limit=1").Next
	for query, reason := range map[string]string{
		"sort=x":              "`sort` must be one of [state,failing,stuck,behind,documents_refused]",
		"sort=failing&skip=1": "`skip` cannot be combined with `sort`: use `start_key`",
		"sort=documents_refused&start_key=" + byOwner: "`start_key` must be the next_start_key of an earlier page",
	} {
		webtest.Refused(t, n.Get("/_scheduler/jobs?"+query), http.StatusBadRequest, "query_parse_error", reason)
	}
}

// A parked job is pending, as CouchDB's clients know it, and says since when it is parked. Counts have it apart.
func TestParkedJobs(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Do(http.MethodPut, "/_replicator", "").Is(t, http.StatusCreated)
	n.Do(http.MethodPut, "/_replicator/idle", definition(`"continuous": true`)).Is(t, http.StatusCreated)
	run := n.accept()
	require.NoError(t, run.Parking(t.Context(), replicator.Parked{Server: "http://a.example/", Database: "db", UpdateSeq: `"7-x"`}))
	row := n.page("/_scheduler/jobs").Jobs[0]
	require.Equal(t, "running", row["state"])
	require.Equal(t, "running", conditionOf(row)["state"], "its run has not ended")
	_, err := run.Park(t.Context(), nil)
	require.NoError(t, err)
	n.Do(http.MethodPut, "/_replicator/waits", definition(`"continuous": true, "doc_ids": ["x"]`)).Is(t, http.StatusCreated)

	for _, path := range []string{"/_scheduler/jobs", "/_scheduler/docs"} {
		for query, want := range map[string][]string{
			"?states=pending": {"idle", "waits"}, "?condition=pending": {"waits"}, "?condition=parked": {"idle"},
			"?condition=parked&q=IDLE": {"idle"}, "?condition=pending&q=IDLE": nil, "?states=running&condition=parked": nil,
		} {
			require.Equal(t, want, n.page(path+query).ids(), "%s%s", path, query)
		}
		webtest.Refused(t, n.Get(path+"?condition=idle"), http.StatusBadRequest, "query_parse_error",
			"`condition` must be one or more of [running,pending,scheduled,parked,paused,crashing,completed,failed]")
		// A request that waits sees the same parameters.
		waiting := n.Do(http.MethodGet, path+"?condition=parked", "", "Prefer", "wait=0").Is(t, http.StatusOK)
		require.NotEmpty(t, waiting.Header.Get("Preference-Applied"))
		require.JSONEq(t, n.Get(path+"?condition=parked").Body, waiting.Body)
		page := n.page(path)
		rows := slices.Concat(page.Jobs, page.Docs)
		require.Len(t, rows, 2)
		require.Equal(t, "pending", rows[0]["state"])
		told := conditionOf(rows[0])
		require.Equal(t, "parked", told["state"])
		require.WithinDuration(t, time.Now(), at(told["since"].(string)), time.Minute)
		require.NotContains(t, told, "until", "a day later, which is no plan")
		require.Equal(t, "pending", conditionOf(rows[1])["state"])
	}
	got := n.Get("/_scheduler/docs/_replicator/idle").Is(t, http.StatusOK).JSON(t)
	require.Equal(t, "pending", got["state"])
	require.Equal(t, "parked", conditionOf(got)["state"])

	id := url.QueryEscape(row["job_id"].(string))
	watch := map[string]any{"server": "http://a.example/", "database": "db"}
	got = n.Get("/_scheduler/jobs/"+id).Is(t, http.StatusOK).JSON(t)
	require.Equal(t, watch, conditionOf(got)["watch"], "its watch has not begun")
	held, err := n.jobs.Watches.Queue.Accept(t.Context(), fdbjobs.AcceptOptions{Count: 1})
	require.NoError(t, err)
	watch["by"] = "feed"
	require.NoError(t, held[0].Update(t.Context(), []byte(`{"by":"feed","seq":"9"}`), nil))
	require.JSONEq(t, `{"attention": 0, "total_rows": 0, "problems": []}`, n.Get("/_scheduler/problems").Is(t, http.StatusOK).Body)
	require.NoError(t, held[0].Update(t.Context(),
		[]byte(`{"by":"questions","late":{"since":"2026-01-02T12:00:00Z","jobs":4000,"code":"feed_refused"}}`), nil))
	require.JSONEq(t, `{"attention": 4000, "total_rows": 1, "problems": [{"kind": "late", "code": "feed_refused", "side": "source", "host": "a.example", "jobs": 4000,
		"since": "2026-01-02T12:00:00Z", "first": [], "message": "source a.example: changes are found late: no login of its jobs may read its feed of updates",
		"advice": {"code": "watch_login", "text": "Give its watch the login of a server administrator: in [replicator.watches], or in the source of a job."}}]}`,
		n.Get("/_scheduler/problems").Is(t, http.StatusOK).Body)
	require.NoError(t, held[0].Update(t.Context(), []byte(`{"by":"feed","seq":"9"}`), nil))
	require.Equal(t, watch, conditionOf(n.Get("/_scheduler/jobs/" + id).JSON(t))["watch"])
	require.NoError(t, held[0].Update(t.Context(), []byte(`{"by":"questions","why":"no"}`), nil))
	asking := conditionOf(n.Get("/_scheduler/jobs/" + id).JSON(t))["watch"].(map[string]any)
	require.WithinDuration(t, time.Now(), at(asking["next_question"].(string)), time.Minute)
	delete(asking, "next_question")
	watch["by"], watch["reason"] = "questions", "no"
	require.Equal(t, watch, asking)

	counts := map[string]any{"pending": 1., "scheduled": 0., "parked": 1., "paused": 0., "running": 0., "crashing": 0., "completed": 0., "failed": 0.}
	require.Equal(t, counts, n.Get("/_scheduler/summary").Is(t, http.StatusOK).JSON(t)["jobs"])
	shares := n.Get("/_scheduler/shares").Is(t, http.StatusOK).JSON(t)["shares"].([]any)
	require.Len(t, shares, 1)
	require.EqualValues(t, 1, shares[0].(map[string]any)["pending"])
	require.EqualValues(t, 1, shares[0].(map[string]any)["parked"])

	ran := n.Do(http.MethodPost, "/_scheduler/jobs/"+id+"/_run", "").Is(t, http.StatusAccepted)
	require.Equal(t, "pending", ran.JSON(t)["state"])
	require.Empty(t, n.page("/_scheduler/jobs?condition=parked").ids())
	got = n.Get("/_scheduler/jobs/" + id).JSON(t)
	require.Equal(t, "pending", conditionOf(got)["state"])
	require.NotContains(t, conditionOf(got), "watch")
}

// conditionOf returns what people are told about a job.
func conditionOf(job map[string]any) map[string]any { return job["condition"].(map[string]any) }

// A job that waits for its time runs at once, if one of those who may cancel it says so.
func TestRunNow(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	n.With("x/_replicator", webtest.Security)
	runNow := func(who, id string) webtest.Answer {
		return n.As(who, http.MethodPost, "/_scheduler/jobs/"+url.QueryEscape(id)+"/_run", "")
	}
	crash := func(errors int) {
		t.Helper()
		require.NoError(t, n.accept().Crash(t.Context(), time.Now().Add(time.Hour), errors, replicator.TextFault("db_not_found", "no")))
	}
	id := n.As(p.Member, http.MethodPost, "/_replicate", definition(`"continuous": true`)).Is(t, http.StatusAccepted).LocalID(t)
	crash(3)
	webtest.Refused(t, runNow(p.User, id), http.StatusUnauthorized, "unauthorized", "You are not a server admin.")
	for _, who := range []string{p.Member, p.Root} {
		got := runNow(who, id).Is(t, http.StatusAccepted).JSON(t)
		require.Equal(t, "backoff", got["condition"].(map[string]any)["reason"], "until now")
		delete(got, "condition")
		require.Equal(t, map[string]any{"ok": true, "id": id, "state": "crashing"}, got)
		run := n.accept()
		require.Equal(t, 3, run.Job().State.ErrorCount, "the count stays")
		got = runNow(who, id).Is(t, http.StatusOK).JSON(t)
		require.Equal(t, "starting", got["condition"].(map[string]any)["reason"])
		delete(got, "condition")
		require.Equal(t, map[string]any{"ok": true, "id": id, "state": "running"}, got)
		require.NoError(t, run.Crash(t.Context(), time.Now().Add(time.Hour), 3, replicator.TextFault("db_not_found", "no")))
	}
	runNow(p.Root, id).Is(t, http.StatusAccepted)
	require.NoError(t, n.accept().Fail(t.Context(), replicator.TextFault("", "no")))
	webtest.Refused(t, runNow(p.Root, id), http.StatusConflict, "conflict", "the replication has ended")

	// A document is run by its owner and by administrators of the database.
	n.As(p.Member, http.MethodPut, "/x%2F_replicator/d", definition(`"schedule": "0 0 1 1 *", "doc_ids": ["x"]`)).Is(t, http.StatusCreated)
	jobID := n.page("/_scheduler/jobs?database=x%2F_replicator").Jobs[0]["id"].(string)
	require.Equal(t, http.StatusUnauthorized, runNow(p.User, jobID).Status)
	for _, who := range []string{p.Member, p.Admin, p.Root} {
		got := runNow(who, jobID).Is(t, http.StatusAccepted).JSON(t)
		require.Equal(t, "pending", got["state"])
		require.NoError(t, n.accept().Complete(t.Context(), nil))
		require.NotNil(t, conditionOf(n.Get("/_scheduler/docs/x%2F_replicator/d").JSON(t))["until"])
	}
}

// A list with a mirror that is behind has no time that passes: a request that waits for news ends without any.
func TestAListOfAMirrorThatIsBehindWaits(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Do(http.MethodPut, "/_replicator", "").Is(t, http.StatusCreated)
	n.Do(http.MethodPut, "/_replicator/m", `{"source": "http://a.example/", "target": "http://b.example/", "continuous": true, "mirror": {}}`).
		Is(t, http.StatusCreated)
	run := n.accept()
	require.NoError(t, run.Start(t.Context(), "node", "pid"))
	require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) {
		s.Mirror = &replicator.MirrorProgress{LastLook: time.Now(), Target: replicator.MirrorTargetLook{
			Error: "down", ErrorSince: time.Now(), Last: time.Now().Add(-time.Hour),
		}}
	}))
	for _, path := range []string{"/_scheduler/jobs", "/_scheduler/docs", "/_scheduler/summary"} {
		first := n.Do(http.MethodGet, path, "", "Prefer", "wait=0").Is(t, http.StatusOK)
		require.Contains(t, first.Body, `"behind_since"`)
		n.Do(http.MethodGet, path, "", "Prefer", "wait=2", "If-None-Match", first.Header.Get("ETag")).Is(t, http.StatusNotModified)
	}
}
