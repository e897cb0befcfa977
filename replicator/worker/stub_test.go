package worker_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
	"settee/pkg/sockopt"
	"settee/replicator"
	"settee/replicator/worker"
)

// stub is a database that answers as CouchDB does, with bytes given by a test. As a source it has docs. As a target it
// lacks everything.
type stub struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	rows     []string          // of _changes
	docs     map[string]string // bodies by "id rev"
	locals   map[string]string // bodies by id
	instance string            // instance_start_time
	written  []string          // the bodies of _bulk_docs and of documents
	answers  map[string]func(w http.ResponseWriter, r *http.Request, body []byte) bool
}

// bareStub is a stub without a server.
func bareStub(t testing.TB) *stub {
	return &stub{
		t: t, docs: map[string]string{}, locals: map[string]string{}, instance: `"1700000000"`,
		answers: map[string]func(http.ResponseWriter, *http.Request, []byte) bool{},
	}
}

// pipedStubs returns a source and a target in memory, in a bubble with its time, and a function that makes a job and a
// configuration for a run between them.
func pipedStubs(t testing.TB) (source, target *stub, begin func(more ...string) *running) {
	source, target, cfg := piped(t)
	return source, target, func(more ...string) *running {
		rep := replication(t, "http://a.example/db", "http://b.example/db", more...)
		return start(t, worker.Job{Replication: rep}, cfg)
	}
}

// piped returns a source and a target in memory, at a.example/db and b.example/db, and a Config that reaches them.
func piped(t testing.TB) (source, target *stub, cfg worker.Config) {
	source, target = bareStub(t), bareStub(t)
	return source, target, pipedTo(t, source, target)
}

// pipedTo returns a Config that reaches a source and a target in memory, at a.example and b.example.
func pipedTo(t testing.TB, source, target http.Handler) worker.Config {
	cfg := worker.DefaultConfig()
	transport := couchtest.Pipe(t, map[string]http.Handler{"a.example": source, "b.example": target})
	cfg.ServerUUID = serverUUID
	cfg.Transport = func(replicator.Endpoint, *sockopt.Options) http.RoundTripper { return transport }
	return cfg
}

func newStub(t testing.TB) *stub {
	s := bareStub(t)
	s.Server = couchtest.Serve(t, s)
	s.URL += "/db"
	return s
}

func (s *stub) add(id, rev, body string) {
	s.rows = append(s.rows, fmt.Sprintf(`{"seq":"%d-x","id":%q,"changes":[{"rev":%q}]}`, len(s.rows)+1, id, rev))
	s.docs[id+" "+rev] = body
}

// addSmall adds n small documents, d0 to d(n-1).
func (s *stub) addSmall(n int) {
	for i := range n {
		id := fmt.Sprintf("d%d", i)
		s.add(id, "1-a", fmt.Sprintf(`{"_id":%q,"_rev":"1-a"}`, id))
	}
}

// isQuestion reports whether a request for changes asks how many are left. A run asks if it takes longer than a second, as
// it may on a busy machine.
func isQuestion(r *http.Request) bool { return r.URL.Query().Get("limit") == "1" }

// on answers a request such as "POST /_bulk_docs" with f, unless f returns false. "PUT /_local/" stands for all local
// documents.
func (s *stub) on(request string, f func(w http.ResponseWriter, r *http.Request, body []byte) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[request] = f
}

// attach adds an attachment f to a document.
func (s *stub) attach(id, content string) {
	body := fmt.Sprintf(`{"_id":%q,"_rev":"1-a","_attachments":{"f":{"content_type":"a/b","revpos":1,"length":%d,"stub":true}}}`, id, len(content))
	s.docs[id+" 1-a"] = body
	s.on("GET /"+id, func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		return sendAttached(w, strings.Replace(body, `"stub"`, `"follows"`, 1), content)
	})
}

// sendAttached answers like open_revs, with one document and its attachment.
func sendAttached(w http.ResponseWriter, doc, content string) bool {
	w.Header().Set("Content-Type", `multipart/mixed; boundary="edge"`)
	_, _ = io.WriteString(w, "--edge\r\nContent-Type: multipart/related; boundary=\"in\"\r\n\r\n--in\r\n"+
		"Content-Type: application/json\r\n\r\n"+doc+"\r\n--in\r\n\r\n"+content+"\r\n--in--\r\n--edge--")
	return true
}

// fail makes the stub refuse a request.
func (s *stub) fail(request string, status int, body string) {
	s.on(request, func(w http.ResponseWriter, _ *http.Request, _ []byte) bool { return refuse(w, status, body) })
}

// noCheckpoints makes writes of local documents fail.
func (s *stub) noCheckpoints() { s.fail("PUT /_local/", 500, `{"error":"internal","reason":"ill"}`) }

// anew makes the database look like another one.
func (s *stub) anew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instance = `"1700000001"`
}

// side returns the source or the target.
func side(name string, source, target *stub) *stub {
	return map[string]*stub{"source": source, "target": target}[name]
}

// cutOff sends the beginning of an answer and ends the connection.
func cutOff(w http.ResponseWriter, beginning string) {
	_, _ = io.WriteString(w, beginning)
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// stay sends the beginning of an answer and then nothing.
func stay(w http.ResponseWriter, r *http.Request, beginning string) bool {
	_, _ = io.WriteString(w, beginning)
	w.(http.Flusher).Flush()
	<-r.Context().Done()
	return true
}

func (s *stub) bodies() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the run has ended and abandoned the request
	}
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/db"), "/db")
	s.mu.Lock()
	answer := s.answers[r.Method+" "+path]
	if strings.HasPrefix(path, "/_local/") {
		answer = s.answers[r.Method+" /_local/"]
	}
	s.mu.Unlock()
	if answer != nil && answer(w, r, body) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Server", "CouchDB/3.5.0 (Erlang OTP/25)")
	switch id, local := strings.CutPrefix(path, "/_local/"); {
	case path == "":
		fmt.Fprintf(w, `{"db_name":"db","update_seq":"0","instance_start_time":%s}`, s.instance)
	case path == "/_ensure_full_commit":
		fmt.Fprint(w, `{"ok":true}`)
	case local && r.Method == http.MethodGet && s.locals[id] == "":
		refuse(w, 404, `{"error":"not_found","reason":"missing"}`)
	case local && r.Method == http.MethodGet:
		fmt.Fprint(w, s.locals[id])
	case local:
		s.locals[id] = strings.Replace(string(body), `{`, `{"_rev":"0-1",`, 1)
		fmt.Fprint(w, `{"ok":true,"rev":"0-1"}`)
	case path == "/_changes" && r.Method == http.MethodPost:
		s.changesOf(w, body)
	case path == "/_changes":
		fmt.Fprintf(w, `{"results":[%s],"last_seq":"%d-x","pending":0}`, strings.Join(s.rows, ","), len(s.rows))
	case path == "/_revs_diff":
		s.lackAll(w, body)
	case path == "/_bulk_get":
		s.bulkGet(w, body)
	case path == "/_bulk_docs":
		s.written = append(s.written, string(body))
		fmt.Fprint(w, `[]`)
	case r.Method == http.MethodPut:
		s.written = append(s.written, string(body))
		fmt.Fprint(w, `{"ok":true}`)
	case r.URL.Query().Get("open_revs") != "":
		s.openRevs(w, r)
	default:
		refuse(w, 404, `{"error":"not_found","reason":"missing"}`)
	}
}

// changesOf answers a feed with the filter _doc_ids.
func (s *stub) changesOf(w io.Writer, body []byte) {
	var asked struct {
		IDs []string `json:"doc_ids"`
	}
	assertNoError(s.t, json.Unmarshal(body, &asked))
	var rows []string
	for _, row := range s.rows {
		for _, id := range asked.IDs {
			if strings.Contains(row, `"id":`+quoted(id)+`,`) {
				rows = append(rows, row)
			}
		}
	}
	fmt.Fprintf(w, `{"results":[%s],"last_seq":"%d-x","pending":0}`, strings.Join(rows, ","), len(s.rows))
}

func (s *stub) lackAll(w io.Writer, body []byte) {
	var asked map[string][]string
	assertNoError(s.t, json.Unmarshal(body, &asked))
	missing := map[string]any{}
	for id, revs := range asked {
		missing[id] = map[string]any{"missing": revs}
	}
	assertNoError(s.t, json.NewEncoder(w).Encode(missing))
}

func (s *stub) bulkGet(w io.Writer, body []byte) {
	var asked struct {
		Docs []struct{ ID, Rev string }
	}
	assertNoError(s.t, json.Unmarshal(body, &asked))
	var results []string
	for _, ref := range asked.Docs {
		doc := `{"error":{"id":` + quoted(ref.ID) + `,"rev":` + quoted(ref.Rev) + `,"error":"not_found","reason":"missing"}}`
		if text := s.docs[ref.ID+" "+ref.Rev]; text != "" {
			doc = `{"ok":` + text + `}`
		}
		results = append(results, `{"id":`+quoted(ref.ID)+`,"docs":[`+doc+`]}`)
	}
	fmt.Fprintf(w, `{"results":[%s]}`, strings.Join(results, ","))
}

func (s *stub) openRevs(w http.ResponseWriter, r *http.Request) {
	var revs []string
	assertNoError(s.t, json.Unmarshal([]byte(r.URL.Query().Get("open_revs")), &revs))
	id := strings.TrimPrefix(r.URL.Path, "/db/")
	w.Header().Set("Content-Type", `multipart/mixed; boundary="edge"`)
	for _, rev := range revs {
		if text := s.docs[id+" "+rev]; text != "" {
			fmt.Fprintf(w, "--edge\r\nContent-Type: application/json\r\n\r\n%s\r\n", text)
		} else {
			fmt.Fprintf(w, "--edge\r\nContent-Type: application/json; error=\"true\"\r\n\r\n{\"missing\":%q}\r\n", rev)
		}
	}
	fmt.Fprint(w, "--edge--")
}

func assertNoError(t testing.TB, err error) {
	if err != nil {
		t.Error(err)
	}
}

// stubs returns a source with n small documents, d0 to d(n-1), and a target.
func stubs(t testing.TB, n int) (source, target *stub) {
	t.Helper()
	source, target = newStub(t), newStub(t)
	source.addSmall(n)
	return source, target
}

// idsIn returns the ids in the body of a _bulk_docs.
func idsIn(t testing.TB, body string) []string {
	t.Helper()
	var docs struct {
		Docs []struct {
			ID string `json:"_id"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &docs))
	var ids []string
	for _, doc := range docs.Docs {
		ids = append(ids, doc.ID)
	}
	return ids
}
