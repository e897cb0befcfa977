package worker_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
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

// preparedEnv is the environment variable that makes a test binary a server with prepared bytes.
const preparedEnv = "SETTEE_TEST_PREPARED"

// startPrepared starts this test binary again as a server (see servePrepared), so that its allocations are not counted
// here. It returns the server's address.
func startPrepared(t testing.TB) string {
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
	return strings.TrimSpace(line)
}

// servePrepared is the main function of that process. It prints its address and ends with its standard input.
//
//	/docs/N, /docs/N/...        a source of N documents of 1 KiB
//	/target/..., ...            a target that takes everything and has nothing
func servePrepared() {
	s := &preparedServer{sources: map[int]*preparedDocs{}}
	for i := range maxPreparedDocs {
		s.missing = fmt.Appendf(s.missing, `"d%08d":{"missing":[%q]},`, i, preparedRev(i))
	}
	s.lacks = len(s.missing) / maxPreparedDocs
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { panic(server.Serve(listener)) }()
	fmt.Fprintln(os.Stdout, "http://"+listener.Addr().String())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// preparedServer answers with parts of prepared slices.
type preparedServer struct {
	missing []byte // _revs_diff answers for the documents of all sources, with a comma after each
	lacks   int    // the size of each

	mu      sync.Mutex
	sources map[int]*preparedDocs
}

// maxPreparedDocs is the maximum number of documents of a source.
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

// preparedDocs are the documents d00000000 and so on. Their parts of each answer have equal sizes, so that an answer
// about consecutive documents is part of a slice.
type preparedDocs struct {
	changes []byte
	results []byte // of _bulk_get, with a comma after each
	result  int    // the size of each
}

// preparedDoc returns a document of 1 KiB with some strings, numbers and lists, like an application's.
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

// bodies are buffers for requests.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// readBody reads a request's body and passes it to use.
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

// numberAt parses eight digits.
func numberAt(b []byte, at int) int {
	n, err := strconv.Atoi(string(b[at : at+8]))
	if err != nil {
		panic(err)
	}
	return n
}

// target answers for a target that has nothing and accepts everything.
func (s *preparedServer) target(w http.ResponseWriter, r *http.Request, path string) {
	switch {
	case path == "_revs_diff":
		readBody(r, func(body []byte) { s.lack(w, body) })
	case path == "_bulk_docs":
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "[]")
	default:
		refuse(w, http.StatusInternalServerError, `{"error":"not_prepared","reason":"no"}`)
	}
}

// lack answers a _revs_diff about preparedDocs.
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

// bareCopy only reads the _bulk_get answers and posts the _bulk_docs bodies for n documents, four batches at a time.
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
