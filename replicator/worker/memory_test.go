package worker_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"settee/pkg/couch/couchtest"
)

// memory is a database in memory that can be recreated, lose its local documents and forget history at any moment. Each
// document has one leaf. Documents whose ids begin with "att" have an attachment. As a target it refuses ids that begin
// with "bad".
type memory struct {
	*httptest.Server

	// before is called with mu held for each request. If it returns a function, that is called without mu instead of
	// answering.
	before func(r *http.Request) http.HandlerFunc
	// stored is called with mu held after a checkpoint was written.
	stored func(doc map[string]any)

	conflicts bool // writing a local document requires its revision, as on PouchDB Server
	changed   *sync.Cond

	mu       *sync.Mutex // may be shared
	docs     map[string]*version
	seq      int // of the latest change
	locals   map[string]map[string]any
	instance int    // 0 if the server has no useful instance_start_time
	hidden   string // id of a document that cannot be read now

	answering int // requests
}

// version is a document: revision n is "n-r" and n.
type version struct {
	seq    int
	leaf   int
	oldest int // oldest revision not forgotten
	known  map[string]bool
}

func newMemory(t testing.TB, mu *sync.Mutex, instance int) *memory {
	m := &memory{mu: mu, instance: instance}
	m.changed = sync.NewCond(mu)
	m.wipe()
	m.Server = couchtest.Serve(t, m)
	m.URL += "/db"
	return m
}

// wipe deletes and recreates the database.
func (m *memory) wipe() {
	m.docs, m.locals, m.seq = map[string]*version{}, map[string]map[string]any{}, 0
	if m.instance > 0 {
		m.instance++
	}
}

func revision(n int) string { return fmt.Sprintf("%d-r%d", n, n) }

// edit creates a document or a new revision. If it forgets, the new revision has no history.
func (m *memory) edit(id string, forgets bool) {
	m.seq++
	v := m.docs[id]
	if v == nil {
		v = &version{oldest: 1}
		m.docs[id] = v
	}
	v.seq = m.seq
	v.leaf++
	if forgets {
		v.oldest = v.leaf
	}
	m.changed.Broadcast()
}

func (m *memory) has(id, rev string) bool {
	v := m.docs[id]
	return v != nil && v.known[rev]
}

func (m *memory) body(id string, attachment string) string {
	v := m.docs[id]
	ids := make([]string, 0, v.leaf)
	for n := v.leaf; n >= v.oldest; n-- {
		ids = append(ids, fmt.Sprintf(`"r%d"`, n))
	}
	if attachment != "" {
		attachment = `,"_attachments":{"f":{"content_type":"a/b","revpos":1,"length":3,` + attachment + `}}`
	}
	return fmt.Sprintf(`{"_id":%q,"_rev":%q,"_revisions":{"start":%d,"ids":[%s]}%s}`,
		id, revision(v.leaf), v.leaf, strings.Join(ids, ","), attachment)
}

// finds reports whether a revision or a descendant of it can be read.
func (m *memory) finds(id, rev string) bool {
	number, _, _ := strings.Cut(rev, "-")
	n, _ := strconv.Atoi(number)
	v := m.docs[id]
	return v != nil && n >= v.oldest && n <= v.leaf && id != m.hidden
}

func (m *memory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	m.mu.Lock()
	other := m.before(r)
	m.answering++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.answering--
		m.changed.Broadcast()
	}()
	if other == nil {
		other = m.answer
	}
	other(w, r)
}

// rest waits until no request is being answered. The caller holds mu.
func (m *memory) rest() {
	for m.answering > 0 {
		m.changed.Wait()
	}
}

// answer answers as CouchDB does.
func (m *memory) answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path := strings.TrimPrefix(r.URL.Path, "/db")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Server", "CouchDB/3.5.0 (Erlang OTP/25)")
	m.mu.Lock()
	defer m.mu.Unlock()
	switch id, local := strings.CutPrefix(path, "/_local/"); {
	case path == "":
		fmt.Fprintf(w, `{"db_name":"db","update_seq":"%d-x","instance_start_time":"%d"}`, m.seq, m.instance)
	case path == "/_ensure_full_commit":
		fmt.Fprintf(w, `{"ok":true,"instance_start_time":"%d"}`, m.instance)
	case local:
		m.local(w, r, id, body)
	case path == "/_changes":
		m.changes(w, r, body)
	case path == "/_revs_diff":
		m.revsDiff(w, body)
	case path == "/_bulk_get":
		m.bulkGet(w, body)
	case path == "/_bulk_docs":
		m.bulkDocs(w, body)
	case r.Method == http.MethodPut:
		doc, _, _ := bytes.Cut(body[max(0, bytes.IndexByte(body, '{')):], []byte("\r\n"))
		if !m.store(doc) {
			refuse(w, 403, `{"error":"forbidden","reason":"bad"}`)
			return
		}
		fmt.Fprint(w, `{"ok":true}`)
	default:
		m.openRevs(w, r, strings.TrimPrefix(path, "/"))
	}
}

func (m *memory) local(w http.ResponseWriter, r *http.Request, id string, body []byte) {
	stored := m.locals[id]
	if r.Method == http.MethodGet {
		if stored == nil {
			refuse(w, 404, `{"error":"not_found","reason":"missing"}`)
			return
		}
		_ = json.NewEncoder(w).Encode(stored)
		return
	}
	var doc map[string]any
	_ = json.Unmarshal(body, &doc)
	var current any
	if stored != nil {
		current = stored["_rev"]
	}
	if m.conflicts && current != doc["_rev"] {
		refuse(w, 409, `{"error":"conflict","reason":"Document update conflict."}`)
		return
	}
	n := 0
	if rev, ok := doc["_rev"].(string); ok {
		n, _ = strconv.Atoi(strings.TrimPrefix(rev, "0-"))
	}
	doc["_rev"] = fmt.Sprintf("0-%d", n+1)
	m.locals[id] = doc
	if m.stored != nil {
		m.stored(doc)
	}
	fmt.Fprintf(w, `{"ok":true,"rev":%q}`, doc["_rev"])
}

// number returns the number in a sequence.
func number(seq string) int {
	n, _ := strconv.Atoi(strings.SplitN(strings.Trim(seq, `"`), "-", 2)[0])
	return n
}

// changes sends the present changes, or waits for more.
func (m *memory) changes(w http.ResponseWriter, r *http.Request, body []byte) {
	var only struct {
		IDs []string `json:"doc_ids"`
	}
	_ = json.Unmarshal(body, &only)
	since := number(r.URL.Query().Get("since"))
	rows := func() []string {
		ids := slices.SortedFunc(maps.Keys(m.docs), func(a, b string) int { return m.docs[a].seq - m.docs[b].seq })
		var rows []string
		for _, id := range ids {
			if v := m.docs[id]; v.seq > since && (only.IDs == nil || slices.Contains(only.IDs, id)) {
				rows = append(rows, fmt.Sprintf(`{"seq":"%d-x","id":%q,"changes":[{"rev":%q}]}`, v.seq, id, revision(v.leaf)))
			}
		}
		since = max(since, m.seq)
		return rows
	}
	if r.URL.Query().Get("feed") != "continuous" {
		fmt.Fprintf(w, `{"results":[%s],"last_seq":"%d-x","pending":0}`, strings.Join(rows(), ",\n"), m.seq)
		return
	}
	gone := make(chan struct{})
	defer close(gone)
	go func() {
		select {
		case <-r.Context().Done():
			m.mu.Lock()
			defer m.mu.Unlock()
			m.changed.Broadcast()
		case <-gone:
		}
	}()
	w.WriteHeader(http.StatusOK)
	for {
		for _, row := range rows() {
			fmt.Fprintln(w, row)
		}
		w.(http.Flusher).Flush()
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler)
		}
		m.changed.Wait()
	}
}

func (m *memory) revsDiff(w io.Writer, body []byte) {
	var asked map[string][]string
	_ = json.Unmarshal(body, &asked)
	missing := map[string]any{}
	for id, revs := range asked {
		if revs = slices.DeleteFunc(revs, func(rev string) bool { return m.has(id, rev) }); len(revs) > 0 {
			missing[id] = map[string]any{"missing": revs}
		}
	}
	_ = json.NewEncoder(w).Encode(missing)
}

func (m *memory) bulkGet(w io.Writer, body []byte) {
	var asked struct {
		Docs []struct{ ID, Rev string }
	}
	_ = json.Unmarshal(body, &asked)
	var results []string
	for _, ref := range asked.Docs {
		doc := fmt.Sprintf(`{"error":{"id":%q,"rev":%q,"error":"not_found","reason":"missing"}}`, ref.ID, ref.Rev)
		if m.finds(ref.ID, ref.Rev) {
			stub := ""
			if strings.HasPrefix(ref.ID, "att") {
				stub = `"stub":true`
			}
			doc = `{"ok":` + m.body(ref.ID, stub) + `}`
		}
		results = append(results, fmt.Sprintf(`{"id":%q,"docs":[%s]}`, ref.ID, doc))
	}
	fmt.Fprintf(w, `{"results":[%s]}`, strings.Join(results, ","))
}

func (m *memory) openRevs(w http.ResponseWriter, r *http.Request, id string) {
	var revs []string
	_ = json.Unmarshal([]byte(r.URL.Query().Get("open_revs")), &revs)
	w.Header().Set("Content-Type", `multipart/mixed; boundary="edge"`)
	for _, rev := range revs {
		switch {
		case !m.finds(id, rev):
			fmt.Fprintf(w, "--edge\r\nContent-Type: application/json; error=\"true\"\r\n\r\n{\"missing\":%q}\r\n", rev)
		case strings.HasPrefix(id, "att"):
			fmt.Fprintf(w, "--edge\r\nContent-Type: multipart/related; boundary=\"in\"\r\n\r\n"+
				"--in\r\nContent-Type: application/json\r\n\r\n%s\r\n--in\r\n\r\n123\r\n--in--\r\n", m.body(id, `"follows":true`))
		default:
			fmt.Fprintf(w, "--edge\r\nContent-Type: application/json\r\n\r\n%s\r\n", m.body(id, ""))
		}
	}
	fmt.Fprint(w, "--edge--")
}

func (m *memory) bulkDocs(w io.Writer, body []byte) {
	var docs struct{ Docs []json.RawMessage }
	_ = json.Unmarshal(body, &docs)
	refused := []map[string]string{}
	for _, doc := range docs.Docs {
		if !m.store(doc) {
			refused = append(refused, map[string]string{"id": members(doc).ID, "rev": members(doc).Rev, "error": "forbidden", "reason": "bad"})
		}
	}
	_ = json.NewEncoder(w).Encode(refused)
}

type leafMembers struct {
	ID        string `json:"_id"`
	Rev       string `json:"_rev"`
	Revisions struct {
		Start int
		IDs   []string
	} `json:"_revisions"`
}

func members(doc []byte) leafMembers {
	var m leafMembers
	if err := json.Unmarshal(doc, &m); err != nil {
		panic(fmt.Sprintf("%s: %s", err, doc))
	}
	return m
}

// store writes a revision unless it refuses it.
func (m *memory) store(doc []byte) bool {
	d := members(doc)
	if strings.HasPrefix(d.ID, "bad") {
		return false
	}
	v := m.docs[d.ID]
	if v == nil {
		v = &version{known: map[string]bool{}}
		m.docs[d.ID] = v
	}
	for i, hash := range d.Revisions.IDs {
		v.known[fmt.Sprintf("%d-%s", d.Revisions.Start-i, hash)] = true
	}
	return true
}
