package couchtest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"
)

// Endpoint is a kind of request to a [Hostile].
type Endpoint string

// The endpoints of a Hostile.
const (
	Info     Endpoint = "the database's description"
	Local    Endpoint = "_local" // reading and writing
	Changes  Endpoint = "_changes"
	RevsDiff Endpoint = "_revs_diff"
	BulkGet  Endpoint = "_bulk_get"
	BulkDocs Endpoint = "_bulk_docs"
	Get      Endpoint = "GET of a document" // with open_revs
	Put      Endpoint = "PUT of a document"
	Commit   Endpoint = "_ensure_full_commit"
	Session  Endpoint = "_session"
)

// endpointOf returns the endpoint of a request. The first part of its path is the database's name.
func endpointOf(r *http.Request) Endpoint {
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/_session":
		return Session
	case path == "":
		return Info
	case strings.HasPrefix(path, "_local/"):
		return Local
	case path == "_ensure_full_commit":
		return Commit
	}
	for _, e := range []Endpoint{Changes, RevsDiff, BulkGet, BulkDocs} {
		if path == string(e) {
			return e
		}
	}
	if r.Method == http.MethodPut {
		return Put
	}
	return Get
}

// Fault is a wrong behaviour of an endpoint.
type Fault string

// The faults of a Hostile. Requests are carried out and answered wrongly, except those answered with only a status.
const (
	None Fault = ""

	NeverAnswers  Fault = "never answers"
	OneByteASec   Fault = "one byte a second"
	ClosesMidway  Fault = "closes midway"
	AnnouncesMore Fault = "announces more than comes" // in its Content-Length
	EndlessBody   Fault = "endless body"              // a value in it does not end
	InvalidJSON   Fault = "invalid JSON"

	Status500    Fault = "500"
	Status429    Fault = "429" // without Retry-After
	Status404    Fault = "404"
	NoDatabase   Fault = "no database" // 404 with CouchDB's words
	RedirectLoop Fault = "redirect loop"

	// Of Changes.
	HugeLine            Fault = "a line of 100 MB"
	RepeatedSequences   Fault = "repeated sequences"
	DescendingSequences Fault = "descending sequences"
	NoEnd               Fault = "no end"            // heartbeats after the last row, for ever
	RowsForEver         Fault = "rows for ever"     // of new documents
	OldRowsForEver      Fault = "old rows for ever" // of existing documents

	// Of Changes, for the row of one document.
	NoRevision Fault = "no revision"
	NoID       Fault = "no id"
	NoRow      Fault = "no row" // but a number

	// Of Get.
	WrongBoundary Fault = "wrong boundary"
	MissingParts  Fault = "missing parts"
	WrongDigest   Fault = "wrong digest"

	// CookieExpires makes every request with a cookie unauthorized, at endpoints other than Session.
	CookieExpires Fault = "a cookie that always expires"
)

// Switch sets the fault of an endpoint. None removes it.
func (h *Hostile) Switch(fault Fault, endpoints ...Endpoint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range endpoints {
		h.faults[e] = fault
	}
}

// Damage sets the fault of an endpoint for one document: of the requests that name it, or of its row in the changes feed.
func (h *Hostile) Damage(id string, fault Fault, endpoints ...Endpoint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range endpoints {
		if h.bad[e] == nil {
			h.bad[e] = map[string]Fault{}
		}
		h.bad[e][id] = fault
	}
}

// damage returns the fault for one of the documents that a request names, or None.
func (h *Hostile) damage(r *http.Request, e Endpoint) Fault {
	h.mu.Lock()
	bad := maps.Clone(h.bad[e])
	h.mu.Unlock()
	if len(bad) == 0 || e == Changes {
		return None
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	for id, fault := range bad {
		if strings.HasSuffix(r.URL.Path, "/"+id) || bytes.Contains(body, quotedBytes(id)) {
			return fault
		}
	}
	return None
}

func (h *Hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := endpointOf(r)
	h.mu.Lock()
	fault, limit, resets := h.faults[e], h.limit, h.resets
	h.seen[e]++
	h.mu.Unlock()
	if limit > 0 && r.ContentLength > limit {
		if resets {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Connection", "close")
		refused(w, http.StatusRequestEntityTooLarge, "too_large", "the request entity is too large")
		return
	}
	if r.Header.Get("Content-Encoding") == "gzip" {
		plain, err := gzip.NewReader(r.Body)
		if err != nil {
			refused(w, http.StatusBadRequest, "bad_request", "invalid gzip")
			return
		}
		r.Body = io.NopCloser(plain)
	}
	if one := h.damage(r, e); one != None {
		fault = one
	}
	if e != Session && !h.allowed(r, fault) {
		refused(w, http.StatusUnauthorized, "unauthorized", "You are not authorized to access this db.")
		return
	}
	if fault == NeverAnswers {
		_, _ = io.Copy(io.Discard, r.Body) // the server watches the connection only after that
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
	if status(w, r, fault) {
		return
	}
	switch fault {
	case None, HugeLine, RepeatedSequences, DescendingSequences, NoEnd, RowsForEver, OldRowsForEver,
		WrongBoundary, MissingParts, WrongDigest, CookieExpires:
		h.answer(w, r, e, fault)
		return
	}
	right := recorded{httptest.NewRecorder()}
	h.answer(right, r, e, fault)
	for name, values := range right.Header() {
		w.Header()[name] = values
	}
	right.distort(w, r, fault)
}

// status answers with a status if the fault is one.
func status(w http.ResponseWriter, r *http.Request, fault Fault) bool {
	code := map[Fault]int{
		Status500: 500, Status429: 429, Status404: 404, NoDatabase: 404, RedirectLoop: 307,
	}[fault]
	if code == 0 {
		return false
	}
	_, _ = io.Copy(io.Discard, r.Body)
	switch fault {
	case NoDatabase:
		refused(w, code, "not_found", "Database does not exist.")
	case Status404:
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "<html>nothing here</html>")
	case RedirectLoop:
		w.Header().Set("Location", r.URL.RequestURI())
		w.WriteHeader(code)
	default:
		refused(w, code, strings.ReplaceAll(strings.ToLower(http.StatusText(code)), " ", "_"), "a storm")
	}
	return true
}

// recorded is a correct answer.
type recorded struct{ *httptest.ResponseRecorder }

// distort sends the answer with the fault.
func (a recorded) distort(w http.ResponseWriter, r *http.Request, fault Fault) {
	body := a.Body.Bytes()
	half := body[:len(body)/2]
	switch fault {
	case OneByteASec:
		w.WriteHeader(a.Code)
		for i := range body {
			time.Sleep(time.Second)
			if _, err := w.Write(body[i : i+1]); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			if r.Context().Err() != nil {
				return
			}
		}
	case ClosesMidway:
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(a.Code)
		_, _ = w.Write(half)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case AnnouncesMore:
		w.Header().Set("Content-Length", strconv.Itoa(len(body)+1000))
		w.WriteHeader(a.Code)
		_, _ = w.Write(body)
	case EndlessBody:
		a.endless(w, inString(body))
	case InvalidJSON:
		_, _ = w.Write(replaced(body, `":`, `";`))
	}
}

// inString returns the body up to the middle of its first longer string, or all of it if there is none.
func inString(body []byte) []byte {
	for _, sign := range []string{`"_id":"`, `"id":"`, `":"`, `["`, `"`} {
		if i := bytes.Index(body, []byte(sign)); i >= 0 {
			return body[:i+len(sign)]
		}
	}
	return append(bytes.TrimSuffix(body, []byte("]")), '"')
}

func (a recorded) endless(w http.ResponseWriter, prefix []byte) {
	w.WriteHeader(a.Code)
	_, err := w.Write(prefix)
	for chunk := []byte(strings.Repeat("x", 64<<10)); err == nil; {
		_, err = w.Write(chunk)
	}
}

// replaced returns the body with one occurrence of a text, in the middle if possible, replaced.
func replaced(body []byte, from, to string) []byte {
	at := bytes.Index(body, []byte(`"_rev":`))
	if at < 0 {
		at = len(body) / 2
	}
	i := bytes.Index(body[at:], []byte(from))
	if i < 0 {
		at = 0
		i = bytes.Index(body, []byte(from))
	}
	if i < 0 {
		return []byte(to)
	}
	return bytes.Join([][]byte{body[:at+i], body[at+i+len(from):]}, []byte(to))
}

type feed struct {
	h            *Hostile
	w            http.ResponseWriter
	r            *http.Request
	since, limit int
	only         map[string]bool
	live         bool
	beat         time.Duration
	fault        Fault
	sent         int
}

func (f *feed) serve() {
	if !f.live {
		_, _ = io.WriteString(f.w, `{"results":[`)
	}
	if f.fault == HugeLine {
		f.huge()
		return
	}
	for {
		f.h.mu.Lock()
		rows, last, changed := f.rows(), f.since, f.h.changed
		f.h.mu.Unlock()
		for _, row := range rows {
			if !f.send(row) {
				return
			}
		}
		f.w.(http.Flusher).Flush()
		switch {
		case f.fault == RowsForEver || f.fault == OldRowsForEver:
			f.forEver(rows)
			return
		case f.limit > 0 && f.sent >= f.limit, !f.live && f.fault != NoEnd:
			f.end(last)
			return
		}
		select {
		case <-changed:
			if !f.live {
				f.since = last
			}
		case <-time.After(f.beat):
			_, _ = io.WriteString(f.w, "\n")
		case <-f.r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// rows returns the rows since the last call. The caller holds h.mu.
func (f *feed) rows() []string {
	h := f.h
	var rows []string
	for at := f.since; at < len(h.rows) && (f.limit == 0 || len(rows) < f.limit); at++ {
		f.since = at + 1
		id := h.rows[at]
		if id == "" || f.only != nil && !f.only[id] {
			continue
		}
		seq := at + 1
		switch f.fault {
		case RepeatedSequences:
			seq = len(h.rows)
		case DescendingSequences:
			seq = len(h.rows) - at
		}
		rows = append(rows, f.row(seq, id, h.docs[id].rev))
	}
	return rows
}

func (f *feed) row(seq int, id, rev string) string {
	switch f.h.bad[Changes][id] {
	case NoRevision:
		return fmt.Sprintf(`{"seq":%s,"id":%s,"changes":[]}`, f.h.sequence(seq), quotedBytes(id))
	case NoID:
		return fmt.Sprintf(`{"seq":%s,"changes":[{"rev":%q}]}`, f.h.sequence(seq), rev)
	case NoRow:
		return strconv.Itoa(seq)
	case HugeLine:
		filler := strings.Repeat(`{"rev":"1-x"},`, 2_000_000)
		return fmt.Sprintf(`{"seq":%s,"id":%s,"changes":[%s{"rev":%q}]}`, f.h.sequence(seq), quotedBytes(id), filler, rev)
	}
	return fmt.Sprintf(`{"seq":%s,"id":%s,"changes":[{"rev":%q}]}`, f.h.sequence(seq), quotedBytes(id), rev)
}

func (f *feed) send(row string) bool {
	if f.sent++; !f.live && f.sent > 1 {
		row = ",\n" + row
	} else if f.live {
		row += "\n"
	}
	_, err := io.WriteString(f.w, row)
	return err == nil
}

func (f *feed) end(last int) {
	format := `],"last_seq":%s,"pending":%d}`
	if f.live {
		format = `{"last_seq":%s,"pending":%d}` + "\n"
	}
	f.h.mu.Lock()
	defer f.h.mu.Unlock()
	fmt.Fprintf(f.w, format, f.h.sequence(last), len(f.h.rows)-last)
}

// huge sends a row of 100 MB.
func (f *feed) huge() {
	_, err := fmt.Fprintf(f.w, `{"seq":%s,"id":"`, f.h.sequence(1))
	chunk := []byte(strings.Repeat("x", 100_000))
	for i := 0; i < 1000 && err == nil; i++ {
		_, err = f.w.Write(chunk)
	}
	if err == nil && f.send(`","changes":[{"rev":"1-a"}]}`) {
		f.end(1)
	}
}

// forEver sends rows until the client leaves.
func (f *feed) forEver(rows []string) {
	f.h.mu.Lock()
	seq := len(f.h.rows)
	f.h.mu.Unlock()
	for i := 0; ; i++ {
		seq++
		row := f.row(seq, endless+strconv.Itoa(i), "1-a")
		if f.fault == OldRowsForEver && len(rows) > 0 {
			row = rows[i%len(rows)]
		}
		if !f.send(row) {
			return
		}
	}
}
