package frontend_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/frontend/internal/webtest"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/pebblekv"
	"settee/replicator"
	"settee/replicator/jobs"
)

func TestReplicateOnDisk(t *testing.T) {
	t.Parallel()
	db, ok := kvtest.Cluster(t)
	if !ok {
		var err error
		db, err = pebblekv.Open(t.TempDir(), pebblekv.Options{})
		require.NoError(t, err)
	}
	testReplicate(startOn(t, db, webtest.ListenTCP(t)))
}

// The answers are the same if the results of commits are unknown.
func TestCommitsOfUnknownResult(t *testing.T) {
	t.Parallel()
	db := faultkv.Wrap(webtest.Memory(t), faultkv.Options{Script: faultkv.UnknownOnce})
	n := startOn(t, db, webtest.ListenTCP(t))
	testReplicate(n)
	testCancelByID(n)
	require.Greater(t, db.Hits(faultkv.UnknownCommitted), 10)
}

func testReplicate(n *node) {
	t := n.T
	waiting := n.posting(definition(""))
	run := n.accept()
	require.Equal(t, webtest.Secret, run.Job().Args.Replication.Source.Password)
	n.complete(run, `{"ok":true,"no_changes":true}`)
	got := <-waiting
	require.Equal(t, http.StatusOK, got.Status)
	require.Equal(t, `{"ok":true,"no_changes":true}`+"\n", got.Body)

	got = n.post(definition(`"continuous": true`)).Is(t, http.StatusAccepted)
	require.Equal(t, got.Body, n.post(definition(`"continuous": true, "cancel": true`)).Body)
}

func TestReplicateWaitsWhileTheJobIsTriedAgain(t *testing.T) {
	t.Parallel()
	n := start(t)
	waiting := n.posting(definition(""))
	joined := n.posting(definition(""))
	for range 3 {
		require.NoError(t, n.accept().Crash(t.Context(), time.Now(), 1, replicator.TextFault("", "too many requests at http://u:"+webtest.Secret+"@h/")))
	}
	require.NoError(t, n.accept().Stop(t.Context(), "", "", nil))
	require.Empty(t, waiting)
	require.Empty(t, joined)
	n.complete(n.accept(), `{"ok":true}`)
	// One of the requests may have come only after the end. It adds the job again, and
	// if it did so before the other one saw the end, both wait for that.
	again := n.accepting()
	for waiting != nil || joined != nil {
		select {
		case got := <-waiting:
			require.Equal(t, http.StatusOK, got.Status)
			waiting = nil
		case got := <-joined:
			require.Equal(t, http.StatusOK, got.Status)
			joined = nil
		case run := <-again:
			n.complete(run, `{"ok":true}`)
		}
	}
}

// If documents were refused, the answer has the id below which these are listed.
func TestReplicateWithRefusedDocuments(t *testing.T) {
	t.Parallel()
	n := start(t)
	waiting := n.posting(definition(""))
	run := n.accept()
	refused := []replicator.Failure{{ID: "doc", Rev: "1-a", Status: http.StatusForbidden, Reason: "no", Time: time.Now()}}
	require.NoError(t, run.ListRefused(t.Context(), refused, 1))
	require.NoError(t, run.Complete(t.Context(), func(s *replicator.JobState) {
		s.Result, s.Stats.DocWriteFailures = []byte(`{"ok":true,"history":[]}`), 1
	}))
	got := <-waiting
	require.Equal(t, http.StatusOK, got.Status)
	id, _ := got.JSON(t)["_local_id"].(string)
	require.Equal(t, fmt.Sprintf(`{"ok":true,"history":[],"_local_id":%q}`+"\n", id), got.Body)
	failures := n.Get("/_scheduler/jobs/"+id+"/failures").Is(t, http.StatusOK)
	require.Contains(t, failures.Body, `"id":"doc"`)
}

func TestReplicateThatFailed(t *testing.T) {
	t.Parallel()
	n := start(t)
	waiting := n.posting(definition(""))
	require.NoError(t, n.accept().Fail(t.Context(), replicator.TextFault("db_not_found", "could not open http://adm:"+webtest.Secret+"@b.example/db/")))
	webtest.Refused(t, <-waiting, http.StatusInternalServerError, "db_not_found", "could not open http://adm:*****@b.example/db/")
	waiting = n.posting(definition(""))
	require.NoError(t, n.accept().Fail(t.Context(), replicator.TextFault("", "no word for it")))
	webtest.Refused(t, <-waiting, http.StatusInternalServerError, "error", "no word for it")

	// With the statuses of CouchDB.
	for code, status := range map[string]int{
		"unauthorized": http.StatusUnauthorized, "forbidden": http.StatusForbidden,
		"replication_auth_error": http.StatusInternalServerError, "bulk_docs_failed": http.StatusInternalServerError,
	} {
		waiting = n.posting(definition(""))
		require.NoError(t, n.accept().Fail(t.Context(), replicator.TextFault(code, "no")))
		webtest.Refused(t, <-waiting, status, code, "no")
	}
	for _, code := range []string{"filter_fetch_error", "db_not_found", "unauthorized"} {
		waiting = n.posting(definition(`"filter": "d/f"`))
		require.NoError(t, n.accept().Fail(t.Context(), replicator.TextFault(code, "no")))
		webtest.Refused(t, <-waiting, http.StatusNotFound, "not_found", "no")
	}
}

func TestReplicateThatWasCancelled(t *testing.T) {
	t.Parallel()
	n := start(t)
	waiting := n.posting(definition(""))
	run := n.accept()
	got := n.post(definition(`"cancel": true`)).Is(t, http.StatusOK)
	require.Equal(t, run.Job().ReplicationID(), got.LocalID(t))
	webtest.Refused(t, <-waiting, http.StatusNotFound, "not_found", "the replication was cancelled")
	require.ErrorIs(t, run.Update(t.Context(), func(*replicator.JobState) {}), fdbjobs.ErrHalt)
}

func TestCancelByID(t *testing.T) {
	t.Parallel()
	testCancelByID(start(t))
}

func testCancelByID(n *node) {
	t := n.T
	for _, field := range []string{"id", "_local_id", "replication_id"} {
		id := n.post(definition(`"continuous": true`)).LocalID(t)
		body := fmt.Sprintf(`{"cancel": true, %q: %q}`, field, id)
		got := n.post(body).Is(t, http.StatusOK)
		require.Equal(t, id, got.LocalID(t))
		webtest.Refused(t, n.post(body), http.StatusNotFound, "not_found", "missing")
	}
	// Before the filter's text is known, the job is known by its job id.
	filtered := `"continuous": true, "filter": "f/t"`
	id := n.post(definition(filtered)).LocalID(t)
	require.NotContains(t, id, "+continuous")
	require.Equal(t, http.StatusOK, n.Get("/_scheduler/jobs/"+id).Status)
	require.Equal(t, id, n.post(`{"cancel": true, "id": "`+id+`"}`).LocalID(t))
	webtest.Refused(t, n.post(definition(filtered+`, "cancel": true`)), http.StatusNotFound, "not_found", "missing")
	webtest.Refused(t, n.post(`{"cancel": true, "id": "`+strings.Repeat("x", 5_000)+`"}`), http.StatusNotFound, "not_found", "missing")
}

// An administrator cancels the job of another user with the body that the user has posted.
func TestCancelOfAnothersReplication(t *testing.T) {
	t.Parallel()
	n := start(t)
	ann, bob := n.NewUser("ann"), n.NewUser("bob")
	for _, members := range []string{`"continuous": true`, `"continuous": true, "doc_ids": ["x"]`} {
		got := n.As(ann, http.MethodPost, "/_replicate", definition(members)).Is(t, http.StatusAccepted)
		cancel := definition(members + `, "cancel": true`)
		webtest.Refused(t, n.As(bob, http.MethodPost, "/_replicate", cancel), http.StatusUnauthorized, "unauthorized", "You are not a server admin.")
		require.Equal(t, got.LocalID(t), n.post(cancel).LocalID(t))
		webtest.Refused(t, n.post(cancel), http.StatusNotFound, "not_found", "missing")
	}
}

func TestReplicateWhoseIDAnotherJobHas(t *testing.T) {
	t.Parallel()
	n := start(t)
	request, err := replicator.ParseRequest([]byte(definition("")), replicator.ParseOptions{})
	require.NoError(t, err)
	alice := "alice"
	theirs, err := n.jobs.Requests.Replicate(t.Context(), request.Replication, &alice)
	require.NoError(t, err)
	n.opened()
	webtest.Refused(t, n.post(definition("")), http.StatusConflict, "conflict",
		"the replication "+theirs.ReplicationID()+" exists already, posted by the user `alice`")
}

// The answer names the document only to users that may read all of it.
func TestReplicateWhoseIDADocumentHas(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.With("x/_replicator", webtest.Security)
	p, member := n.NewPeople(), n.NewUser("bob", "staff")
	require.Equal(t, http.StatusCreated, n.As(p.Member, http.MethodPut, "/x%2F_replicator/rep", definition("")).Status)
	request, err := replicator.ParseRequest([]byte(definition("")), replicator.ParseOptions{})
	require.NoError(t, err)
	id, err := request.Replication.ID(n.jobs.ServerUUID, "")
	require.NoError(t, err)
	n.opened()
	plain := "the replication " + id.String() + " exists already"
	named := plain + ", triggered by document `rep` from db `x/_replicator`"
	for who, want := range map[string]string{
		p.Root: named, p.Admin: named, p.Member: named, member: plain, p.User: plain,
	} {
		webtest.Refused(t, n.As(who, http.MethodPost, "/_replicate", definition("")), http.StatusConflict, "conflict", want)
	}
	// A user that is no longer a member of the database is no longer told.
	n.With("x/_replicator", `{"admins":{"names":["boss"],"roles":[]},"members":{"names":[],"roles":["others"]}}`)
	webtest.Refused(t, n.As(p.Member, http.MethodPost, "/_replicate", definition("")), http.StatusConflict, "conflict", plain)
}

// The same holds if the collision is found only when the job runs.
func TestReplicateWhoseIDTurnsOutToBeAnothers(t *testing.T) {
	t.Parallel()
	n := start(t)
	request, err := replicator.ParseRequest([]byte(definition("")), replicator.ParseOptions{})
	require.NoError(t, err)
	theirs, err := n.jobs.Requests.Replicate(t.Context(), request.Replication, new("alice"))
	require.NoError(t, err)
	n.opened()
	waiting := n.posting(definition(`"filter": "f/t"`))
	run := n.accept()
	name := replicator.ID{Base: theirs.ReplicationID()}
	var collision *jobs.Collision
	require.ErrorAs(t, run.Identify(t.Context(), name), &collision)
	require.NoError(t, run.Fail(t.Context(), replicator.TextFault(jobs.CollisionCode, collision.Explain(run.Job()))))
	webtest.Refused(t, <-waiting, http.StatusConflict, "conflict", "the replication "+theirs.ReplicationID()+" exists already")
}

// The result of a job is answered even if the job was added again before it was read.
func TestReplicateThatBeginsAnewAtOnce(t *testing.T) {
	t.Parallel()
	n := start(t)
	waiting := n.posting(definition(""))
	run := n.accept()
	request, err := replicator.ParseRequest([]byte(definition("")), replicator.ParseOptions{})
	require.NoError(t, err)
	require.NoError(t, run.Complete(t.Context(), func(s *replicator.JobState) { s.Result = []byte(`{"ok":true,"run":1}`) }))
	_, err = n.jobs.Requests.Replicate(t.Context(), request.Replication, nil)
	require.NoError(t, err)
	got := <-waiting
	require.Equal(t, http.StatusOK, got.Status)
	require.JSONEq(t, `{"ok":true,"run":1}`, got.Body)
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	n := start(t, "settee/max_replicate_body=2000", "replicator/valid_endpoint_protocols=https", "replicator/valid_proxy_protocols=socks5")
	tlsOnly := strings.ReplaceAll(definition(""), "http://", "https://")
	endpoints := `"source": "https://a.example/db", "target": "https://b.example/db"`
	for name, test := range map[string]struct {
		body    string
		headers []string
		status  int
		code    string
		reason  string
	}{
		"another origin": {tlsOnly, []string{"Sec-Fetch-Site", "cross-site"}, 403, "forbidden", "the request comes from a page of another origin, which may not use this node"},
		"no body":        {"", nil, 400, "bad_request", "Missing request body"},
		"blank":          {" \n", nil, 400, "bad_request", "invalid UTF-8 JSON"},
		"cut off":        {`{"source":`, nil, 400, "bad_request", "invalid UTF-8 JSON"},
		"two values":     {"{" + endpoints + "} {}", nil, 400, "bad_request", "invalid UTF-8 JSON"},
		"not UTF-8":      {"{\"source\": \"\xff\"}", nil, 400, "bad_request", "invalid UTF-8 JSON"},
		"an array":       {"[]", nil, 400, "bad_request", "Request body must be a JSON object"},
		"null":           {"null", nil, 400, "bad_request", "Request body must be a JSON object"},
		"no target":      {`{"source": "https://a.example/db"}`, nil, 400, "bad_request", "parameter `target` is missing: it must be the URL of a database, or an object with its `url`"},
		"protocol":       {definition(""), nil, 400, "bad_request", "parameter `source.url` must be a URL with protocol https"},
		"proxy":          {"{" + endpoints + `, "proxy": "http://u:` + webtest.Secret + `@p:1"}`, nil, 400, "bad_request", "parameter `proxy` must be a URL with protocol socks5"},
		"cancel as text": {"{" + endpoints + `, "cancel": "yes"}`, nil, 400, "bad_request", "parameter `cancel` must be a boolean"},
		"cancel nothing": {`{"cancel": true}`, nil, 400, "bad_request", "parameter `source` is missing: it must be the URL of a database, or an object with its `url`"},
		"id as number":   {`{"cancel": true, "id": 5}`, nil, 400, "bad_request", "parameter `id` must be a replication id"},
		"text":           {tlsOnly, []string{"Content-Type", "text/plain"}, 415, "bad_content_type", "Content-Type must be application/json"},
		"form":           {tlsOnly, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "bad_content_type", "Content-Type must be application/json"},
		"json-seq":       {tlsOnly, []string{"Content-Type", "application/json-seq"}, 415, "bad_content_type", "Content-Type must be application/json"},
		"deflate":        {tlsOnly, []string{"Content-Encoding", "deflate"}, 415, "bad_content_type", "Content-Encoding must be gzip or identity"},
		"too large":      {"{" + endpoints + `, "x": "` + strings.Repeat("x", 2_000) + `"}`, nil, 413, "too_large", "the request body has more than 2000 bytes, which is the limit ([settee] max_replicate_body)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			webtest.Refused(t, n.Do(http.MethodPost, "/_replicate", test.body, test.headers...), test.status, test.code, test.reason)
		})
	}
	for _, headers := range [][]string{
		nil, {"Content-Type", "Application/JSON; charset=utf-8"}, {"Content-Type", ""}, {"Content-Encoding", "identity"},
	} {
		n.Do(http.MethodPost, "/_replicate", tlsOnly[:len(tlsOnly)-1]+`, "continuous": true}`, headers...).Is(t, http.StatusAccepted)
	}
}

func TestLargestBody(t *testing.T) {
	t.Parallel()
	body := func(size int) string {
		text := definition(`"continuous": true`)
		return text + strings.Repeat(" ", size-len(text))
	}
	for setting, n := range map[string]*node{
		"[settee] max_replicate_body":    start(t, "settee/max_replicate_body=1000"),
		"[chttpd] max_http_request_size": start(t, "chttpd/max_http_request_size=1000"),
	} {
		require.Equal(t, http.StatusAccepted, n.post(body(1_000)).Status)
		reason := "the request body has more than 1000 bytes, which is the limit (" + setting + ")"
		webtest.Refused(t, n.post(body(1_001)), http.StatusRequestEntityTooLarge, "too_large", reason)
		webtest.Refused(t, n.post(body(3_000_000)), http.StatusRequestEntityTooLarge, "too_large", reason)

		// A body without a length that never ends.
		conn := n.Connect()
		conn.Send("POST /_replicate HTTP/1.1\r\n" + webtest.RawHead + "Transfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("64\r\n"+strings.Repeat("x", 0x64)+"\r\n", 11))
		got, closes := conn.Answer()
		require.Equal(t, http.StatusRequestEntityTooLarge, got.Status)
		require.True(t, closes, "what is left of it is not read")
	}
}

func TestDefinitionThatGrowsTooLargeToBeStored(t *testing.T) {
	t.Parallel()
	n := start(t)
	got := n.post(definition(`"doc_ids": ["` + strings.Repeat("<", 700_000) + `"]`))
	webtest.Refused(t, got, http.StatusRequestEntityTooLarge, "too_large",
		"the replication is too large to be stored: it may have 4000000 bytes as JSON")
	require.EqualValues(t, 0, n.Get("/_scheduler/jobs").JSON(t)["total_rows"])
}

func TestBodyThatEndsTooEarly(t *testing.T) {
	t.Parallel()
	n := start(t)
	conn := n.Connect()
	conn.Send("POST /_replicate HTTP/1.1\r\n" + webtest.RawHead + "Transfer-Encoding: chunked\r\n\r\nnot a length\r\n")
	got, _ := conn.Answer()
	webtest.Refused(t, got, http.StatusBadRequest, "bad_request",
		"the request body ends too early or is malformed")
}

func TestClientThatHangsUpLeavesTheJob(t *testing.T) {
	t.Parallel()
	n := start(t)
	ctx, hangUp := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.Address+"/_replicate", strings.NewReader(definition("")))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		response, err := n.Client.Do(request)
		if err == nil {
			response.Body.Close()
		}
		ended <- err
	}()
	run := n.accept()
	hangUp()
	require.ErrorIs(t, <-ended, context.Canceled)
	line := n.Journal.Line(t, "hung up")
	require.Equal(t, "debug", line["level"])
	require.Equal(t, run.Job().ID, line["job"])
	require.EqualValues(t, 0, n.Journal.Line(t, `"message":"request"`)["status"])

	waiting := n.posting(definition(""))
	require.NoError(t, run.Update(t.Context(), func(*replicator.JobState) {}), "the run goes on")
	n.complete(run, `{"ok":true}`)
	select {
	case got := <-waiting:
		require.Equal(t, http.StatusOK, got.Status)
	case run := <-n.accepting(): // the second request came after the end
		n.complete(run, `{"ok":true}`)
		require.Equal(t, http.StatusOK, (<-waiting).Status)
	}
	require.Equal(t, "completed", n.Get("/_scheduler/jobs/" + run.Job().ID).JSON(t)["state"])
}

func TestShutdownEndsWaiting(t *testing.T) {
	t.Parallel()
	n := start(t)
	waiting := n.posting(definition(""))
	run := n.accept()
	require.NoError(t, n.server.Shutdown(t.Context()))
	id := run.Job().ReplicationID()
	webtest.Refused(t, <-waiting, http.StatusServiceUnavailable, "service_unavailable",
		"this node is going away; the replication "+id+" goes on: the same request, sent to another node or later, waits for it")
	require.NoError(t, run.Update(t.Context(), func(*replicator.JobState) {}))
	n.complete(run, `{"ok":true}`)
}

func TestDrain(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.handler.Drain()
	n.handler.Drain()
	got := n.post(definition("")).Is(t, http.StatusServiceUnavailable)
	require.Contains(t, got.Body, "goes on")
	require.Equal(t, http.StatusAccepted, n.post(definition(`"continuous": true`)).Status)
	require.EqualValues(t, 2, n.Get("/_scheduler/jobs").JSON(t)["total_rows"])
	got = n.Get("/_up").Is(t, http.StatusNotFound)
	require.Equal(t, `{"status":"maintenance_mode","seeds":{}}`+"\n", got.Body)
}

func TestStoreThatWasClosed(t *testing.T) {
	t.Parallel()
	n := start(t)
	waiting := n.posting(definition(""))
	run := n.accept()
	n.layer.Close()
	got := <-waiting
	require.Equal(t, http.StatusServiceUnavailable, got.Status)
	require.Contains(t, got.Body, run.Job().ReplicationID()+" goes on")
}

func TestStoreThatFails(t *testing.T) {
	t.Parallel()
	db := enginetest.Control(webtest.Memory(t))
	n := startOn(t, db, webtest.ListenTCP(t))
	db.Fail(fmt.Errorf("disk at http://u:%s@h/ is full", webtest.Secret))
	requests := map[string]func() webtest.Answer{
		"GET /_scheduler/jobs":      func() webtest.Answer { return n.Get("/_scheduler/jobs") },
		"GET /_scheduler/jobs/{id}": func() webtest.Answer { return n.Get("/_scheduler/jobs/x") },
		"POST /_replicate":          func() webtest.Answer { return n.post(definition("")) },
		"cancel":                    func() webtest.Answer { return n.post(`{"cancel": true, "id": "x"}`) },
	}
	for name, send := range requests {
		got := send()
		id := got.Header.Get("X-Couch-Request-ID")
		webtest.Refused(t, got, http.StatusInternalServerError, "internal_server_error",
			"the request failed; the log of this node says why under request_id "+id)
		line := n.Journal.Line(t, id, "request failed")
		require.Contains(t, line["reason"], "disk at http://u:*****@h/ is full", name)
	}
	got := n.Get("/_up").Is(t, http.StatusServiceUnavailable)
	require.Equal(t, `{"status":"store_unavailable","seeds":{}}`+"\n", got.Body)

	db.Fail(nil)
	require.Equal(t, http.StatusOK, n.Get("/_up").Status)
	db.Fail(kv.ErrClosed)
	webtest.Refused(t, n.Get("/_scheduler/jobs"), http.StatusServiceUnavailable, "service_unavailable", "this node is going away")
}
