package couchtest

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Hostile is a database in memory that answers as CouchDB does, under any name, with prepared documents. It can be a
// source or a target. [Hostile.Switch] makes its answers wrong, and right again, while it runs. It is an http.Handler
// for real sockets or for [Pipe], with a bubble's time.
type Hostile struct {
	// Numbers makes its sequences numbers, as CouchDB 1 and PouchDB have them. Set it before use.
	Numbers bool
	// Username and Password, if not empty, are required in every request, or else a cookie of _session. Set them before
	// use.
	Username, Password string
	// Unnamed makes it not say that it is CouchDB, and store attachments that do not match their digests, so that a test
	// sees what a client accepts. Otherwise it refuses them, as CouchDB does. Set it before use.
	Unnamed bool

	seed uint64

	mu      sync.Mutex
	changed chan struct{} // closed when there is a new row
	docs    map[string]*prepared
	rows    []string // ids in the order of their sequences, which begin with 1
	locals  map[string]json.RawMessage
	faults  map[Endpoint]Fault
	bad     map[Endpoint]map[string]Fault // of single documents
	seen    map[Endpoint]int
	limit   int64
	resets  bool
	pause   func(id string, sent int64)
	cookies int
	damaged int // documents refused for their digests
}

// prepared is a document with one leaf.
type prepared struct {
	rev   string
	seq   int
	size  int // of its filler, which is not held in memory
	files []file
}

// file is an attachment.
type file struct {
	name   string
	size   int64
	digest string
	seed   [32]byte
}

func (f file) open() io.Reader { return io.LimitReader(rand.NewChaCha8(f.seed), f.size) }

// NewHostile returns an empty database without faults. The seed determines the contents of its documents.
func NewHostile(seed uint64) *Hostile {
	return &Hostile{
		seed: seed, changed: make(chan struct{}), docs: map[string]*prepared{}, locals: map[string]json.RawMessage{},
		faults: map[Endpoint]Fault{}, bad: map[Endpoint]map[string]Fault{}, seen: map[Endpoint]int{},
	}
}

// Add prepares a document of about size bytes, with attachments of these sizes, named a0, a1 ...
func (h *Hostile) Add(id string, size int, attachments ...int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seed++
	doc := &prepared{rev: fmt.Sprintf("1-%032x", h.seed), size: size}
	for i, length := range attachments {
		f := file{name: fmt.Sprintf("a%d", i), size: length}
		binary.LittleEndian.PutUint64(f.seed[:], h.seed)
		f.seed[8] = byte(i)
		hash := md5.New()
		_, _ = io.Copy(hash, f.open())
		f.digest = digestText(hash.Sum(nil))
		doc.files = append(doc.files, f)
	}
	h.keep(id, doc)
}

func digestText(sum []byte) string { return "md5-" + base64.StdEncoding.EncodeToString(sum) }

// keep stores a document as the latest change. The caller holds h.mu.
func (h *Hostile) keep(id string, doc *prepared) {
	if known := h.docs[id]; known != nil {
		h.rows[known.seq-1] = ""
	}
	h.docs[id] = doc
	h.rows = append(h.rows, id)
	doc.seq = len(h.rows)
	close(h.changed)
	h.changed = make(chan struct{})
}

// Limit makes it refuse requests with bodies of more than size bytes (0: none): with 413, or by closing the connection
// before it has read them.
func (h *Hostile) Limit(size int64, hangUp bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limit, h.resets = size, hangUp
}

// Stream sets a function that is called between the pieces of the attachments of a document being sent, with the number
// of bytes sent of the current one.
func (h *Hostile) Stream(pause func(id string, sent int64)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pause = pause
}

// Requests returns the number of requests to an endpoint.
func (h *Hostile) Requests(e Endpoint) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen[e]
}

// Damaged returns the number of writes that it refused because an attachment did not match its digest.
func (h *Hostile) Damaged() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.damaged
}

// Has reports whether it has a document. It returns an error if the contents differ from the source's by their digests.
func (h *Hostile) Has(id string, source *Hostile) (bool, error) {
	h.mu.Lock()
	doc := h.docs[id]
	h.mu.Unlock()
	source.mu.Lock()
	defer source.mu.Unlock()
	want := source.docs[id]
	if doc == nil || want == nil {
		return false, nil
	}
	if doc.rev != want.rev || doc.size != want.size || len(doc.files) != len(want.files) {
		return true, fmt.Errorf("document %q is not the source's", id)
	}
	for i, f := range doc.files {
		if f.digest != want.files[i].digest || f.size != want.files[i].size {
			return true, fmt.Errorf("attachment %q of document %q: %d bytes, %s; the source's: %d bytes, %s",
				f.name, id, f.size, f.digest, want.files[i].size, want.files[i].digest)
		}
	}
	return true, nil
}

// Lacks returns the ids of the source's documents, up to a sequence of the source (nil: any), that it lacks. A document
// that differs from the source's is an error.
func (h *Hostile) Lacks(source *Hostile, upTo json.RawMessage) ([]string, error) {
	last := source.number(string(upTo))
	source.mu.Lock()
	rows := append([]string(nil), source.rows...)
	source.mu.Unlock()
	if upTo != nil {
		rows = rows[:min(last, len(rows))]
	}
	var lacking []string
	var errs []error
	for _, id := range rows {
		if id == "" {
			continue
		}
		has, err := h.Has(id, source)
		if !has {
			lacking = append(lacking, id)
		}
		errs = append(errs, err)
	}
	return lacking, errors.Join(errs...)
}

// Checkpoints returns the sequences in its checkpoints.
func (h *Hostile) Checkpoints() []json.RawMessage {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []json.RawMessage
	for _, doc := range h.locals {
		var fields struct {
			Seq json.RawMessage `json:"source_last_seq"`
		}
		if json.Unmarshal(doc, &fields) == nil && fields.Seq != nil {
			all = append(all, fields.Seq)
		}
	}
	return all
}

// find returns a document, or nil. It finds every document of an endless feed. The caller holds h.mu.
func (h *Hostile) find(id string) *prepared {
	if strings.HasPrefix(id, endless) {
		return &prepared{rev: "1-a"}
	}
	return h.docs[id]
}

// endless is the prefix of the ids of an endless feed.
const endless = "endless"

// sequence encodes a sequence.
func (h *Hostile) sequence(n int) string {
	if h.Numbers {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf(`"%d-x"`, n)
}

func (h *Hostile) number(seq string) int {
	digits, _, _ := strings.Cut(strings.Trim(seq, `"`), "-")
	n, _ := strconv.Atoi(digits)
	return n
}

// answer answers as CouchDB does, except for faults that change the content.
func (h *Hostile) answer(w http.ResponseWriter, r *http.Request, e Endpoint, fault Fault) {
	if !h.Unnamed {
		w.Header().Set("Server", "CouchDB/3.5.0 (Erlang OTP/25)")
	}
	w.Header().Set("Content-Type", "application/json")
	if e == Changes {
		h.changes(w, r, fault)
		return
	}
	if e == Put {
		h.put(w, r)
		return
	}
	read := io.ReadAll
	if e == BulkDocs {
		read = squeeze
	}
	body, err := read(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	switch e {
	case Info:
		h.info(w)
	case Commit:
		fmt.Fprint(w, `{"ok":true,"instance_start_time":"1700000000"}`)
	case Local:
		h.local(w, r, body)
	case RevsDiff:
		h.revsDiff(w, body)
	case BulkGet:
		h.bulkGet(w, body)
	case BulkDocs:
		h.bulkDocs(w, body)
	case Get:
		h.openRevs(w, r, fault)
	case Session:
		h.session(w, body)
	}
}

func refused(w http.ResponseWriter, status int, code, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":%q,"reason":%q}`, code, reason)
}

func (h *Hostile) info(w io.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintf(w, `{"db_name":"db","update_seq":%s,"instance_start_time":"1700000000","doc_count":%d,"doc_del_count":0}`,
		h.sequence(len(h.rows)), len(h.docs))
}

func (h *Hostile) local(w http.ResponseWriter, r *http.Request, body []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := r.URL.Path
	stored := h.locals[id]
	if r.Method == http.MethodGet {
		if stored == nil {
			refused(w, http.StatusNotFound, "not_found", "missing")
			return
		}
		_, _ = w.Write(stored)
		return
	}
	var doc map[string]json.RawMessage
	if json.Unmarshal(body, &doc) != nil {
		refused(w, http.StatusBadRequest, "bad_request", "invalid UTF-8 JSON")
		return
	}
	n := h.number(strings.Replace(string(doc["_rev"]), "0-", "", 1))
	doc["_rev"] = json.RawMessage(fmt.Sprintf(`"0-%d"`, n+1))
	h.locals[id], _ = json.Marshal(doc)
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"ok":true,"id":"_local/x","rev":"0-%d"}`, n+1)
}

// changes sends a feed. Faults may be in its rows.
func (h *Hostile) changes(w http.ResponseWriter, r *http.Request, fault Fault) {
	var only struct {
		IDs []string `json:"doc_ids"`
	}
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &only)
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))
	beat, err := strconv.Atoi(query.Get("heartbeat"))
	if err != nil {
		beat = 60_000
	}
	f := &feed{
		h: h, w: w, r: r, since: h.number(query.Get("since")), limit: limit, fault: fault,
		live: query.Get("feed") == "continuous", beat: time.Duration(max(beat, 1)) * time.Millisecond,
	}
	if only.IDs != nil {
		f.only = map[string]bool{}
		for _, id := range only.IDs {
			f.only[id] = true
		}
	}
	f.serve()
}

func (h *Hostile) revsDiff(w io.Writer, body []byte) {
	var asked map[string][]string
	_ = json.Unmarshal(body, &asked)
	h.mu.Lock()
	defer h.mu.Unlock()
	missing := map[string]any{}
	for id, revs := range asked {
		if doc := h.docs[id]; doc == nil || len(revs) != 1 || doc.rev != revs[0] {
			missing[id] = map[string]any{"missing": revs}
		}
	}
	_ = json.NewEncoder(w).Encode(missing)
}

// writeText writes a document's JSON, with its attachments as stubs or as following.
func (d *prepared) writeText(w io.Writer, id string, how string) error {
	var files []string
	for _, f := range d.files {
		files = append(files, fmt.Sprintf(`%q:{"content_type":"application/octet-stream","revpos":1,"digest":%q,"length":%d,%q:true}`,
			f.name, f.digest, f.size, how))
	}
	attachments := ""
	if files != nil {
		attachments = `,"_attachments":{` + strings.Join(files, ",") + `}`
	}
	_, err := fmt.Fprintf(w, `{"_id":%q,"_rev":%q,"_revisions":{"start":1,"ids":[%q]}%s,"filler":"`,
		id, d.rev, strings.TrimPrefix(d.rev, "1-"), attachments)
	for left := d.size; left > 0 && err == nil; left -= len(filler) {
		_, err = io.WriteString(w, filler[:min(left, len(filler))])
	}
	if err == nil {
		_, err = io.WriteString(w, `"}`)
	}
	return err
}

var filler = strings.Repeat("x", 32<<10)

// squeeze reads a JSON text and replaces runs of fillers by their lengths, so that the result is short for any
// document.
func squeeze(r io.Reader) ([]byte, error) {
	var short []byte
	run := 0
	chunk := make([]byte, 16<<10)
	for {
		n, err := r.Read(chunk)
		for _, c := range chunk[:n] {
			if c == 'x' {
				run++
				continue
			}
			if run >= shortRun {
				short = strconv.AppendInt(short, int64(run), 10)
			} else {
				short = append(short, filler[:run]...)
			}
			run = 0
			short = append(short, c)
		}
		if err == io.EOF {
			return short, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// shortRun is the number of equal letters in a row that count as filler.
const shortRun = 8

func (h *Hostile) bulkGet(w io.Writer, body []byte) {
	var asked struct {
		Docs []struct{ ID, Rev string }
	}
	_ = json.Unmarshal(body, &asked)
	_, _ = io.WriteString(w, `{"results":[`)
	for i, ref := range asked.Docs {
		if i > 0 {
			_, _ = io.WriteString(w, ",")
		}
		h.mu.Lock()
		doc := h.find(ref.ID)
		h.mu.Unlock()
		if doc == nil || doc.rev != ref.Rev {
			fmt.Fprintf(w, `{"id":%q,"docs":[{"error":{"id":%q,"rev":%q,"error":"not_found","reason":"missing"}}]}`, ref.ID, ref.ID, ref.Rev)
			continue
		}
		fmt.Fprintf(w, `{"id":%q,"docs":[{"ok":`, ref.ID)
		if err := doc.writeText(w, ref.ID, "stub"); err != nil {
			return
		}
		_, _ = io.WriteString(w, `}]}`)
	}
	_, _ = io.WriteString(w, `]}`)
}

// openRevs answers with multipart/mixed, as CouchDB does to every client that accepts it.
func (h *Hostile) openRevs(w http.ResponseWriter, r *http.Request, fault Fault) {
	var revs []string
	_ = json.Unmarshal([]byte(r.URL.Query().Get("open_revs")), &revs)
	_, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	boundary := "edge"
	if fault == WrongBoundary {
		boundary = "ridge"
	}
	w.Header().Set("Content-Type", `multipart/mixed; boundary="`+boundary+`"`)
	for _, rev := range revs {
		h.mu.Lock()
		doc, pause := h.find(id), h.pause
		h.mu.Unlock()
		switch {
		case doc == nil || doc.rev != rev:
			fmt.Fprintf(w, "--edge\r\nContent-Type: application/json; error=\"true\"\r\n\r\n{\"missing\":%q}\r\n", rev)
			continue
		case doc.files == nil:
			fmt.Fprint(w, "--edge\r\nContent-Type: application/json\r\n\r\n")
			if err := doc.writeText(w, id, "follows"); err != nil {
				return
			}
			fmt.Fprint(w, "\r\n")
			continue
		}
		fmt.Fprint(w, "--edge\r\nContent-Type: multipart/related; boundary=\"in\"\r\n\r\n--in\r\nContent-Type: application/json\r\n\r\n")
		if err := doc.writeText(w, id, "follows"); err != nil {
			return
		}
		files := doc.files
		if fault == MissingParts {
			files = files[:len(files)-1]
		}
		for _, f := range files {
			fmt.Fprintf(w, "\r\n--in\r\nContent-Disposition: attachment; filename=\"%s\"\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", f.name, f.size)
			content := f.open()
			if fault == WrongDigest {
				content = &flipped{r: content}
			}
			if pause != nil {
				content = &paused{content, func(sent int64) { pause(id, sent) }, 0}
			}
			if _, err := io.Copy(w, content); err != nil {
				return
			}
		}
		fmt.Fprint(w, "\r\n--in--\r\n")
	}
	fmt.Fprint(w, "--edge--")
}

// flipped is content whose first byte is changed.
type flipped struct {
	r    io.Reader
	done bool
}

func (f *flipped) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if n > 0 && !f.done {
		p[0] ^= 1
		f.done = true
	}
	return n, err
}

// paused is content whose reader is delayed.
type paused struct {
	r     io.Reader
	pause func(sent int64)
	sent  int64
}

func (s *paused) Read(p []byte) (int, error) {
	s.pause(s.sent)
	n, err := s.r.Read(p[:min(len(p), 64<<10)])
	s.sent += int64(n)
	return n, err
}

// session answers POST /_session.
func (h *Hostile) session(w http.ResponseWriter, body []byte) {
	var given struct{ Name, Password string }
	_ = json.Unmarshal(body, &given)
	if given.Name != h.Username || given.Password != h.Password {
		refused(w, http.StatusUnauthorized, "unauthorized", "Name or password is incorrect.")
		return
	}
	h.mu.Lock()
	h.cookies++
	value := fmt.Sprintf("session%d", h.cookies)
	h.mu.Unlock()
	http.SetCookie(w, &http.Cookie{Name: "AuthSession", Value: value, Path: "/", HttpOnly: true, MaxAge: 600})
	fmt.Fprintf(w, `{"ok":true,"name":%q,"roles":[]}`, given.Name)
}

// allowed reports whether a request may be answered. With CookieExpires no cookie is valid.
func (h *Hostile) allowed(r *http.Request, fault Fault) bool {
	if h.Username == "" && h.Password == "" {
		return true
	}
	if cookie, err := r.Cookie("AuthSession"); err == nil {
		return fault != CookieExpires && strings.HasPrefix(cookie.Value, "session")
	}
	name, password, _ := r.BasicAuth()
	return name == h.Username && password == h.Password
}

// quotedBytes returns text as JSON.
func quotedBytes(text string) []byte {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string always encodes
	}
	return bytes.TrimSpace(b)
}
