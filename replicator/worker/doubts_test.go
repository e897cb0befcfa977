package worker_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/worker"
)

func TestWhatRepliesToAWriteMean(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status              int
		code                string
		first, again, other string // as the first reply, as the same one again, and after another one
	}{
		{401, "unauthorized", "refusal", "refusal", "refusal"},
		{403, "forbidden", "refusal", "refusal", "refusal"},
		{403, "partition_overflow", "refusal", "refusal", "refusal"},
		{413, "", "refusal", "refusal", "refusal"},
		{415, "bad_content_type", "refusal", "refusal", "refusal"},
		{400, "bad_request", "doubt", "refusal", "doubt"},
		{400, "compilation_error", "doubt", "refusal", "doubt"},
		{400, "invalid_design_doc", "doubt", "refusal", "doubt"},
		{406, "not_acceptable", "doubt", "refusal", "doubt"},
		{409, "conflict", "doubt", "refusal", "doubt"},
		{412, "missing_stub", "doubt", "refusal", "doubt"},
		{414, "", "doubt", "refusal", "doubt"},
		{400, "", "doubt", "failure", "doubt"}, // a proxy's
		{401, "", "doubt", "failure", "doubt"},
		{402, "over_quota", "doubt", "failure", "doubt"}, // about the account
		{403, "", "doubt", "failure", "doubt"},
		{404, "not_found", "doubt", "failure", "doubt"},
		{412, "nodedown", "doubt", "failure", "doubt"}, // about the server
		{415, "", "doubt", "failure", "doubt"},
		{0, "internal_server_error", "doubt", "failure", "doubt"}, // in an answer about several documents
		{408, "", "failure", "failure", "failure"},
		{429, "", "failure", "failure", "failure"},
		{500, "unknown_error", "failure", "failure", "failure"},
		{301, "", "failure", "failure", "failure"},
	} {
		name := fmt.Sprint(test.status, " ", test.code)
		require.Equal(t, test.first, worker.JudgeReply(test.status, test.code), name)
		require.Equal(t, test.again, worker.JudgeReply(test.status, test.code, test.status, test.code), name)
		require.Equal(t, test.other, worker.JudgeReply(test.status, test.code, 418, "other"), name)
	}
}

// replies makes the target answer writes of d1 as listed, each "400 body", and all further ones with success.
func (s *stub) replies(to string, list ...string) {
	s.on(to, func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(list) == 0 || !strings.Contains(string(body), `"d1"`) {
			return false
		}
		status, answer, _ := strings.Cut(list[0], " ")
		list = list[1:]
		return refuse(w, number(status), answer)
	})
}

const (
	longer     = `400 {"error":"bad_request","reason":"attachment longer than expected"}`
	conflict   = `409 {"error":"conflict","reason":"Document update conflict."}`
	noStub     = `412 {"error":"missing_stub","reason":"Invalid attachment stub in d1 for f"}`
	unknown    = `500 {"error":"unknown_error","reason":"no"}`
	unaccepted = `406 {"error":"not_acceptable","reason":"no"}`
)

// One refusal that passes at the second try loses no document.
func TestARefusalThatPassesRefusesNoDocument(t *testing.T) {
	t.Parallel()
	inBulk := func(code string) string { return `201 [{"id":"d1","rev":"1-a","error":"` + code + `","reason":"no"}]` }
	for to, list := range map[string][]string{
		"PUT /d1": {longer, conflict, noStub, unaccepted, `400 <html>`, `403 <html>blocked`, `404 <html>`, `415 <html>`, `417 `, `422 {}`},
		"POST /_bulk_docs": {
			inBulk("bad_request"), inBulk("conflict"), inBulk("missing_stub"), inBulk("not_acceptable"), inBulk("internal_server_error"),
		},
	} {
		for _, reply := range list {
			source, target := stubs(t, 3)
			written := `{"_id":"d1","_rev":"1-a"}`
			if to == "PUT /d1" {
				source.attach("d1", "123")
				written = `{"_id":"d1","_rev":"1-a","_attachments":{"f":{"content_type":"a/b","revpos":1,"data":"MTIz"}}}`
			}
			target.replies(to, reply)
			var r refusals
			result := run(t, replication(t, source.URL, target.URL), r.collect)
			require.Empty(t, r.all, reply)
			require.Contains(t, target.bodies(), written, "the second write is alone and without multipart")
			require.Equal(t, replicator.DocCounts{DocsRead: 3, DocsWritten: 3}, result.Stats.DocCounts, reply)
		}
	}
}

func TestTheSameRefusalTwiceIsOne(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		replies []string
		code    string // of the refusal
		fails   string // the reason of the run's failure instead
	}{
		"the same":              {[]string{longer, longer}, "bad_request", ""},
		"another, then again":   {[]string{noStub, longer, longer}, "bad_request", ""},
		"a sure one":            {[]string{noStub, `403 {"error":"forbidden","reason":"no"}`}, "forbidden", ""},
		"each time another":     {[]string{noStub, longer, unaccepted}, "", "not_acceptable"},
		"a failure":             {[]string{noStub, unknown, unknown, unknown}, "", "unknown_error"},
		"a proxy's":             {[]string{`400 <html>`, `400 <html>`}, "", "400 Bad Request"},
		"a proxy's, then again": {[]string{`400 <html>`, longer, longer}, "bad_request", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, target := stubs(t, 4)
			source.attach("d1", "123")
			target.replies("PUT /d1", test.replies...)
			if test.fails != "" {
				require.Contains(t, fails(t, replication(t, source.URL, target.URL)).Error(), test.fails)
				require.Empty(t, target.locals)
				return
			}
			var r refusals
			result := run(t, replication(t, source.URL, target.URL), r.collect)
			require.Len(t, r.all, 1)
			require.Equal(t, "d1 1-a "+test.code, fmt.Sprint(r.all[0].ID, " ", r.all[0].Rev, " ", r.all[0].Code))
			require.NotZero(t, r.all[0].Status)
			require.NotEmpty(t, r.all[0].Reason)
			require.Equal(t, replicator.DocCounts{DocsRead: 4, DocsWritten: 3, DocWriteFailures: 1}, result.Stats.DocCounts)
			require.Equal(t, `"4-x"`, string(result.CheckpointedSourceSeq))
		})
	}
}

// What is written in a second way is the same: nothing gets through in multipart here.
func TestTheSecondWayWritesTheSame(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := pair(t, peer, mixed(7))
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("servers compress this\n", 5000)))
		post(t, source+"/_bulk_docs", `{"docs":[{"_id":"text","_attachments":{
			"a":{"content_type":"text/plain","data":"`+text+`"},"b":{"content_type":"text/plain","data":""}}}]}`)
		var refused atomic.Int32
		proxy := newProxy(t, target, func(w http.ResponseWriter, r *http.Request, _ string) bool {
			if r.Method != http.MethodPut || !strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
				return false
			}
			refused.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			return refuse(w, 400, `{"error":"bad_request","reason":"attachment longer than expected"}`)
		})
		var r refusals
		run(t, replication(t, source, proxy.URL), r.collect)
		require.Empty(t, r.all)
		require.Positive(t, refused.Load())
		_, differences := verify(t, replication(t, source, target), both, attachments)
		require.Empty(t, differences)
	})
}

// A design document whose functions the target cannot compile does not stop the job.
func TestDesignDocumentsThatATargetCannotUse(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"compilation_error", "invalid_design_doc"} {
		source, target := stubs(t, 2)
		source.add("_design/d", "1-a", `{"_id":"_design/d","_rev":"1-a"}`)
		target.fail("PUT /_design/d", 400, `{"error":"`+code+`","reason":"Compilation of the map function failed"}`)
		var r refusals
		result := run(t, replication(t, source.URL, target.URL), r.collect)
		require.Equal(t, []replicator.Failure{
			{ID: "_design/d", Rev: "1-a", Status: 400, Code: code, Reason: "Compilation of the map function failed"},
		}, r.without(t))
		require.EqualValues(t, 2, result.Stats.DocsWritten)
	}
}

// A document whose write is in doubt waits until the rest of its batch is written. What a proxy answers to one document of many
// is a failure of this document.
func TestTheRestOfABatchComesBeforeASecondTry(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 30)
	for i := range 30 {
		source.attach(fmt.Sprint("d", i), "123")
	}
	target.on("PUT /d1", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		if r.URL.Path == "/db/d1" {
			return refuse(w, 400, `<html>`)
		}
		return false
	})
	var r refusals
	run(t, replication(t, source.URL, target.URL), r.collect)
	require.Len(t, target.bodies(), 29)
	require.Len(t, r.all, 1)
	require.Equal(t, "d1", r.all[0].ID)
	require.Equal(t, 400, r.all[0].Status)
	require.Contains(t, r.all[0].Reason, "400 Bad Request")
}

// lapse is a target whose cookies have no Max-Age and lapse without a word: it carries out what a lapsed one asks without a user.
// Its validation function lets only users write.
type lapse struct {
	*stub
	mu     sync.Mutex
	logins int
	lapsed int // cookies up to this one have lapsed
	asked  int // GET /_session
}

func (l *lapse) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	n := 0
	if cookie, err := r.Cookie("AuthSession"); err == nil {
		_, _ = fmt.Sscanf(cookie.Value, "c%d", &n)
	}
	path, user := strings.TrimPrefix(r.URL.Path, "/db"), n > l.lapsed
	switch {
	case path == "/_session" && r.Method == http.MethodPost:
		l.logins++
		w.Header().Set("Set-Cookie", fmt.Sprintf("AuthSession=c%d; Path=/", l.logins))
		fmt.Fprint(w, `{"ok":true}`)
	case path == "/_session":
		l.asked++
		name := "null"
		if user {
			name = `"me"`
		}
		fmt.Fprintf(w, `{"ok":true,"userCtx":{"name":%s,"roles":[]}}`, name)
	case !user && path == "/_bulk_docs":
		refuse(w, 201, `[{"id":"d0","rev":"1-a","error":"forbidden","reason":"users only"},{"id":"d2","rev":"1-a","error":"unauthorized","reason":"users only"}]`)
	case !user && r.Method == http.MethodPut && !strings.HasPrefix(path, "/_local/"):
		refuse(w, 403, `{"error":"forbidden","reason":"users only"}`)
	default:
		l.mu.Unlock()
		l.stub.ServeHTTP(w, r)
		return
	}
	l.mu.Unlock()
}

// A function refuses what comes without a user. That is no refusal if only the session has lapsed.
func TestASessionThatLapsesRefusesNoDocument(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 3)
	source.attach("d1", "123")
	l := &lapse{stub: target}
	target.Config.Handler = l
	target.URL = strings.Replace(target.URL, "://", "://me:s3cret@", 1)
	target.on("POST /_revs_diff", func(http.ResponseWriter, *http.Request, []byte) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lapsed = 1
		return false
	})
	var r refusals
	edit := func(cfg *worker.Config) { cfg.SessionMinAge = time.Hour } // so that a 403 alone does not renew the cookie
	result := run(t, replication(t, source.URL, target.URL), r.collect, edit)
	require.Empty(t, r.all)
	require.EqualValues(t, 3, result.Stats.DocsWritten)
	require.Equal(t, 2, l.logins)

	// The session holds: the function means it, and the run asks once for each answer.
	target.fail("POST /_bulk_docs", 201, `[{"id":"d0","rev":"1-a","error":"forbidden","reason":"no"},{"id":"d2","rev":"1-a","error":"forbidden","reason":"no"}]`)
	target.locals, l.lapsed, l.asked = map[string]string{}, 0, 0
	target.on("POST /_revs_diff", func(http.ResponseWriter, *http.Request, []byte) bool { return false })
	result = run(t, replication(t, source.URL, target.URL), r.collect, edit)
	require.EqualValues(t, 2, result.Stats.DocWriteFailures)
	require.Equal(t, 1, l.asked)
}
