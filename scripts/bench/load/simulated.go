package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"settee/scripts/bench/lab"
)

// simulated are databases that speak as much of CouchDB's protocol as a node needs, at little cost: they do not keep
// the bodies of documents. Each job has a target, and reads the source with its number modulo the number of sources.
type simulated struct {
	*lab.Databases
	text               string // from which documents are made
	sources            []simulatedSource
	checkpoints, again atomic.Int64
	fail               context.CancelCauseFunc // ends the run with an unknown request

	mu      sync.Mutex
	targets []big.Int                  // a bit for each document that has arrived
	locals  map[string]json.RawMessage // by path
}

// simulatedSource is the changes of a source.
type simulatedSource struct {
	mu      sync.Mutex
	rows    []int         // documents, in the order of their writes
	changed chan struct{} // closed at the next write
}

// startSimulated serves simulated endpoints until the run ends.
func startSimulated(r *lab.Run, d *lab.Databases) *simulated {
	s := &simulated{
		Databases: d, text: lab.Text(docSize + textOffsets), sources: make([]simulatedSource, d.Sources), targets: make([]big.Int, d.Targets),
		locals: map[string]json.RawMessage{}, fail: r.Fail,
	}
	for n := range s.sources {
		s.sources[n].changed = make(chan struct{})
	}
	server := httptest.NewServer(s)
	r.AtEnd(server.Close)
	d.Put = s.write
	d.URL = func(name string) string { return server.URL + "/" + name }
	return s
}

// textOffsets is the number of places where the text of a document may begin.
const textOffsets = 4096

// seqRest is the end of all sequences. Those of a cluster are as long.
var seqRest = "-g1" + strings.Repeat("A", 110)

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
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Server", "CouchDB/3.5.0 (Erlang OTP/25)")
	number, err := strconv.Atoi(strings.TrimLeft(name, "st"))
	source := strings.HasPrefix(name, "s")
	if err != nil || source && number >= len(s.sources) || !source && number >= len(s.targets) {
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
		s.fail(fmt.Errorf("the simulated endpoints do not know %s: %w", request, err))
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
		docID(doc), rev, rev[2:], s.text[doc%textOffsets:][:docSize])
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
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, doc := range docs {
		if s.targets[target].Bit(doc) == 1 {
			continue
		}
		if len(text) > 1 {
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
	s.mu.Lock()
	has := &s.targets[target]
	for _, doc := range docs {
		if has.Bit(doc) == 1 {
			s.again.Add(1)
			continue
		}
		has.SetBit(has, doc, 1)
		s.Arrive(lab.ID(target%len(s.sources), doc))
	}
	s.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, "[]")
	return nil
}
