package frontend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend"
	"settee/frontend/internal/webtest"
	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
)

const configPath = "/_node/_local/_config"

// setConfig sets a value that is text.
func (n *node) setConfig(name, text string) webtest.Answer {
	n.Helper()
	body, err := json.Marshal(text)
	require.NoError(n, err)
	return n.Do(http.MethodPut, configPath+"/"+name, string(body))
}

// ask sends a request to a handler without a server.
func ask(h http.Handler, method, target, body string) webtest.Answer {
	out, r := httptest.NewRecorder(), httptest.NewRequest(method, target, strings.NewReader(body))
	r.SetBasicAuth(webtest.AdminName, webtest.AdminPassword)
	h.ServeHTTP(out, r)
	return webtest.Answer{Status: out.Code, Header: out.Header(), Body: out.Body.String()}
}

// says requires an answer that is a JSON string.
func says(t *testing.T, a webtest.Answer, text string) {
	t.Helper()
	require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	var got string
	require.NoError(t, json.Unmarshal([]byte(a.Body), &got))
	require.Equal(t, text, got)
}

func TestNodeName(t *testing.T) {
	t.Parallel()
	n := start(t)
	for _, path := range []string{"/_node/_local", "/_node/_local/", "/_node/node1.example", "/_node/node1%2Eexample"} {
		got := n.Get(path).Is(t, http.StatusOK)
		require.JSONEq(t, `{"name":"node1.example"}`, got.Body)
	}
	for _, path := range []string{"", "/_config", "/_config/log", "/_config/log/level"} {
		webtest.Refused(t, n.Get("/_node/other@127.0.0.1"+path), http.StatusNotFound, "not_found", "no such node: other@127.0.0.1")
	}
	webtest.Refused(t, n.Do(http.MethodPut, "/_node/other/_config/log/level", `"debug"`), http.StatusNotFound, "not_found", "no such node: other")
	webtest.Refused(t, n.Get("/_node"), http.StatusBadRequest, "bad_request", "Incomplete path to _node request")
	for _, path := range []string{"/_node/_local/_nothing", configPath + "/log/level/more", "/_config", "/_config/log/level"} {
		require.Equal(t, http.StatusNotFound, n.Get(path).Status, path)
	}
}

func TestReadConfig(t *testing.T) {
	t.Parallel()
	n := start(t, "replicator/max_jobs=7", "replicator.shares/a/_replicator=5", "admins/root="+webtest.Secret,
		"nouveau/url=http://u:"+webtest.Secret+"@host/", "chttpd_auth/secret="+webtest.Secret)
	var all map[string]map[string]string
	got := n.Get(configPath).Is(t, http.StatusOK)
	require.NoError(t, json.Unmarshal([]byte(got.Body), &all))
	require.Equal(t, "7", all["replicator"]["max_jobs"])
	require.Equal(t, "2", all["replicator"]["max_acceptors"])
	require.Equal(t, map[string]string{"root": "****", webtest.AdminName: "****"}, all["admins"])
	require.Equal(t, "****", all["chttpd_auth"]["secret"])
	require.Equal(t, map[string]string{"url": "http://****@host/"}, all["nouveau"])

	require.JSONEq(t, `{"a/_replicator":"5"}`, n.Get(configPath+"/replicator.shares").Body)
	require.JSONEq(t, `{}`, n.Get(configPath+"/nothing").Body)
	says(t, n.Get(configPath+"/replicator/max_jobs"), "7")
	says(t, n.Get("/_node/node1.example/_config/replicator/max_jobs"), "7")
	says(t, n.Get(configPath+"/replicator.shares/a%2F_replicator"), "5")
	says(t, n.Get(configPath+"/log/level"), "info")
	says(t, n.Get(configPath+"/admins/root"), "****")
	require.Equal(t, "\"info\"\n", n.Get(configPath+"/log/level").Body)
	require.Empty(t, n.Do(http.MethodHead, configPath+"/log/level", "").Body)
	for _, name := range []string{"log/nothing", "nothing/level", "couchdb/uuid"} {
		webtest.Refused(t, n.Get(configPath+"/"+name), http.StatusNotFound, "not_found", "unknown_config_value")
	}
}

func TestConfigMethods(t *testing.T) {
	t.Parallel()
	n := start(t)
	for path, allowed := range map[string]string{
		"": "GET,HEAD", "/log": "GET,HEAD", "/log/level": "DELETE,GET,HEAD,PUT", "/_reload": "POST",
	} {
		got := n.Do(http.MethodPatch, configPath+path, "")
		webtest.Refused(t, got, http.StatusMethodNotAllowed, "method_not_allowed", "Only "+allowed+" allowed")
		require.Equal(t, allowed, got.Header.Get("Allow"))
	}
}

// An administrator that could not log in is refused.
func TestAdministratorsThatAreRefused(t *testing.T) {
	t.Parallel()
	n := start(t)
	for name, password := range map[string]string{
		"a%3Ab": "word", "a": "-pbkdf2-word", "b": "-hashed-word", "c": "-pbkdf2:sha256-0a,salt,10",
	} {
		got := n.setConfig("admins/"+name, password)
		require.Equal(t, http.StatusBadRequest, got.Status, got.Body)
		require.Contains(t, got.JSON(t)["reason"], "[admins]")
		require.Equal(t, http.StatusNotFound, n.Get(configPath+"/admins/"+name).Status)
	}
	says(t, n.setConfig("admins/a", "word"), "")
	require.Equal(t, http.StatusOK, n.As("a:word", http.MethodGet, configPath, "").Status)
}

// What an operator has locked in a file cannot be changed in any way over HTTP. A list in the store can be changed if it
// has itself.
func TestConfigWhitelist(t *testing.T) {
	t.Parallel()
	const readOnly = "This config variable is read-only"
	n := start(t, `httpd/config_whitelist=[{log, level}, {vendor, "*"}]`)
	says(t, n.setConfig("log/level", "debug"), "info")
	says(t, n.setConfig("vendor/name", "x"), "")
	says(t, n.Do(http.MethodDelete, configPath+"/log/level", ""), "debug")
	for _, name := range []string{"log/file", "admins/more", "chttpd/config_whitelist", "httpd/config_whitelist", "replicator/max_jobs"} {
		webtest.Refused(t, n.setConfig(name, "[]"), http.StatusBadRequest, "modification_not_allowed", readOnly)
		webtest.Refused(t, n.Do(http.MethodDelete, configPath+"/"+name, ""), http.StatusBadRequest, "modification_not_allowed", readOnly)
	}
	webtest.Refused(t, n.setUp("enable_single_node", `,"username":"more","password":"x"`), http.StatusBadRequest, "modification_not_allowed", readOnly)
	require.Equal(t, http.StatusOK, n.Get(configPath+"/replicator/max_jobs").Status)

	n = start(t)
	webtest.Refused(t, n.setConfig("chttpd/config_whitelist", "[{log}]"), http.StatusBadRequest, "bad_request",
		`[chttpd] config_whitelist (request): "[{log}]" is refused: it must be a list such as [{log, level}, {replicator, "*"}], where "*" means all keys of a section`)
	says(t, n.setConfig("chttpd/config_whitelist", "[{chttpd, config_whitelist}]"), "")
	webtest.Refused(t, n.setConfig("log/level", "debug"), http.StatusBadRequest, "modification_not_allowed", readOnly)
	says(t, n.Do(http.MethodDelete, configPath+"/chttpd/config_whitelist", ""), "[{chttpd, config_whitelist}]")
	says(t, n.setConfig("log/level", "debug"), "info")
}

func TestChangeConfig(t *testing.T) {
	t.Parallel()
	n := start(t)
	says(t, n.setConfig("replicator/max_jobs", "7"), "500")
	says(t, n.Get(configPath+"/replicator/max_jobs"), "7")
	says(t, n.setConfig("replicator/max_jobs", " 8\n"), "7")
	require.Equal(t, 8, config.MaxJobs.Get(n.Config.Current()))
	says(t, n.setConfig("replicator.shares/a%2F_replicator", "200"), "")
	require.Equal(t, map[string]int{"a/_replicator": 200}, config.Shares.Get(n.Config.Current()))
	says(t, n.Do(http.MethodDelete, configPath+"/replicator/max_jobs", ""), "8")
	says(t, n.Get(configPath+"/replicator/max_jobs"), "500")
	gone := func(name string) {
		t.Helper()
		webtest.Refused(t, n.Do(http.MethodDelete, configPath+"/"+name, ""), http.StatusNotFound, "not_found", "unknown_config_value")
	}
	gone("replicator/max_jobs")
	gone("nothing/nothing")
	says(t, n.setConfig("replicator/max_jobs", "9"), "500")
	// An empty value is read as it was written, and has no effect.
	for _, name := range []string{"replicator/max_jobs", "cors/origins", "vendor/name"} {
		n.setConfig(name, "x") // max_jobs stays 9
		n.setConfig(name, "").Is(t, http.StatusOK)
		for range 2 {
			says(t, n.Get(configPath+"/"+name), "")
			says(t, n.setConfig(name, ""), "")
		}
		section, key, _ := strings.Cut(name, "/")
		require.Equal(t, "", n.Get(configPath + "/" + section).JSON(t)[key])
		require.Equal(t, 500, config.MaxJobs.Get(n.Config.Current()))
		says(t, n.Do(http.MethodDelete, configPath+"/"+name, ""), "")
		gone(name)
	}
	says(t, n.Get(configPath+"/replicator/max_jobs"), "500")
	webtest.Refused(t, n.Get(configPath+"/cors/origins"), http.StatusNotFound, "not_found", "unknown_config_value")
	says(t, n.setConfig("vendor/url", "http://u:"+webtest.Secret+"@host/"), "")
	says(t, n.setConfig("vendor/url", "x"), "http://****@host/")
}

// Setup tools end at the first answer that they do not like, and close the connections of their other requests.
func TestChangesOfConfigOutliveTheirClients(t *testing.T) {
	t.Parallel()
	n := start(t)
	hangUp := func(method, body string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, method, configPath+"/httpd/enable_cors", io.MultiReader(strings.NewReader(body), hangingUp(cancel)))
		r.SetBasicAuth(webtest.AdminName, webtest.AdminPassword)
		if body == "" { // it is not read
			cancel()
		}
		require.NotPanics(t, func() { n.handler.ServeHTTP(httptest.NewRecorder(), r) }, "the request was given up")
		require.ErrorIs(t, ctx.Err(), context.Canceled)
	}
	hangUp(http.MethodPut, `"true"`)
	says(t, n.Get(configPath+"/httpd/enable_cors"), "true")
	hangUp(http.MethodDelete, "")
	require.Equal(t, http.StatusNotFound, n.Get(configPath+"/httpd/enable_cors").Status)
}

// hangingUp is the end of a body. It cancels the request, whose client has sent everything.
type hangingUp context.CancelFunc

func (h hangingUp) Read([]byte) (int, error) {
	h()
	return 0, io.EOF
}

func TestRefusedConfig(t *testing.T) {
	t.Parallel()
	n := start(t)
	for name, reason := range map[string]string{
		"replicator/max_jobs":            "[replicator] max_jobs (request): \"lots\" is refused: it must be a whole number from 0 to 2147483647",
		"replicator/max_jbos":            "[replicator] max_jbos: it is not a setting",
		"replicator.shares/_replicator":  "[replicator.shares] _replicator (request): \"lots\" is refused: it must be a whole number from 0 to 1000",
		"settee/store":                   "[settee] store: it is read only when a node starts: set it in a file, the environment or a flag of each node",
		"chttpd/port":                    "[chttpd] port: it is read only when a node starts: set it in a file, the environment or a flag of each node",
		"chttpd_auth/password_scheme":    "[chttpd_auth] password_scheme: a secret that has no effect is not stored: new passwords are hashed with PBKDF2; existing simple hashes are accepted",
		"chttpd_auth/password_regexp":    "[chttpd_auth] password_regexp (request): \"lots\" is refused: it must be a list such as [{\".{10,}\", \"a password has 10 characters or more\"}, \"[0-9]\"], with \\\\ for a backslash",
		"x%5D/y":                         "the name of a section or a key has 1 to 1000 bytes of printable characters other than [ and ], and no space at its ends",
		"replicator/max_backoff_penalty": "[replicator] max_backoff_penalty: it is not a setting",
	} {
		webtest.Refused(t, n.setConfig(name, "lots"), http.StatusBadRequest, "bad_request", reason)
	}
	for body, reason := range map[string]string{
		"":         "invalid UTF-8 JSON",
		"{":        "invalid UTF-8 JSON",
		"\"\xff\"": "invalid UTF-8 JSON",
		"7":        "a JSON string expected",
		"null":     "a JSON string expected",
		`["7"]`:    "a JSON string expected",
		"true":     "a JSON string expected",
	} {
		webtest.Refused(t, n.Do(http.MethodPut, configPath+"/replicator/max_jobs", body), http.StatusBadRequest, "bad_request", reason)
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		webtest.Refused(t, n.Do(method, configPath+"/replicator/max_jobs", `"7"`, "X-Couch-Persist", "false"), http.StatusBadRequest, "bad_request",
			"X-Couch-Persist: false is not supported: values are kept in the store, and hold for all nodes")
	}
	webtest.Refused(t, n.Do(http.MethodPut, configPath+"/replicator/max_jobs", `"7"`, "Origin", "http://evil.example"),
		http.StatusForbidden, "forbidden", "the request comes from a page of another origin, which may not use this node")
	unchanged, _, err := config.Load(config.Options{Flags: webtest.Settings})
	require.NoError(t, err)
	require.Equal(t, unchanged.Shown(), n.Config.Current().Shown())
}

func TestReloadConfig(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "local.ini")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("[replicator]\nmax_jobs = 3")
	cfg, _, err := config.Load(config.Options{Files: []string{path}})
	require.NoError(t, err)
	db := webtest.Memory(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	live, err := config.OpenLive(t.Context(), cfg, config.LiveOptions{Store: db, Files: []string{path}})
	require.NoError(t, err)
	handler := frontend.New(frontend.Options{Accounts: onlyAdmin(t), Config: live, Log: zerolog.Nop()})
	reload := func() webtest.Answer { return ask(handler, http.MethodPost, configPath+"/_reload", "") }
	jobs := func() webtest.Answer { return ask(handler, http.MethodGet, configPath+"/replicator/max_jobs", "") }

	says(t, jobs(), "3")
	write("[replicator]\nmax_jobs = 4")
	require.JSONEq(t, `{"ok":true}`, reload().Body)
	says(t, jobs(), "4")
	write("[replicator]\nmax_jobs = x\n[log]\nlevel = y")
	got := reload()
	require.Equal(t, http.StatusBadRequest, got.Status)
	require.Contains(t, got.JSON(t)["reason"], path+`:2): "x" is refused`)
	require.Contains(t, got.JSON(t)["reason"], path+`:4): "y" is refused`)
	says(t, jobs(), "4")
}

func TestPrometheus(t *testing.T) {
	t.Parallel()
	type seen struct {
		method string
		status int
	}
	var observed []seen
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") })
	handler := frontend.New(frontend.Options{
		Accounts: onlyAdmin(t), Metrics: metrics, Node: "node1", Log: zerolog.Nop(),
		Observe: func(method string, status int, took time.Duration) {
			assert.GreaterOrEqual(t, took, time.Duration(0))
			observed = append(observed, seen{method, status})
		},
	})
	for _, path := range []string{"/_node/_local/_prometheus", "/_node/node1/_prometheus/"} {
		require.Equal(t, "up 1\n", ask(handler, http.MethodGet, path, "").Body)
	}
	require.Equal(t, http.StatusMethodNotAllowed, ask(handler, http.MethodPost, "/_node/_local/_prometheus", "").Status)
	require.Equal(t, http.StatusNotFound, ask(handler, http.MethodGet, "/_node/other/_prometheus", "").Status)
	require.Equal(t, []seen{{"GET", 200}, {"GET", 200}, {"POST", 405}, {"GET", 404}}, observed)

	none := frontend.New(frontend.Options{Accounts: onlyAdmin(t), Log: zerolog.Nop()})
	require.Equal(t, http.StatusNotFound, ask(none, http.MethodGet, "/_node/_local/_prometheus", "").Status)
}

// A frontend that has no configuration has every setting's default.
func TestNoConfig(t *testing.T) {
	t.Parallel()
	handler := frontend.New(frontend.Options{Accounts: onlyAdmin(t), Log: zerolog.Nop()})
	says(t, ask(handler, http.MethodGet, configPath+"/log/level", ""), "info")
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		webtest.Refused(t, ask(handler, method, configPath+"/log/level", `"debug"`), http.StatusNotImplemented, "not_implemented",
			"the configuration of this node cannot be changed")
	}
}

// shared is a store that several nodes close.
type shared struct{ kv.Database }

func (shared) Close() error { return nil }

// What is set at one node holds for every later request at the others.
func TestConfigReachesOtherNodes(t *testing.T) {
	t.Parallel()
	db := webtest.Memory(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	one := startOn(t, shared{db}, webtest.ListenTCP(t))
	other := startOn(t, shared{faultkv.Wrap(db, faultkv.Options{Script: faultkv.UnknownOnce})}, webtest.ListenTCP(t))
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	for _, n := range []*node{one, other} {
		following.Go(func() { assert.ErrorIs(t, n.Config.Run(ctx), context.Canceled) })
	}
	defer following.Wait()
	defer cancel()
	// settled returns when a node has a value.
	settled := func(n *node, section, key, text string) {
		t.Helper()
		for {
			changed := n.Config.Changed()
			if n.Config.Current().Shown()[section][key] == text {
				return
			}
			select {
			case <-changed:
			case <-t.Context().Done():
				require.Fail(t, "the change has not come")
			}
		}
	}

	uuids := func(n *node) int { return n.Get("/_uuids?count=3").Status }
	require.Equal(t, http.StatusOK, uuids(other))
	says(t, one.setConfig("uuids/max_count", "2"), "1000")
	require.Equal(t, http.StatusBadRequest, uuids(one), "at once where it was set")
	settled(other, "uuids", "max_count", "2")
	require.Equal(t, http.StatusBadRequest, uuids(other))
	says(t, other.Do(http.MethodDelete, configPath+"/uuids/max_count", ""), "2")
	settled(one, "uuids", "max_count", "1000")
	require.Equal(t, http.StatusOK, uuids(one))

	require.Equal(t, http.StatusCreated, one.Do(http.MethodPut, "/db", "").Status)
	document := `{"text":"` + strings.Repeat("x", 200) + `"}`
	says(t, one.setConfig("couchdb/max_document_size", "100"), "8000000")
	settled(other, "couchdb", "max_document_size", "100")
	require.Equal(t, http.StatusRequestEntityTooLarge, other.Do(http.MethodPut, "/db/a", document).Status)
	require.Equal(t, http.StatusRequestEntityTooLarge, other.Do(http.MethodPut, "/db/_local/a", document).Status)
	require.Contains(t, other.Do(http.MethodPost, "/db/_bulk_docs", `{"docs":[`+document+`]}`, "Content-Type", "application/json").Body, "too_large")
	says(t, one.setConfig("couchdb/max_document_size", "1000"), "100")
	settled(other, "couchdb", "max_document_size", "1000")
	require.Equal(t, http.StatusCreated, other.Do(http.MethodPut, "/db/a", document).Status)

	says(t, one.setConfig("replicator/valid_endpoint_protocols", "https"), "http,https")
	settled(other, "replicator", "valid_endpoint_protocols", "https")
	require.Equal(t, http.StatusBadRequest, other.post(definition("")).Status)
}

// Values that are set at once, at two nodes, are set one after the other.
func TestConcurrentChangesOfConfig(t *testing.T) {
	t.Parallel()
	db := webtest.Memory(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	var mu sync.Mutex
	olds := map[string]bool{}
	var setting sync.WaitGroup
	for i := range 2 {
		n := startOn(t, shared{faultkv.Wrap(db, faultkv.Options{Seed: uint64(i), Rates: faultkv.Rates{
			faultkv.Conflict: 0.2, faultkv.UnknownCommitted: 0.3, faultkv.UnknownNotCommitted: 0.1,
		}})}, webtest.ListenTCP(t))
		for j := range 10 {
			setting.Go(func() {
				a, err := n.Request(http.MethodPut, configPath+"/replicator/max_jobs", fmt.Sprintf("%q", fmt.Sprint(100*i+j)))
				mu.Lock()
				defer mu.Unlock()
				if assert.NoError(t, err) && assert.Equal(t, http.StatusOK, a.Status, "%s", a.Body) {
					assert.False(t, olds[a.Body], "%s", a.Body)
					olds[a.Body] = true
				}
			})
		}
	}
	setting.Wait()
	require.Len(t, olds, 20)
	require.True(t, olds["\"500\"\n"])
}

// unwritable is a configuration whose store fails.
type unwritable struct{ frontend.Configuration }

func (unwritable) Current() *config.Config { return new(config.Config) }

func (unwritable) Set(context.Context, string, string, string, ...config.Check) (string, error) {
	return "", errors.New("no quorum at http://u:" + webtest.Secret + "@host/")
}

func (unwritable) Delete(context.Context, string, string, ...config.Check) (string, error) {
	return "", fmt.Errorf("writing: %w", context.DeadlineExceeded)
}

func TestConfigWithoutAStore(t *testing.T) {
	t.Parallel()
	log := new(webtest.Journal)
	handler := frontend.New(frontend.Options{Accounts: onlyAdmin(t), Config: unwritable{}, Log: zerolog.New(log)})
	put := ask(handler, http.MethodPut, configPath+"/replicator/max_jobs", `"7"`)
	require.Equal(t, http.StatusInternalServerError, put.Status)
	require.NotContains(t, put.Body, "quorum")
	lines, _ := log.Lines()
	require.Contains(t, lines, "no quorum")
	require.NotContains(t, lines, webtest.Secret)
	webtest.Refused(t, ask(handler, http.MethodDelete, configPath+"/replicator/max_jobs", ""),
		http.StatusServiceUnavailable, "service_unavailable", "the store did not answer within 30s")
}
