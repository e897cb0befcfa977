package watch_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"settee/replicator/worker"
)

// source is a server with databases, which speaks as much of CouchDB's protocol as a watch needs.
type source struct {
	t testing.TB

	mu        sync.Mutex
	admins    map[string]string // passwords by name
	readers   map[string]string // users that may read databases only
	databases map[string]int    // numbers of their last changes
	updates   []string          // the log: names of databases
	instance  string            // of the log; "" if there is none
	forgetful bool              // it does not know the sequences of other logs, and says so
	copies    bool              // each answer has another update_seq
	crowded   bool              // it fails to open databases for their descriptions
	down      bool              // it closes all connections
	left      int               // it is up again after so many more; 0: not by itself
	slow      time.Duration     // before each answer
	hides     bool              // it describes no database
	breaks    bool              // feeds are cut off when they begin
	status    map[string]int    // answers by path
	version   chan struct{}     // closed at each change
	asked     []string          // requests, with the user
	feeds     int               // open ones
	prefixes  bool              // see manyServers
	security  map[string]string // `_security` objects by database
	secured   int               // how many times one was changed
	other     bool              // it is not a CouchDB
	floods    bool              // feeds repeat one name as fast as they are read
	flooded   int               // how many times
	created   map[string]string // instance_start_time by database
	uuid      string            // what GET / says, with vendor
	vendor    string
	uuids     []string // if not empty, GET / says these in turn
	lacks     bool     // it has no _dbs_info
	digests   bool     // its _dbs_info has digests of `_security`, as settee's
}

func newSource(t testing.TB) *source {
	return &source{
		t: t, admins: map[string]string{"root": "s3cret"}, readers: map[string]string{"ann": "pw"}, databases: map[string]int{},
		instance: "1700000001", status: map[string]int{}, version: make(chan struct{}), vendor: "v",
	}
}

// set changes the server.
func (s *source) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.version)
	s.version = make(chan struct{})
}

// write changes databases.
func (s *source) write(names ...string) {
	s.set(func() {
		for _, name := range names {
			s.databases[name]++
			s.updates = append(s.updates, name)
		}
	})
}

// lose changes databases without an update in the log.
func (s *source) lose(names ...string) {
	s.set(func() {
		for _, name := range names {
			s.databases[name]++
		}
	})
}

// seq returns the update_seq of a database.
func (s *source) seq(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sequence(name)
}

func (s *source) sequence(name string) string {
	copyOf := "x"
	if s.copies {
		copyOf = strconv.Itoa(len(s.asked))
	}
	if s.secured > 0 {
		copyOf += fmt.Sprint("-secured-", s.secured)
	}
	return fmt.Sprintf("%d-%s", s.databases[name], copyOf)
}

// requests returns those since the last call that begin with a text, such as "root GET /_db_updates".
func (s *source) requests(begin string) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = slices.DeleteFunc(s.asked, func(one string) bool {
		matches := strings.HasPrefix(one, begin)
		if matches {
			found = append(found, one)
		}
		return matches
	})
	return found
}

// manyServers makes the source answer below paths of one segment, too, as other servers with the same databases.
func (s *source) manyServers() { s.set(func() { s.prefixes = true }) }

func (s *source) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feeds
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Server", "CouchDB/3.5.0 (Erlang OTP/25)")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func (s *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.other {
		w = nameless{w}
	}
	s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	name, password, _ := r.BasicAuth()
	s.mu.Lock()
	s.asked = append(s.asked, name+" "+r.Method+" "+r.URL.RequestURI())
	if rest, ok := strings.CutPrefix(r.URL.Path, "/s"); ok && s.prefixes {
		_, rest, _ = strings.Cut(rest, "/")
		r.URL.Path = "/" + rest
	}
	down, slow, status := s.down, s.slow, s.status[r.URL.Path]
	if down && s.left > 0 {
		s.left--
		s.down = s.left > 0
	}
	s.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-r.Context().Done():
		}
	}
	if down {
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	admin, reader := s.admins[name], s.readers[name]
	s.mu.Unlock()
	switch {
	case status != 0:
		answer(w, status, `{"error":"x","reason":"y"}`)
	case r.URL.Path == "/":
		s.greet(w)
	case password == "" || password != admin && password != reader:
		answer(w, 401, `{"error":"unauthorized","reason":"Name or password is incorrect."}`)
	case strings.HasPrefix(r.URL.Path, "/_") && password != admin:
		answer(w, 401, `{"error":"unauthorized","reason":"You are not a server admin."}`)
	case r.URL.Path == "/_dbs_info" && s.lacks:
		answer(w, 404, `{"error":"not_found","reason":"missing"}`)
	case r.URL.Path == "/_dbs_info":
		s.infos(w, body)
	case r.URL.Path == "/_all_dbs":
		s.list(w)
	case r.URL.Path == "/_db_updates" && r.URL.Query().Get("feed") == "continuous":
		s.follow(w, r)
	case r.URL.Path == "/_db_updates":
		s.latest(w)
	case r.URL.Path == "/_global_changes":
		s.mu.Lock()
		defer s.mu.Unlock()
		answer(w, 200, fmt.Sprintf(`{"instance_start_time":%q}`, s.instance))
	case strings.HasSuffix(r.URL.Path, "/_security"):
		s.mu.Lock()
		defer s.mu.Unlock()
		answer(w, 200, s.security[strings.Split(r.URL.Path, "/")[1]])
	default:
		s.changes(w, r)
	}
}

// secure changes the `_security` object of a database, as a CouchDB does, or as other servers do: without another update_seq.
func (s *source) secure(name, object string) {
	s.set(func() {
		if s.security == nil {
			s.security = map[string]string{}
		}
		s.security[name] = object
		if !s.other {
			s.secured++
		}
	})
}

// nameless is an answer that does not name the server.
type nameless struct{ http.ResponseWriter }

// WriteHeader sends the header.
func (w nameless) WriteHeader(status int) {
	w.Header().Del("Server")
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the answer with its other methods.
func (w nameless) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (s *source) infos(w http.ResponseWriter, body []byte) {
	var request struct{ Keys []string }
	_ = json.Unmarshal(body, &request)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hides && len(request.Keys) > 0 {
		answer(w, 403, `{"error":"forbidden","reason":"no"}`)
		return
	}
	rows := []string{}
	for _, name := range request.Keys {
		row := fmt.Sprintf(`{"key":%q,"error":"not_found"}`, name)
		if _, ok := s.databases[name]; ok && !s.crowded {
			digest := ""
			if s.digests {
				digest = fmt.Sprintf(`,"security_digest":%q`, worker.SecurityDigest(json.RawMessage(s.security[name])))
			}
			row = fmt.Sprintf(`{"key":%q,"info":{"update_seq":%q,"instance_start_time":%q%s}}`, name, s.sequence(name), s.created[name], digest)
		}
		rows = append(rows, row)
	}
	answer(w, 200, "["+strings.Join(rows, ",")+"]")
}

func (s *source) latest(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.instance == "" {
		answer(w, 404, `{"error":"not_found","reason":"Database does not exist."}`)
		return
	}
	answer(w, 200, fmt.Sprintf(`{"results":[],"last_seq":"%d-%s"}`, len(s.updates), s.instance))
}

// follow answers with a continuous feed, which begins anew if since is of another log.
func (s *source) follow(w http.ResponseWriter, r *http.Request) {
	since, instance, _ := strings.Cut(r.URL.Query().Get("since"), "-")
	at, _ := strconv.Atoi(since)
	beat, _ := strconv.Atoi(r.URL.Query().Get("heartbeat"))
	s.mu.Lock()
	of, forgetful, breaks := s.instance, s.forgetful, s.breaks
	s.feeds++
	s.mu.Unlock()
	defer s.set(func() { s.feeds-- })
	switch {
	case of == "":
		s.latest(w)
		return
	case instance != of && forgetful:
		answer(w, 400, `{"error":"bad_request","reason":"Malformed sequence supplied in 'since' parameter."}`)
		return
	case instance != of:
		at = 0
	}
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	if breaks {
		panic(http.ErrAbortHandler)
	}
	for {
		s.mu.Lock()
		version, down := s.version, s.down
		var text strings.Builder
		for ; at < len(s.updates) && s.instance == of; at++ {
			fmt.Fprintf(&text, `{"db_name":%q,"type":"updated","seq":"%d-%s"}`+"\n", s.updates[at], at+1, of)
		}
		ended := s.instance != of
		s.mu.Unlock()
		if down {
			panic(http.ErrAbortHandler)
		}
		if ended {
			fmt.Fprintf(&text, `{"last_seq":"%d-%s"}`+"\n", at, of)
		}
		_, _ = io.WriteString(w, text.String())
		_ = http.NewResponseController(w).Flush()
		if s.flood(w, of) {
			return
		}
		if ended {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-version:
		case <-time.After(time.Duration(beat) * time.Millisecond):
			_, _ = io.WriteString(w, "\n")
		}
	}
}

// flood sends updates of one database, which no job has as its source, until the client closes the connection or the test ends
// the flood. It reports whether the client closed the connection.
func (s *source) flood(w io.Writer, instance string) bool {
	s.mu.Lock()
	floods := s.floods
	s.mu.Unlock()
	for at := 1; floods; at++ {
		if _, err := fmt.Fprintf(w, `{"db_name":"junk","type":"updated","seq":"%d-%s"}`+"\n", at, instance); err != nil {
			return true
		}
		s.mu.Lock()
		s.flooded, floods = s.flooded+1, s.floods
		s.mu.Unlock()
	}
	return false
}

// greet answers GET /.
func (s *source) greet(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uuid := s.uuid
	if len(s.uuids) > 0 {
		uuid = s.uuids[0]
		s.uuids = append(s.uuids[1:], uuid)
	}
	answer(w, 200, fmt.Sprintf(`{"couchdb":"Welcome","uuid":%q,"vendor":{"name":%q}}`, uuid, s.vendor))
}

// list answers GET /_all_dbs.
func (s *source) list(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := json.Marshal(slices.Sorted(maps.Keys(s.databases)))
	if err != nil {
		s.t.Error(err)
	}
	answer(w, 200, string(text))
}

// create makes databases, which say that they were created at a time.
func (s *source) create(created string, names ...string) {
	s.set(func() {
		if s.created == nil {
			s.created = map[string]string{}
		}
		for _, name := range names {
			s.databases[name], s.created[name] = 0, created
		}
	})
}

// changes answers GET /db and GET /db/_changes?since=...&limit=1.
func (s *source) changes(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, isFeed := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/"), "/_changes")
	last, ok := s.databases[name]
	switch {
	case !ok:
		answer(w, 404, `{"error":"not_found","reason":"Database does not exist."}`)
		return
	case !isFeed:
		answer(w, 200, fmt.Sprintf(`{"db_name":%q,"update_seq":%q,"instance_start_time":%q}`, name, s.sequence(name), s.created[name]))
		return
	}
	since, _, _ := strings.Cut(r.URL.Query().Get("since"), "-")
	rows := ""
	if at, _ := strconv.Atoi(since); at < last {
		rows = fmt.Sprintf(`{"seq":"%d-x","id":"d","changes":[{"rev":"1-a"}]}`, last)
	}
	answer(w, 200, fmt.Sprintf(`{"results":[%s],"last_seq":"%d-x","pending":0}`, rows, last))
}
