package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/internal/servers"
	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"
	"settee/pkg/kv/kvtest"
)

// limit is the timeout of waits in tests.
const limit = 5 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	if err := chooseTests(os.Getenv("SETTEE_STORES")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	status := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(kvtest.NetworkThread); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	os.Exit(status)
}

// chooseTests leaves out tests, besides those that -skip names: with "only" those that do not use aStore, and with "none" those
// that do. So a run with FoundationDB and one without it, as .ci/run makes them, have each test once. Otherwise it leaves out
// none.
func chooseTests(which string) error {
	if which == "" {
		return nil
	}
	if which != "only" && which != "none" {
		return fmt.Errorf("SETTEE_STORES is %q, and must be only or none", which)
	}
	uses, err := namesUsedByTests()
	if err != nil {
		return err
	}
	onStore := map[string]bool{"aStore": true}
	for before := 0; before < len(onStore); { // until no further function uses one of them
		before = len(onStore)
		for function, names := range uses {
			if slices.ContainsFunc(names, func(name string) bool { return onStore[name] }) {
				onStore[function] = true
			}
		}
	}
	var left []string
	for function := range uses {
		if strings.HasPrefix(function, "Test") && onStore[function] != (which == "only") {
			left = append(left, function)
		}
	}
	skipped := []string{"^(" + strings.Join(left, "|") + ")$"}
	if others := flag.Lookup("test.skip").Value.String(); others != "" {
		skipped = append(skipped, others)
	}
	return flag.Set("test.skip", strings.Join(skipped, "|"))
}

// namesUsedByTests returns the names in the bodies of the functions of this package's tests, by the names of the functions.
func namesUsedByTests() (map[string][]string, error) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		return nil, err
	}
	uses := map[string][]string{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declared := range file.Decls {
			function, ok := declared.(*ast.FuncDecl)
			if !ok || function.Body == nil {
				continue
			}
			ast.Inspect(function.Body, func(n ast.Node) bool {
				if name, ok := n.(*ast.Ident); ok {
					uses[function.Name.Name] = append(uses[function.Name.Name], name.Name)
				}
				return true
			})
		}
	}
	return uses, nil
}

// builtIn is the directory of the command. It is empty until a test needs the command.
var builtIn string

// built returns the path of the command, which it builds for the first test.
func built(t testing.TB) string {
	t.Helper()
	testkit.SkipShort(t)
	return build()
}

var build = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "settee")
	if err != nil {
		panic(err)
	}
	builtIn = dir
	path := filepath.Join(dir, "settee")
	if err := servers.BuildSettee(context.Background(), "", tags, path); err != nil {
		panic(err)
	}
	return path
})

// settee runs a command to its end.
func settee(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	return setteeWith(t, nil, args...)
}

// setteeWith is settee with more variables in the environment.
func setteeWith(t *testing.T, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, built(t), args...)
	var out, errs bytes.Buffer
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// process is a running command.
type process struct {
	t   testing.TB
	cmd *exec.Cmd
	url string // of a node's frontend, with the administrator
	// read is closed when all output of the process is in the log.
	read chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// The administrator of nodes in tests.
const adminName, adminPassword = "admin", "relax"

var adminEnvironment = []string{"COUCHDB_USER=" + adminName, "COUCHDB_PASSWORD=" + adminPassword}

// withAdmin returns a URL of a node with the administrator's name and password.
func withAdmin(url string) string {
	return strings.Replace(url, "://", "://"+adminName+":"+adminPassword+"@", 1)
}

// withoutAdmin removes the name and password again.
func withoutAdmin(url string) string {
	return strings.Replace(url, adminName+":"+adminPassword+"@", "", 1)
}

// begin starts a command, and returns when a line of its standard error contains the text.
func begin(t testing.TB, text string, env []string, args ...string) *process {
	t.Helper()
	return beginBy(t, (*exec.Cmd).Start, text, env, args...)
}

// beginBy is begin with a function that starts the command.
func beginBy(t testing.TB, start func(*exec.Cmd) error, text string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(built(t), args...), read: make(chan struct{})}
	p.cmd.Env = slices.Concat(os.Environ(), adminEnvironment, env)
	pipe, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, start(p.cmd))
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.read
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Log(p.logged())
		}
	})
	seen := make(chan struct{})
	go func() {
		defer close(p.read)
		lines := bufio.NewScanner(pipe)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			p.note(lines.Bytes())
			if strings.Contains(lines.Text(), text) {
				select {
				case <-seen:
				default:
					close(seen)
				}
			}
		}
		_, _ = io.Copy(io.Discard, pipe)
	}()
	select {
	case <-seen:
	case <-time.After(limit):
		require.Fail(t, "the command did not print "+text)
	}
	return p
}

func (p *process) note(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.Write(line)
	p.log.WriteByte('\n')
	if name := repeatedMember(line); name != "" {
		p.t.Errorf("a line of the log has the member %q twice: %s", name, line)
	}
	var said struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(line, &said) == nil && said.URL != "" {
		p.url = withAdmin(said.URL)
	}
}

// repeatedMember returns the name of a member that an object in JSON has twice, or "". Another text has none.
func repeatedMember(text []byte) string {
	if !json.Valid(text) {
		return ""
	}
	in := json.NewDecoder(bytes.NewReader(text))
	if open, err := in.Token(); err != nil || open != json.Delim('{') {
		return ""
	}
	seen := map[json.Token]bool{}
	for in.More() {
		name, _ := in.Token() // the text is valid
		if seen[name] {
			return name.(string)
		}
		seen[name] = true
		var value json.RawMessage
		_ = in.Decode(&value)
	}
	return ""
}

func TestRepeatedMember(t *testing.T) {
	t.Parallel()
	require.Equal(t, "database", repeatedMember([]byte(`{"database":"a","job":{"database":1},"database":"b"}`)))
	for _, text := range []string{`{"database":"a","job":{"database":1}}`, `{}`, `[]`, `settee: no`, `{"a":1,"a":`} {
		require.Empty(t, repeatedMember([]byte(text)), text)
	}
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// end signals the process and returns its exit status.
func (p *process) end(s os.Signal) int {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
	<-p.read         // Wait closes the pipe
	_ = p.cmd.Wait() // the status is enough
	return p.cmd.ProcessState.ExitCode()
}

// aStore returns the URL of a new store that outlives a node: on FoundationDB if the tests have one, otherwise in a
// directory.
func aStore(t *testing.T) string {
	if storeURL, ok := kvtest.ClusterURL(t); ok {
		return storeURL
	}
	return "pebble:" + filepath.Join(t.TempDir(), "data")
}

// serveNode starts a node on a store, on a free port.
func serveNode(t testing.TB, store string, sets ...string) *process {
	args := []string{"serve", "--store", store, "--set", "chttpd/port=0", "--set", "chttpd_auth/iterations=10"}
	for _, set := range sets {
		args = append(args, "--set", set)
	}
	return begin(t, "settee is running", nil, args...)
}

// request makes a request to the node, and returns the status and the body.
func (p *process) request(method, path, body string) (int, string) {
	p.t.Helper()
	return request(p.t, method, p.url+path, body)
}

func request(t testing.TB, method, url, body string) (int, string) {
	t.Helper()
	return requestBy(t, http.DefaultClient, method, url, body)
}

// ask makes a request to the node, checks the status, and returns the body.
func (p *process) ask(status int, method, path, body string) string {
	p.t.Helper()
	return ask(p.t, status, method, p.url+path, body)
}

func ask(t testing.TB, status int, method, url, body string) string {
	t.Helper()
	got, answer := request(t, method, url, body)
	require.Equal(t, status, got, answer)
	return answer
}

// requestBy makes the request with a client.
func requestBy(t testing.TB, client *http.Client, method, url, body string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(r)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

func exists(t *testing.T, url string) func() bool {
	return func() bool {
		status, _ := request(t, http.MethodGet, url, "")
		return status == http.StatusOK
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	out, _, status := settee(t, "version")
	assert.Zero(t, status)
	assert.Regexp(t, `(?m)^settee \S+$`, out)
	assert.Contains(t, out, "engines: "+engines+"\n")

	inJSON, _, status := settee(t, "version", "--json")
	assert.Zero(t, status)
	var v struct {
		Version, Go, OS, Arch string
		Engines               []string
	}
	require.NoError(t, json.Unmarshal([]byte(inJSON), &v))
	assert.Equal(t, out, fmt.Sprintf("settee %s\n%s %s/%s\nengines: %s\n", v.Version, v.Go, v.OS, v.Arch, strings.Join(v.Engines, ", ")))
}

func TestConfig(t *testing.T) {
	t.Parallel()
	out, _, status := settee(t, "config", "--set", "replicator/max_jobs=7")
	assert.Zero(t, status)
	assert.Regexp(t, `max_jobs = 7\s+; --set`, out)
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"unknown command":   {[]string{"serv"}, exitUsage, `unknown command "serv"`},
		"unknown flag":      {[]string{"serve", "--stor", "x"}, exitUsage, "unknown flag: --stor"},
		"unknown argument":  {[]string{"serve", "now"}, exitUsage, "now"},
		"bad setting":       {[]string{"serve", "--set", "replicator/max_jobs=lots"}, exitFailed, "max_jobs"},
		"bad store":         {[]string{"serve", "--store", "redis:x"}, exitFailed, "redis"},
		"no administrator":  {[]string{"serve", "--store", "mem:", "--set", "chttpd/port=0"}, exitFailed, "COUCHDB_USER"},
		"one database":      {[]string{"replicate", "http://127.0.0.1:1/a"}, exitUsage, "two URLs"},
		"no URL":            {[]string{"replicate", "a", "http://127.0.0.1:1/b"}, exitUsage, "source"},
		"two filters":       {[]string{"replicate", "http://h/a", "http://h/b", "--doc-id", "x", "--selector", "{}"}, exitUsage, "selector"},
		"selector not JSON": {[]string{"replicate", "http://h/a", "http://h/b", "--selector", "{"}, exitUsage, "--selector must be"},
		"query not JSON":    {[]string{"verify", "http://h/a", "http://h/b", "--query-params", "{"}, exitUsage, "--query-params must be"},
		"verify no URL":     {[]string{"verify", "http://u:s3cret@h/a", "b"}, exitUsage, "target"},
		"verify one URL":    {[]string{"verify", "http://h/a"}, exitUsage, "two URLs"},
		"negative wait":     {[]string{"verify", "http://h/a", "http://h/b", "--wait", "-1s"}, exitUsage, "--wait must not be negative"},
		"bad wait":          {[]string{"verify", "http://h/a", "http://h/b", "--wait", "soon"}, exitUsage, "--wait"},
		"jobs of no node":   {[]string{"jobs"}, exitUsage, "which node? Say --url, or set the variable SETTEE_URL"},
		"jobs of a file":    {[]string{"jobs", "--url", "file:///x"}, exitUsage, "is not the URL of a server"},
		"jobs, node away":   {[]string{"jobs", "--url", "http://u:s3cret@127.0.0.1:1"}, exitFailed, "connection refused"},
		"jobs, argument":    {[]string{"jobs", "list", "films"}, exitUsage, "films"},
		"jobs, state":       {[]string{"jobs", "--state", "done"}, exitUsage, "--state has \"done\""},
		"jobs, order":       {[]string{"jobs", "--sort", "name"}, exitUsage, "--sort must be one of"},
		"jobs, limit":       {[]string{"jobs", "--limit", "-1"}, exitUsage, "--limit must not be negative"},
		"show no job":       {[]string{"jobs", "show"}, exitUsage, "accepts 1 arg"},
		"watch too much":    {[]string{"jobs", "watch", "films", "--state", "running"}, exitUsage, "exclude a JOB"},
		"run nothing":       {[]string{"jobs", "run"}, exitUsage, "which jobs?"},
		"delete too much":   {[]string{"jobs", "delete", "films", "--user", "ann"}, exitUsage, "but not both"},
		"failures, both":    {[]string{"jobs", "failures", "films", "--transient"}, exitUsage, "exclude a JOB"},
		"pause nothing":     {[]string{"jobs", "pause"}, exitUsage, "which jobs? Name them"},
		"resume with none":  {[]string{"jobs", "resume", "_replicator", "--shares", "0"}, exitUsage, "--shares must be from 1 to 1000"},
		"top of no node":    {[]string{"top"}, exitUsage, "SETTEE_URL"},
		"verify for ever":   {[]string{"replicate", "http://h/a", "http://h/b", "--verify", "--continuous"}, exitUsage, "--verify and --continuous"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, errs, status := settee(t, test.args...)
			assert.Equal(t, test.status, status, errs)
			assert.Contains(t, errs, test.says)
			assert.NotContains(t, errs, "goroutine")
			assert.NotContains(t, errs, "s3cret")
		})
	}
}

func TestContinuousOverRestart(t *testing.T) {
	t.Parallel()
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		source, target := peer.DB(t, "restartsource"), peer.DB(t, "restarttarget")
		store := aStore(t)
		node := serveNode(t, store, "replicator/checkpoint_interval=3600000")

		body := fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true}`, source, target)
		answer := node.ask(http.StatusAccepted, http.MethodPost, "_replicate", body)
		var accepted struct {
			LocalID string `json:"_local_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(answer), &accepted))
		assert.Regexp(t, `^[0-9a-f]{32}\+continuous$`, accepted.LocalID)

		request(t, http.MethodPut, source+"/one", `{"n":1}`)
		require.Eventually(t, exists(t, target+"/one"), limit, 10*time.Millisecond)
		// From here the job only waits. A new document arrives before its next checkpoint, which is an hour away.
		request(t, http.MethodPut, source+"/two", `{"n":2}`)
		require.Eventually(t, exists(t, target+"/two"), limit, 5*time.Millisecond)

		// SIGTERM puts the job back, and the next process continues it at once.
		assert.Zero(t, node.end(syscall.SIGTERM))
		request(t, http.MethodPut, source+"/three", `{"n":3}`)
		node = serveNode(t, store)
		require.Eventually(t, exists(t, target+"/three"), limit, 10*time.Millisecond)
		answer = node.ask(http.StatusOK, http.MethodGet, "_scheduler/jobs/"+accepted.LocalID, "")
		assert.Contains(t, answer, `"type":"stopped"`)

		node.ask(http.StatusOK, http.MethodPost, "_replicate", strings.Replace(body, `"continuous"`, `"cancel":true,"continuous"`, 1))
		answer = node.ask(http.StatusOK, http.MethodGet, "_scheduler/jobs", "")
		assert.Contains(t, answer, `"total_rows":0`)
	})
}

func TestWrongSource(t *testing.T) {
	t.Parallel()
	couchtest.EachWithAdmin(t, func(t *testing.T, peer couchtest.Peer) {
		target := peer.DB(t, "target")
		bare, username, password := couchtest.Credentials(target)
		const wrong = "wr0ng-word"
		stranger := rand.Text()
		node := serveNode(t, "mem:", "log/level=debug", "replicator/retries_per_request=0")
		for name, test := range map[string]struct{ source, code, reason string }{
			"missing":           {target + "-nosuchdb", "db_not_found", "could not open " + bare + "-nosuchdb/"},
			"wrong credentials": {couchtest.As(target, stranger, wrong), "replication_auth_error", stranger},
			"no server":         {couchtest.As("http://127.0.0.1:1/db", username, password), "error", "GET http://127.0.0.1:1/db"},
		} {
			answer := node.ask(http.StatusInternalServerError, http.MethodPost, "_replicate", fmt.Sprintf(`{"source":%q,"target":%q}`, test.source, target))
			var failure struct{ Error, Reason string }
			require.NoError(t, json.Unmarshal([]byte(answer), &failure), name)
			assert.Equal(t, test.code, failure.Error, name)
			assert.Contains(t, failure.Reason, test.reason, name)
			assert.NotContains(t, answer, password, name)
			assert.NotContains(t, answer, wrong, name)
		}
		assert.NotContains(t, node.logged(), password)
		assert.NotContains(t, node.logged(), wrong)
	})
}

func TestRoles(t *testing.T) {
	t.Parallel()
	node := begin(t, "settee is running", []string{"COUCHDB_NODE_TYPE_API_FRONTEND=false"}, "serve", "--store", "mem:")
	assert.Empty(t, node.url, "a replication node listens on no address")
	assert.Zero(t, node.end(syscall.SIGTERM))
}

func TestOneStoreTwoNodes(t *testing.T) {
	t.Parallel()
	store := "pebble:" + filepath.Join(t.TempDir(), "data")
	serveNode(t, store)
	_, errs, status := settee(t, "serve", "--store", store, "--set", "chttpd/port=0", "--set", "admins/a=b")
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, errs, "FoundationDB")
}

func TestForeground(t *testing.T) {
	t.Parallel()
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		source, target := peer.DB(t, "foresource"), peer.DB(t, "foretarget")
		couchtest.Populate(t, source, couchtest.Population{Seed: 3, Docs: 50})

		out, errs, status := settee(t, "replicate", source, target)
		require.Zero(t, status, errs)
		assert.Regexp(t, `^completed: 50 documents read, 50 written, 0 refused in `, out)
		assert.Regexp(t, `replication id [0-9a-f]{32}\n`, errs)
		out, errs, status = settee(t, "replicate", source, target)
		require.Zero(t, status, errs)
		assert.Regexp(t, `^completed: 0 documents read, 0 written`, out)

		out, errs, status = settee(t, "replicate", source+"-nosuchdb", target, "--set", "replicator/retries_per_request=0")
		assert.Equal(t, exitFailed, status)
		assert.Contains(t, out, "failed: 0 documents read")
		assert.Contains(t, errs, "db_not_found: could not open")

		large := peer.DB(t, "forelarge")
		request(t, http.MethodPut, large+"/doc", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`)
		_, errs, status = settee(t, "replicate", large, target, "--set", "replicator/max_document_size=1048576")
		assert.Equal(t, exitFailed, status)
		assert.Contains(t, errs, "a document of more than 1048576 bytes, see [replicator] max_document_size")
		_, errs, status = settee(t, "replicate", large, target)
		assert.Zero(t, status, errs)

		live := begin(t, "replication id", nil, "replicate", source, target, "--continuous")
		request(t, http.MethodPut, source+"/late", `{}`)
		require.Eventually(t, exists(t, target+"/late"), limit, 10*time.Millisecond)
		assert.Equal(t, 130, live.end(syscall.SIGINT))
	})
}
