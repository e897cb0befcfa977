package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// simulatedEnv is the environment variable that makes this program simulate the endpoints. Its value is a simulation as
// JSON.
const simulatedEnv = "SETTEE_LOAD_SIMULATED"

// simulation is what the process with the simulated endpoints is told.
type simulation struct {
	Plan plan
	Port int // of 127.0.0.1
}

// The paths at which that process is controlled. A node does not know them.
const (
	pathStart = "_load/start"
	pathOpen  = "_load/open"
	pathEnd   = "_load/end"
	pathAwait = "_load/await"
	pathCount = "_load/count"
)

// simulate serves simulated endpoints, if the environment says so, until it fails.
func simulate() (asked bool, err error) {
	text := os.Getenv(simulatedEnv)
	if text == "" {
		return false, nil
	}
	var told simulation
	if err := json.Unmarshal([]byte(text), &told); err != nil {
		return true, err
	}
	s, err := newSimulated(told.Plan)
	if err != nil {
		return true, err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:"+strconv.Itoa(told.Port))
	if err != nil {
		return true, err
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	return true, server.Serve(listener)
}

// simulated are databases that speak as much of CouchDB's protocol as a node needs, at little cost: they do not keep
// the bodies of documents. The sources are s0, s1 and so on, and the targets t0, t1 and so on.
type simulated struct {
	*traffic
	text        string // from which documents are made
	sources     []simulatedSource
	checkpoints atomic.Int64

	mu      sync.Mutex
	locals  map[string]json.RawMessage // by path
	unknown map[string]bool
}

// simulatedSource is the changes of a source.
type simulatedSource struct {
	mu      sync.Mutex
	rows    []int         // documents, in the order of their writes
	changed chan struct{} // closed at the next write
}

func newSimulated(p plan) (*simulated, error) {
	s := &simulated{
		text: makeText(p), sources: make([]simulatedSource, p.Sources),
		locals: map[string]json.RawMessage{}, unknown: map[string]bool{},
	}
	for n := range s.sources {
		s.sources[n].changed = make(chan struct{})
	}
	s.traffic = newTraffic(p, s.write)
	return s, s.fill(context.Background())
}

const (
	letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	// textOffsets is the number of places where the text of a document may begin.
	textOffsets = 4096
)

// seqRest is the end of all sequences. Those of a cluster are as long.
var seqRest = "-g1" + strings.Repeat("A", 110)

// makeText returns the text from which documents are made.
func makeText(p plan) string {
	random := rand.New(rand.NewPCG(p.Seed, 1))
	text := make([]byte, p.DocSize+textOffsets)
	for i := range text {
		text[i] = letters[random.IntN(len(letters))]
	}
	return string(text)
}

func docID(doc int) string { return fmt.Sprintf("d%08d", doc) }

func docRev(doc int) string { return fmt.Sprintf("1-%032x", uint64(doc+1)*0x9e3779b97f4a7c15) }

// docNumbers returns the documents whose ids follow a text.
func docNumbers(body []byte, before string) ([]int, error) {
	const digits = len("00000000")
	var all []int
	for {
		_, after, found := bytes.Cut(body, []byte(before+"d"))
		if !found {
			return all, nil
		}
		if len(after) < digits {
			return nil, errors.New("an id is too short")
		}
		doc, err := strconv.Atoi(string(after[:digits]))
		if err != nil {
			return nil, err
		}
		all = append(all, doc)
		body = after
	}
}

// write adds a document to a source.
func (s *simulated) write(_ context.Context, source, doc int) error {
	at := &s.sources[source]
	at.mu.Lock()
	defer at.mu.Unlock()
	at.rows = append(at.rows, doc)
	close(at.changed)
	at.changed = make(chan struct{})
	return nil
}

// after returns the changes after a sequence, and a channel that is closed at the next one. The slice must not be
// changed.
func (s *simulatedSource) after(seq int) ([]int, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[min(seq, len(s.rows)):], s.changed
}

func (s *simulated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if name == "_load" {
		s.control(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Server", "CouchDB/3.5.0 (Erlang OTP/25)")
	number, err := strconv.Atoi(strings.TrimLeft(name, "st"))
	source := strings.HasPrefix(name, "s")
	if err != nil || source && number >= s.Sources || !source && number >= s.Jobs {
		refuse(w, http.StatusNotFound, "Database does not exist.")
		return
	}
	request := r.Method + " " + path
	if source && request == "GET _changes" {
		s.changes(w, r, &s.sources[number])
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the connection is broken
	}
	switch {
	case request == "GET ":
		s.info(w, name, number)
	case strings.HasPrefix(request, "GET _local/"):
		s.local(w, r.URL.Path)
	case strings.HasPrefix(request, "PUT _local/"):
		err = s.putLocal(w, r.URL.Path, body)
	case request == "POST _ensure_full_commit":
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"ok":true,"instance_start_time":"1700000000"}`)
	case source && r.Method == http.MethodGet && r.URL.Query().Has("open_revs"):
		err = s.openRevs(w, path)
	case source && request == "POST _bulk_get":
		err = s.bulkGet(w, body)
	case !source && request == "POST _revs_diff":
		err = s.revsDiff(w, number, body)
	case !source && request == "POST _bulk_docs":
		err = s.bulkDocs(w, number, body)
	default:
		err = errors.ErrUnsupported
	}
	if err != nil {
		s.mu.Lock()
		s.unknown[fmt.Sprintf("%s: %v", request, err)] = true
		s.mu.Unlock()
		refuse(w, http.StatusInternalServerError, "The simulation does not know this request.")
	}
}

func refuse(w http.ResponseWriter, status int, reason string) {
	code := "internal_server_error"
	if status == http.StatusNotFound {
		code = "not_found"
	}
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"error":%q,"reason":%q}`, code, reason)
}

func (s *simulated) info(w io.Writer, name string, number int) {
	rows := 0
	if name[0] == 's' {
		all, _ := s.sources[number].after(0)
		rows = len(all)
	}
	const format = `{"db_name":%q,"update_seq":"%d%s","instance_start_time":"1700000000","doc_count":%d,"doc_del_count":0}`
	_, _ = fmt.Fprintf(w, format, name, rows, seqRest, rows)
}

func (s *simulated) local(w http.ResponseWriter, path string) {
	s.mu.Lock()
	doc := s.locals[path]
	s.mu.Unlock()
	if doc == nil {
		refuse(w, http.StatusNotFound, "missing")
		return
	}
	_, _ = w.Write(doc)
}

// putLocal writes a checkpoint.
func (s *simulated) putLocal(w http.ResponseWriter, path string, body []byte) error {
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(body, &doc); err != nil {
		return err
	}
	doc["_rev"] = json.RawMessage(`"0-1"`) // as CouchDB 3.5, it takes any
	stored, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	s.checkpoints.Add(1)
	s.mu.Lock()
	s.locals[path] = stored
	s.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"ok":true,"id":"_local/checkpoint","rev":"0-1"}`)
	return nil
}

// changes sends a changes feed, which ends or is continuous.
func (s *simulated) changes(w http.ResponseWriter, r *http.Request, source *simulatedSource) {
	query := r.URL.Query()
	digits, _, _ := strings.Cut(query.Get("since"), "-")
	since, _ := strconv.Atoi(strings.Trim(digits, `"`))
	rows, changed := source.after(since)
	if query.Get("feed") != "continuous" {
		limit, err := strconv.Atoi(query.Get("limit"))
		if err != nil {
			limit = len(rows)
		}
		some := rows[:min(limit, len(rows))]
		text := []byte(`{"results":[`)
		for i, doc := range some {
			if i > 0 {
				text = append(text, ',')
			}
			text = appendRow(text, since+i+1, doc)
		}
		_, _ = fmt.Fprintf(w, `%s],"last_seq":"%d%s","pending":%d}`, text, since+len(some), seqRest, len(rows)-len(some))
		return
	}
	beat, err := strconv.Atoi(query.Get("heartbeat"))
	if err != nil {
		beat = 60_000
	}
	flush := http.NewResponseController(w).Flush
	heart := time.NewTicker(time.Duration(max(beat, 1)) * time.Millisecond)
	defer heart.Stop()
	for {
		var text []byte
		for _, doc := range rows {
			since++
			text = append(appendRow(text, since, doc), '\n')
		}
		if _, err := w.Write(text); err != nil || flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-heart.C:
			_, _ = io.WriteString(w, "\n")
		case <-r.Context().Done():
			return
		}
		rows, changed = source.after(since)
	}
}

func appendRow(text []byte, seq, doc int) []byte {
	return fmt.Appendf(text, `{"seq":"%d%s","id":%q,"changes":[{"rev":%q}]}`, seq, seqRest, docID(doc), docRev(doc))
}

func (s *simulated) bulkGet(w io.Writer, body []byte) error {
	docs, err := docNumbers(body, `"id":"`)
	if err != nil {
		return err
	}
	text := []byte(`{"results":[`)
	for i, doc := range docs {
		if i > 0 {
			text = append(text, ',')
		}
		text = s.appendDoc(fmt.Appendf(text, `{"id":%q,"docs":[{"ok":`, docID(doc)), doc)
		text = append(text, "}]}"...)
	}
	_, _ = w.Write(append(text, "]}"...))
	return nil
}

// appendDoc appends a document.
func (s *simulated) appendDoc(text []byte, doc int) []byte {
	rev := docRev(doc)
	return fmt.Appendf(text, `{"_id":%q,"_rev":%q,"_revisions":{"start":1,"ids":[%q]},"text":"%s"}`,
		docID(doc), rev, rev[2:], s.text[doc%textOffsets:][:s.DocSize])
}

// openRevs answers for one document. A node asks so if _bulk_get has failed several times.
func (s *simulated) openRevs(w http.ResponseWriter, id string) error {
	docs, err := docNumbers([]byte(id), "")
	if err != nil || len(docs) != 1 {
		return errors.ErrUnsupported
	}
	w.Header().Set("Content-Type", `multipart/mixed; boundary="edge"`)
	text := s.appendDoc([]byte("--edge\r\nContent-Type: application/json\r\n\r\n"), docs[0])
	_, _ = w.Write(append(text, "\r\n--edge--"...))
	return nil
}

func (s *simulated) revsDiff(w io.Writer, target int, body []byte) error {
	docs, err := docNumbers(body, `"`)
	if err != nil {
		return err
	}
	text := []byte{'{'}
	for i, doc := range s.lacks(target, docs) {
		if i > 0 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, `%q:{"missing":[%q]}`, docID(doc), docRev(doc))
	}
	_, _ = w.Write(append(text, '}'))
	return nil
}

func (s *simulated) bulkDocs(w http.ResponseWriter, target int, body []byte) error {
	docs, err := docNumbers(body, `"_id":"`)
	if err != nil {
		return err
	}
	s.arrive(target, docs)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, "[]")
	return nil
}

// control answers the requests of the process that measures.
func (s *simulated) control(w http.ResponseWriter, r *http.Request) {
	var answer any
	err := errors.ErrUnsupported
	switch strings.TrimPrefix(r.URL.Path, "/") {
	case pathStart:
		err = s.start(r.Context())
	case pathOpen:
		err = s.open(r.Context())
	case pathEnd:
		err = s.end(r.Context())
	case pathAwait:
		err = s.await(r.Context())
	case pathCount:
		answer, err = s.count(r.Context())
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	_ = json.NewEncoder(w).Encode(answer) // the client has gone if it fails
}

// count returns the counts until now.
func (s *simulated) count(ctx context.Context) (counts, error) {
	c, err := s.traffic.count(ctx)
	written := s.checkpoints.Load()
	c.Checkpoints = &written
	s.mu.Lock()
	defer s.mu.Unlock()
	for request := range s.unknown {
		c.Unknown = append(c.Unknown, request)
	}
	return c, err
}
