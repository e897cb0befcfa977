package frontend_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/fdbjobs"
	"settee/frontend"
	"settee/frontend/accounts"
	"settee/internal/testkit"
	"settee/pkg/config"
	"settee/pkg/couch/couchtest"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/memkv"
	"settee/pkg/nodes"
	"settee/pkg/sealed"
	"settee/replicator"
	"settee/replicator/jobs"
)

// underRace returns the size or the number of something large. It is smaller under the race detector, which shows
// nothing more with a larger one.
func underRace(size, smaller int) int {
	if testkit.Race {
		return smaller
	}
	return size
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

// secret is a part of every credential in these tests, and of nothing else: no answer and no
// line of the log may contain it.
const secret = "s3same"

// journal is a log that tests can wait for.
type journal struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{} // closed by the next line
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.written)
	j.written = make(chan struct{})
	return j.text.Write(line)
}

func (j *journal) read() (lines string, more <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String(), j.written
}

// line waits for a line that contains all of the texts.
func (j *journal) line(t *testing.T, texts ...string) map[string]any {
	t.Helper()
	for {
		lines, more := j.read()
	next:
		for line := range strings.Lines(lines) {
			for _, text := range texts {
				if !strings.Contains(line, text) {
					continue next
				}
			}
			var fields map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &fields))
			return fields
		}
		select {
		case <-more:
		case <-t.Context().Done():
			t.Fatalf("no line with %q in:\n%s", texts, lines)
		}
	}
}

// The account of the administrator, which a node's client uses.
const adminName, adminPassword = "admin", "adm-" + secret

// asAdmin makes requests as the administrator, unless they have other credentials.
type asAdmin struct{ http.RoundTripper }

// rawHead has the headers of a request that is written by hand: the host, and the credentials of the
// administrator.
var rawHead = "Host: a\r\nAuthorization: Basic " +
	base64.StdEncoding.EncodeToString([]byte(adminName+":"+adminPassword)) + "\r\n"

// onlyAdmin returns accounts with the administrator only, for handlers without a store.
func onlyAdmin(t *testing.T) *accounts.Accounts {
	t.Helper()
	_, _, only := emptyStore(t)
	return only
}

// emptyStore returns the parts of a node with a store in memory and one account, the administrator's.
func emptyStore(t *testing.T) (*docstore.Store, *config.Live, *accounts.Accounts) {
	t.Helper()
	db := memory(t)
	docs := docstore.Open(db, []byte("docs"), docstore.Options{})
	t.Cleanup(func() {
		docs.Close()
		require.NoError(t, db.Close())
	})
	cfg, _, err := config.Load(config.Options{Flags: testSettings})
	require.NoError(t, err)
	live, err := config.OpenLive(t.Context(), cfg, config.LiveOptions{Store: db, Prefix: []byte("config")})
	require.NoError(t, err)
	only, err := accounts.Open(t.Context(), accounts.Options{Store: db, Prefix: []byte("accounts"), Documents: docs, Config: live})
	require.NoError(t, err)
	return docs, live, only
}

// testSettings are settings of all nodes here: there is an administrator, a password is hashed quickly, and no function is
// too slow, on a busy machine either.
var testSettings = []string{
	"chttpd_auth/iterations=1", "admins/" + adminName + "=" + adminPassword, "couchdb/os_process_timeout=600000",
}

// nobody, as the value of Authorization, makes asAdmin send no credentials.
const nobody = "nobody"

func (a asAdmin) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Header.Get("Authorization") {
	case "":
		r.SetBasicAuth(adminName, adminPassword)
	case nobody:
		r.Header.Del("Authorization")
	}
	return a.RoundTripper.RoundTrip(r)
}

// node is a frontend, its store, and a client that makes requests as the administrator.
type node struct {
	*testing.T
	db       kv.Database
	log      *journal
	layer    *fdbjobs.Layer
	jobs     *jobs.Store
	docs     *docstore.Store
	accounts *accounts.Accounts
	config   *config.Live
	others   []nodes.Seen // nodes of the store, beside this one
	handler  *frontend.Handler
	server   *http.Server
	client   *http.Client
	address  string
	dial     func(context.Context) (net.Conn, error)
}

// start starts a node on a store in memory. The settings are section/key=value.
func start(t *testing.T, settings ...string) *node {
	t.Helper()
	return startOn(t, memory(t), listenTCP(t), settings...)
}

func memory(t *testing.T) kv.Database {
	t.Helper()
	db, err := memkv.Open(memkv.Options{})
	require.NoError(t, err)
	return db
}

func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return listener
}

func startOn(t *testing.T, db kv.Database, listener net.Listener, settings ...string) *node {
	t.Helper()
	return startWith(t, db, listener, nil, settings...)
}

// startWith starts a node whose document store has these hooks. A nil hooks means the hooks of
// replicator databases.
func startWith(t *testing.T, db kv.Database, listener net.Listener, hooks *docstore.Hooks, settings ...string) *node {
	t.Helper()
	cfg, _, err := config.Load(config.Options{
		Flags: slices.Concat(testSettings, settings),
	})
	require.NoError(t, err)
	n := &node{T: t, db: db, log: &journal{written: make(chan struct{})}, address: listener.Addr().String()}
	n.layer = fdbjobs.Open(db, []byte("jobs"), fdbjobs.Options{Derive: jobs.Derivations(), Sealer: (*sealed.Keys)(nil)})
	n.jobs, err = jobs.Open(t.Context(), db, n.layer, jobs.Options{UUID: "0123456789abcdef0123456789abcdef", Documents: []byte("docs")})
	require.NoError(t, err)
	if hooks == nil {
		replications := n.jobs.Documents.Hooks(replicator.ParseOptions{})
		hooks = &replications
	}
	n.config, err = config.OpenLive(t.Context(), cfg, config.LiveOptions{Store: db, Prefix: []byte("config")})
	require.NoError(t, err)
	n.docs = docstore.Open(db, []byte("docs"), docstore.Options{
		Hooks: *hooks, Security: json.RawMessage(frontend.DefaultSecurity),
	})
	log := zerolog.New(n.log).Level(zerolog.DebugLevel)
	n.accounts, err = accounts.Open(t.Context(), accounts.Options{
		Store: db, Prefix: []byte("accounts"), Documents: n.docs, Config: n.config, Log: log,
	})
	require.NoError(t, err)
	n.handler = frontend.New(frontend.Options{
		Jobs: n.jobs, Documents: n.docs, Accounts: n.accounts, Config: n.config, Node: "node1.example", Version: "1.2.3", Log: log,
		Memory: config.MemoryLimit.Get(cfg) / 4,
		Nodes:  n.seen, Stats: func() map[string]any { return someStats },
		WriteFailure: func() error { return context.Cause(kv.Writable(db)) },
	})
	n.server = frontend.NewServer(n.handler)
	served := make(chan error, 1)
	go func() { served <- n.server.Serve(listener) }()
	n.dial = func(ctx context.Context) (net.Conn, error) {
		if pipes, ok := listener.(*couchtest.PipeListener); ok {
			return pipes.Dial(ctx)
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", n.address)
	}
	transport := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return n.dial(ctx) },
		DisableCompression: true,
	}
	n.client = &http.Client{Transport: asAdmin{transport}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, n.server.Shutdown(context.Background()))
		require.ErrorIs(t, <-served, http.ErrServerClosed)
		n.handler.Close()
		n.docs.Close()
		n.layer.Close()
		require.NoError(t, db.Close())
		lines, _ := n.log.read()
		assert.NotContains(t, lines, secret)
	})
	return n
}

// answer is what a client got.
type answer struct {
	request string // its method and target, if they are known
	status  int
	header  http.Header
	body    string
}

// is requires the answer's status, and returns the answer.
func (a answer) is(t *testing.T, status int) answer {
	t.Helper()
	require.Equal(t, status, a.status, "%s: %s", a.request, a.body)
	return a
}

func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	var value map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &value), "%s", a.body)
	return value
}

func (a answer) localID(t *testing.T) string {
	t.Helper()
	id, _ := a.json(t)["_local_id"].(string)
	require.NotEmpty(t, id)
	return id
}

// request sends a request as it is, with headers as pairs.
func (n *node) request(method, target, body string, headers ...string) (answer, error) {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(n.Context(), method, "http://"+n.address+"/", reader)
	if err != nil {
		return answer{}, err
	}
	r.URL.Opaque = "//" + n.address + target // not cleaned
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	response, err := n.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	assert.NotContains(n, string(text), secret)
	for name, values := range response.Header {
		assert.NotContains(n, strings.Join(values, " "), secret, name)
	}
	return answer{method + " " + target, response.StatusCode, response.Header, string(text)}, err
}

func (n *node) do(method, target, body string, headers ...string) answer {
	n.Helper()
	a, err := n.request(method, target, body, headers...)
	require.NoError(n, err)
	return a
}

func (n *node) get(target string) answer {
	n.Helper()
	return n.do(http.MethodGet, target, "")
}

func (n *node) post(body string) answer {
	n.Helper()
	return n.do(http.MethodPost, "/_replicate", body, "Content-Type", "application/json")
}

// posting posts without waiting for the answer.
func (n *node) posting(body string) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		a, err := n.request(http.MethodPost, "/_replicate", body, "Content-Type", "application/json")
		assert.NoError(n, err)
		out <- a
	}()
	return out
}

// definition is the body of a replication with some more members.
func definition(members string) string {
	text := `{"source": {"url": "http://a.example/db", "auth": {"basic": {"username": "adm", "password": "` + secret + `"}},
		"headers": {"X-Key": "` + secret + `"}}, "target": "http://adm:` + secret + `@b.example/db"`
	if members != "" {
		text += ", " + members
	}
	return text + "}"
}

// accept takes a job and starts it, as a replication node does.
func (n *node) accept() *jobs.Run {
	n.Helper()
	run, err := accept(n.Context(), n.jobs)
	require.NoError(n, err)
	require.NoError(n, run.Start(n.Context(), "node1", "<0.1.0>"))
	return run
}

// opened accepts a job whose run has opened its databases, and so keeps its replication id from jobs of other users.
func (n *node) opened() *jobs.Run {
	n.Helper()
	run := n.accept()
	base, _, continuous := strings.Cut(run.Job().ReplicationID(), "+continuous")
	require.NoError(n, run.Identify(n.Context(), replicator.ID{Base: base, Continuous: continuous}))
	require.NoError(n, run.Opened(n.Context()))
	return run
}

func (n *node) complete(run *jobs.Run, result string) {
	n.Helper()
	require.NoError(n, run.Complete(n.Context(), func(s *replicator.JobState) { s.Result = json.RawMessage(result) }))
}

func refused(t *testing.T, a answer, status int, code, reason string) {
	t.Helper()
	require.Equal(t, status, a.status, "%s: %s", a.request, a.body)
	want := map[string]any{"error": code, "reason": reason}
	require.Equal(t, want, a.json(t))
}

// listenPipe returns a network in memory, which a synctest bubble can use.
func listenPipe() *couchtest.PipeListener { return couchtest.ListenPipe() }

// accepting takes a job and starts it when there is one, unless the test ends before that.
func (n *node) accepting() <-chan *jobs.Run {
	out := make(chan *jobs.Run, 1)
	go func() {
		run, err := accept(n.Context(), n.jobs)
		if err == nil && run.Start(n.Context(), "node1", "<0.1.0>") == nil {
			out <- run
		}
	}()
	return out
}

// accept takes a job.
func accept(ctx context.Context, store *jobs.Store) (*jobs.Run, error) {
	runs, err := store.Runs.Accept(ctx, jobs.AcceptOptions{})
	if err != nil {
		return nil, err
	}
	return runs[0], nil
}
