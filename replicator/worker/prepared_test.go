package worker_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// preparedEnv tells a test binary that is started by another one to be a server with prepared bytes.
const preparedEnv = "SETTEE_TEST_PREPARED"

// preparedPorts is how many addresses that server has: each gives a client its 28,000 local ports.
const preparedPorts = 4

// startPrepared starts this test binary once more, as a server with the databases of servePrepared, so that
// what it allocates is not counted here. It returns the server's addresses.
func startPrepared(t testing.TB) []string {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	command := exec.Command(binary)
	command.Env = append(os.Environ(), preparedEnv+"=1")
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	require.NoError(t, err)
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = command.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return strings.Fields(line)
}

// servePrepared is the whole of that process: it prints its addresses and ends with its standard input.
//
//	/docs/N, /docs/N/...        a source of N documents of 1 KiB
//	/attachment/N, ...          a source of one document with an attachment of N bytes
//	/waiting/..., ...           a source without documents, whose continuous feed waits
//	/target/..., ...            a target that takes everything and has nothing
func servePrepared() {
	raiseFileLimit()
	s := &preparedServer{sources: map[int]*preparedDocs{}}
	for i := range maxPreparedDocs {
		s.missing = fmt.Appendf(s.missing, `"d%08d":{"missing":[%q]},`, i, preparedRev(i))
	}
	s.lacks = len(s.missing) / maxPreparedDocs
	var addresses []string
	for range preparedPorts {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		addresses = append(addresses, "http://"+listener.Addr().String())
		server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
		go func() { panic(server.Serve(listener)) }()
	}
	fmt.Fprintln(os.Stdout, strings.Join(addresses, " "))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// preparedServer answers with the bytes of one slice each.
type preparedServer struct {
	missing []byte // what _revs_diff says of the documents of all sources, with a comma after each
	lacks   int    // the size of each

	mu      sync.Mutex
	sources map[int]*preparedDocs
}

// maxPreparedDocs is how many documents a source may have.
const maxPreparedDocs = 100_000

func (s *preparedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Server", "CouchDB/3.5.0 (Erlang OTP/25)")
	kind, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	name, path, _ := strings.Cut(rest, "/")
	n, _ := strconv.Atoi(name)
	switch {
	case path == "":
		_, _ = io.WriteString(w, `{"db_name":"db","update_seq":"0","instance_start_time":"1700000000"}`)
	case path == "_ensure_full_commit":
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"ok":true,"instance_start_time":"1700000000"}`)
	case strings.HasPrefix(path, "_local/") && r.Method == http.MethodGet:
		refuse(w, http.StatusNotFound, `{"error":"not_found","reason":"missing"}`)
	case strings.HasPrefix(path, "_local/"):
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"ok":true,"id":"_local/x","rev":"0-1"}`)
	case kind == "docs":
		s.source(n).serve(w, r, path)
	case kind == "attachment":
		serveAttachment(w, r, path, int64(n))
	case kind == "waiting":
		serveWaiting(w, r)
	default:
		s.target(w, r, path)
	}
}

func (s *preparedServer) source(n int) *preparedDocs {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sources[n] == nil {
		s.sources[n] = prepareDocs(n)
	}
	return s.sources[n]
}

// preparedDocs are documents d00000000 and so on. Their pieces of each answer are of the same size, so
// that an answer about a number of them in a row is a piece of a slice.
type preparedDocs struct {
	changes []byte
	results []byte // of _bulk_get, with a comma after each
	result  int    // the size of each
}

// preparedDoc is a document of 1 KiB: some strings, numbers and lists, as an application has them.
func preparedDoc(i int) []byte {
	rev := preparedRev(i)
	doc := fmt.Appendf(nil, `{"_id":"d%08d","_rev":%q,"_revisions":{"start":1,"ids":[%q]},`, i, rev, rev[2:])
	doc = fmt.Appendf(doc, `"type":"order","customer":"c-%06d","created":"2024-03-%02dT12:%02d:00Z","total":%d.95,"paid":%t,`,
		i%1000, 1+i%28, i%60, 100+i%900, i%2 == 0)
	doc = append(doc, `"tags":["retail","web","priority"],"lines":[`...)
	for line := range 5 {
		if line > 0 {
			doc = append(doc, ',')
		}
		doc = fmt.Appendf(doc, `{"sku":"A-%05d","quantity":%d,"price":%d.5}`, (i+line)%100_000, 1+line, 10+line)
	}
	doc = append(doc, `],"address":{"street":"Hauptstra`+"ß"+`e 12","city":"Z`+"ü"+`rich","zip":"8001"},"note":"Leave it \"as is\" at the door. `...)
	const text = "The parcel is to be handed over to a person of the household only, and not to be left with neighbours. "
	for len(doc) < 1022 {
		doc = append(doc, text[:min(len(text), 1022-len(doc))]...)
	}
	return append(doc, `"}`...)
}

func preparedRev(i int) string { return fmt.Sprintf("1-%032x", uint64(i)*0x9e3779b97f4a7c15) }

func prepareDocs(n int) *preparedDocs {
	p := &preparedDocs{changes: []byte(`{"results":[`)}
	for i := range n {
		// A cluster's sequences are this long.
		seq := fmt.Sprintf("%d-g1AAAACheJzLYWBgYMpgTmEQTM4vTc5ISXIwNDLXMwBCwxyQVCJDUv3___-zMpgTGRhygQLsZmmGqSYmaehaMIzIYwGSDA1A6j9cDwADsR2%08d", i, i)
		p.changes = fmt.Appendf(p.changes, "%s\n{\"seq\":%q,\"id\":\"d%08d\",\"changes\":[{\"rev\":%q}]}",
			map[bool]string{true: ",", false: ""}[i > 0], seq, i, preparedRev(i))
		before := len(p.results)
		p.results = fmt.Appendf(p.results, `{"id":"d%08d","docs":[{"ok":%s}]},`, i, preparedDoc(i))
		p.result = len(p.results) - before
	}
	p.changes = append(p.changes, "\n],\"last_seq\":\"end-x\",\"pending\":0}\n"...)
	return p
}

// bodies are where requests are read to.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// readBody reads a request's body and hands it to use.
func readBody(r *http.Request, use func(body []byte)) {
	b := bodies.Get().(*bytes.Buffer)
	defer bodies.Put(b)
	b.Reset()
	if r.ContentLength > 0 {
		b.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, _ = b.ReadFrom(r.Body)
	use(b.Bytes())
}

func (p *preparedDocs) serve(w http.ResponseWriter, r *http.Request, path string) {
	switch path {
	case "_changes":
		w.Header().Set("Content-Length", strconv.Itoa(len(p.changes)))
		_, _ = w.Write(p.changes)
	case "_bulk_get":
		var first, last int
		readBody(r, func(body []byte) {
			before := []byte(`{"id":"d`)
			first = numberAt(body, bytes.Index(body, before)+len(before))
			last = numberAt(body, bytes.LastIndex(body, before)+len(before))
			if got := bytes.Count(body, before); got != last-first+1 {
				panic(fmt.Sprintf("%d documents from %d to %d", got, first, last))
			}
		})
		results := p.results[first*p.result : (last+1)*p.result-1]
		w.Header().Set("Content-Length", strconv.Itoa(len(results)+len(`{"results":[]}`)))
		_, _ = io.WriteString(w, `{"results":[`)
		_, _ = w.Write(results)
		_, _ = io.WriteString(w, `]}`)
	default:
		refuse(w, http.StatusInternalServerError, `{"error":"not_prepared","reason":"no"}`)
	}
}

// numberAt reads eight digits.
func numberAt(b []byte, at int) int {
	n, err := strconv.Atoi(string(b[at : at+8]))
	if err != nil {
		panic(err)
	}
	return n
}

// target answers what is asked of one that has nothing and takes all.
func (s *preparedServer) target(w http.ResponseWriter, r *http.Request, path string) {
	switch {
	case path == "_revs_diff":
		readBody(r, func(body []byte) { s.lack(w, body) })
	case path == "_bulk_docs":
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "[]")
	case r.Method == http.MethodPut:
		if err := takeAttachment(r); err != nil {
			refuse(w, http.StatusPreconditionFailed, fmt.Sprintf(`{"error":"digest","reason":%q}`, err))
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"ok":true}`)
	default:
		refuse(w, http.StatusInternalServerError, `{"error":"not_prepared","reason":"no"}`)
	}
}

// lack answers a _revs_diff about documents of preparedDocs.
func (s *preparedServer) lack(w http.ResponseWriter, body []byte) {
	before := []byte(`"d`)
	first := numberAt(body, bytes.Index(body, before)+len(before))
	last := numberAt(body, bytes.LastIndex(body, before)+len(before))
	if got := bytes.Count(body, before); got != last-first+1 {
		panic(fmt.Sprintf("%d documents from %d to %d", got, first, last))
	}
	missing := s.missing[first*s.lacks : (last+1)*s.lacks-1]
	w.Header().Set("Content-Length", strconv.Itoa(len(missing)+len(`{}`)))
	_, _ = io.WriteString(w, `{`)
	_, _ = w.Write(missing)
	_, _ = io.WriteString(w, `}`)
}

// attachmentBytes is what an attachment repeats.
var attachmentBytes = func() []byte {
	b := make([]byte, 64<<10)
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
	return b
}()

// writeAttachment writes n bytes.
func writeAttachment(w io.Writer, n int64) {
	for n > 0 {
		wrote, err := w.Write(attachmentBytes[:min(n, int64(len(attachmentBytes)))])
		if err != nil {
			return
		}
		n -= int64(wrote)
	}
}

var attachmentDigest = sync.OnceValue(func() func(int64) string {
	var mu sync.Mutex
	known := map[int64]string{}
	return func(n int64) string {
		mu.Lock()
		defer mu.Unlock()
		if known[n] == "" {
			hash := md5.New()
			writeAttachment(hash, n)
			known[n] = "md5-" + base64.StdEncoding.EncodeToString(hash.Sum(nil))
		}
		return known[n]
	}
})

// serveAttachment is a source of one document with an attachment of n bytes.
func serveAttachment(w http.ResponseWriter, r *http.Request, path string, n int64) {
	const id = "d00000000" // as the target knows it
	rev := preparedRev(0)
	doc := func(how string) string {
		return fmt.Sprintf(`{"_id":%q,"_rev":%q,"_revisions":{"start":1,"ids":[%q]},"_attachments":{"film":`+
			`{"content_type":"video/mp4","revpos":1,"digest":%q,"length":%d,%q:true}}}`, id, rev, rev[2:], attachmentDigest()(n), n, how)
	}
	switch {
	case path == "_changes":
		fmt.Fprintf(w, `{"results":[{"seq":"1-x","id":%q,"changes":[{"rev":%q}]}],"last_seq":"1-x","pending":0}`, id, rev)
	case path == "_bulk_get":
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, `{"results":[{"id":%q,"docs":[{"ok":%s}]}]}`, id, doc("stub"))
	default:
		w.Header().Set("Content-Type", `multipart/mixed; boundary="out"`)
		fmt.Fprintf(w, "--out\r\nContent-Type: multipart/related; boundary=\"in\"\r\n\r\n"+
			"--in\r\nContent-Type: application/json\r\n\r\n%s\r\n"+
			"--in\r\nContent-Disposition: attachment; filename=\"film\"\r\nContent-Type: video/mp4\r\nContent-Length: %d\r\n\r\n",
			doc("follows"), n)
		writeAttachment(w, n)
		_, _ = io.WriteString(w, "\r\n--in--\r\n--out--")
	}
}

// takeAttachment reads a document with an attachment and checks the digest that the document has of it.
func takeAttachment(r *http.Request) error {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	parts := multipart.NewReader(r.Body, params["boundary"])
	part, err := parts.NextPart()
	if err != nil {
		return err
	}
	doc, err := io.ReadAll(part)
	if err != nil {
		return err
	}
	if part, err = parts.NextPart(); err != nil {
		return err
	}
	hash := md5.New()
	if _, err := io.Copy(hash, part); err != nil {
		return err
	}
	if _, err := parts.NextPart(); err != io.EOF {
		return fmt.Errorf("after the attachment: %w", err)
	}
	if !bytes.Contains(doc, []byte(`"md5-`+base64.StdEncoding.EncodeToString(hash.Sum(nil))+`"`)) {
		return errors.New("these are other bytes")
	}
	_, _ = io.Copy(io.Discard, r.Body)
	return nil
}

// serveWaiting is a source without a change.
func serveWaiting(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("feed") != "continuous" {
		_, _ = io.WriteString(w, `{"results":[],"last_seq":"0-x","pending":0}`)
		return
	}
	flusher := w.(http.Flusher)
	flusher.Flush()
	beat, _ := strconv.Atoi(r.URL.Query().Get("heartbeat"))
	ticker := time.NewTicker(time.Duration(max(beat, 1)) * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if _, err := io.WriteString(w, "\n"); err != nil {
				return
			}
			flusher.Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// bareCopy reads the answers of _bulk_get and posts the bodies of _bulk_docs that a run of n documents
// needs, four batches at a time, and does nothing else.
type bareCopy struct {
	client         *http.Client
	source, target string
	asks, writes   [][]byte
}

func newBareCopy(source, target string, n, batch int) *bareCopy {
	c := &bareCopy{
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 20}},
		source: source, target: target,
	}
	for first := 0; first < n; first += batch {
		ask, write := []byte(`{"docs":[`), []byte(`{"new_edits":false,"docs":[`)
		for i := first; i < min(n, first+batch); i++ {
			ask = fmt.Appendf(ask, `{"id":"d%08d","rev":%q},`, i, preparedRev(i))
			write = append(append(write, preparedDoc(i)...), ',')
		}
		c.asks = append(c.asks, append(ask[:len(ask)-1], "]}"...))
		c.writes = append(c.writes, append(write[:len(write)-1], "]}"...))
	}
	return c
}

func (c *bareCopy) run(ctx context.Context) error {
	batches := make(chan int)
	failed := make(chan error, 4)
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			buffer := make([]byte, 64<<10)
			for i := range batches {
				for _, one := range []struct {
					url  string
					body []byte
				}{{c.source + "/_bulk_get?latest=true&revs=true", c.asks[i]}, {c.target + "/_bulk_docs", c.writes[i]}} {
					if err := c.post(ctx, one.url, one.body, buffer); err != nil {
						failed <- err
						return
					}
				}
			}
		})
	}
	var err error
	for i := range c.asks {
		select {
		case batches <- i:
		case err = <-failed:
		}
		if err != nil {
			break
		}
	}
	close(batches)
	clients.Wait()
	return err
}

func (c *bareCopy) post(ctx context.Context, url string, body, buffer []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for {
		if _, err := answer.Body.Read(buffer); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
	}
}
