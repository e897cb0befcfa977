package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/memkv"
	"settee/pkg/kv/pebblekv"
	"settee/replicator"
)

// plantedStore is the store of a node under test. It fails or panics on demand, only in requests.
type plantedStore struct {
	kv.Database
	fault atomic.Pointer[func()] // nil: none
}

func (s *plantedStore) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	if fault := s.fault.Load(); fault != nil && zerolog.Ctx(ctx).GetLevel() != zerolog.Disabled {
		var failed error
		func() {
			defer func() {
				if reason := recover(); reason != nil {
					if err, is := reason.(storeError); is {
						failed = err
						return
					}
					panic(reason)
				}
			}()
			(*fault)()
		}()
		return failed
	}
	return s.Database.Transact(ctx, fn)
}

type storeError struct{ error }

// plantedEngine registers what opens a store under a URL, and returns the URL.
func plantedEngine(open func(kv.Options) (kv.Database, error)) string {
	scheme := fmt.Sprintf("planted%d", plantedEngines.Add(1))
	kv.Register(scheme, kv.Engine{
		Open: func(_ context.Context, _ *url.URL, opts kv.Options) (kv.Database, error) { return open(opts) },
	})
	return scheme + ":"
}

var plantedEngines atomic.Int64

// plantedNode is a node with all roles in this process, with everything that was seen of it.
type plantedNode struct {
	*testing.T
	m     *marks
	store *plantedStore
	log   *testkit.Journal
	url   string
	stop  func()

	mu   sync.Mutex
	seen map[string]string // text by the place where it was seen
}

// startPlanted starts a node on a store.
func startPlanted(t *testing.T, m *marks, db kv.Database, sets ...string) *plantedNode {
	store := &plantedStore{Database: db}
	n := &plantedNode{T: t, m: m, store: store, log: &testkit.Journal{}, seen: map[string]string{}}
	cfg, warnings, err := config.Load(config.Options{
		Environ: []string{"COUCHDB_USER=admin", "COUCHDB_PASSWORD=" + m.all()["admin-environment"]},
		Flags: append([]string{
			"chttpd/port=0", "chttpd_auth/iterations=10", "log/level=debug", "settee/grace_period_sec=5",
			"admins/second=" + m.all()["admin-flag"], "chttpd_auth/secret=" + m.all()["cookie-secret"],
			"jwt_keys/hmac:a=" + base64.StdEncoding.EncodeToString([]byte(m.all()["jwt-key"])),
			"chttpd/authentication_handlers={chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}, {chttpd_auth, jwt_authentication_handler}",
			"replicator/retries_per_request=1", "replicator/min_backoff_penalty_sec=3600", "replicator/connection_timeout=2000",
			"replicator/password=" + m.all()["key-password"], "replicator/valid_endpoint_protocols_log=true",
			"replicator.watches/https://watched.example/=u:" + m.all()["watch-login"],
			"nouveau/url=http://u:" + m.all()["setting-url"] + "@search.example.org", "other/api_token=" + m.all()["setting-token"],
			"chttpd_auth_lockout/mode=warn", "ibm/token_url=https://127.0.0.1:1/token",
		}, sets...),
		Store: plantedEngine(func(kv.Options) (kv.Database, error) { return store, nil }),
	})
	require.NoError(t, err)
	var printed bytes.Buffer
	require.NoError(t, cfg.WriteINI(&printed))
	n.saw("settee config", printed.String())
	n.saw("warnings", fmt.Sprint(warnings))
	zerolog.SetGlobalLevel(zerolog.DebugLevel)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		// Not the command's log, because its filter would hide leaks.
		assert.NoError(t, (&node{cfg: cfg, log: zerolog.New(n.log)}).run(ctx))
	})
	n.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		zerolog.SetGlobalLevel(zerolog.TraceLevel)
	})
	t.Cleanup(n.stop)
	listens := regexp.MustCompile(`"url":"(http://[^"]+)"`)
	require.Eventually(t, func() bool { return strings.Contains(n.log.String(), "settee is running") }, limit, 5*time.Millisecond)
	n.url = listens.FindStringSubmatch(n.log.String())[1]
	return n
}

func (n *plantedNode) saw(where, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen[where] += text + "\n"
}

// by is the user of a request.
type by struct{ user, password string }

// do makes a request and adds the answer to what was seen.
func (n *plantedNode) do(who by, method, path, body string, header ...string) (int, string) {
	n.Helper()
	status, answer, shown := n.ask(who, method, path, body, header...)
	n.saw(fmt.Sprintf("the answer to %s of %s %s", who.user, method, strings.SplitN(path, "?", 2)[0]), shown)
	return status, answer
}

// ask makes a request whose answer may contain its owner's secrets.
func (n *plantedNode) ask(who by, method, path, body string, header ...string) (status int, answer, shown string) {
	n.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, n.url+path, strings.NewReader(body))
	require.NoError(n, err)
	r.Header.Set("Content-Type", "application/json")
	if who.user != "" {
		r.SetBasicAuth(who.user, who.password)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(n, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(n, err)
	return response.StatusCode, string(text), fmt.Sprint(response.Header) + "\n" + string(text)
}

// clean fails the test if a secret was seen anywhere.
func (n *plantedNode) clean() {
	n.Helper()
	n.saw("the log", n.log.String())
	for where, text := range n.seen {
		if found := n.m.in(text); !assert.Empty(n, found, "in %s", where) {
			for line := range strings.SplitSeq(text, "\n") {
				if len(n.m.in(line)) > 0 {
					n.Logf("%s: %.1000s", where, line)
				}
			}
		}
	}
}

// atRest returns the fields whose secrets a store contains, in any key or value.
func atRest(t *testing.T, m *marks, db kv.Database) []string {
	t.Helper()
	var found []string
	for r := (kv.KeyRange{End: []byte{0xff}}); ; {
		pairs, err := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
			return tx.Snapshot().GetRange(r, kv.RangeOptions{Limit: 500}).Slice()
		})
		require.NoError(t, err)
		for _, pair := range pairs {
			for _, field := range m.in(string(pair.Key) + " " + string(pair.Value)) {
				if !slices.Contains(found, field) {
					found = append(found, field)
				}
			}
		}
		if len(pairs) < 500 {
			break
		}
		r.Begin = kv.KeyAfter(pairs[len(pairs)-1].Key)
	}
	slices.Sort(found)
	return found
}

// definition returns a replication with a secret in each field that can have one.
func plantedDefinition(m *marks, source, target, more string) string {
	withUser := func(text, field string) string {
		return strings.Replace(text, "://", "://u:"+m.plant(field)+"@", 1)
	}
	return fmt.Sprintf(`{
		"source": {"url": %q, "headers": {"Cookie": "a=%s", "X-Api-Key": %q, "X-Any": %q}},
		"target": {"url": %q, "auth": {"basic": {"username": "u", "password": %q}}, "headers": {"Authorization": "Bearer %s"}}%s}`,
		withUser(source, "source-url"), m.plant("source-cookie"), m.plant("source-api-key"), m.plant("source-any-header"),
		target, m.plant("target-auth"), m.plant("target-bearer"), more)
}

// TestPlantedSecrets plants secrets in all fields that can have them, causes every kind of failure, and searches for
// them in all output and in the store.
func TestPlantedSecrets(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	memory := func(t *testing.T) kv.Database {
		db, err := memkv.Open(memkv.Options{})
		require.NoError(t, err)
		return db
	}
	t.Run("memkv", func(t *testing.T) {
		t.Parallel()
		plantedSecrets(t, memory(t), true)
	})
	t.Run("memkv without keys", func(t *testing.T) {
		t.Parallel()
		plantedSecrets(t, memory(t), false)
	})
	t.Run("pebblekv", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "data")
		db, err := pebblekv.Open(dir, pebblekv.Options{})
		require.NoError(t, err)
		m := plantedSecrets(t, db, true)
		files := os.DirFS(dir)
		require.NoError(t, fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				var text []byte
				text, err = fs.ReadFile(files, path)
				assert.Empty(t, m.in(string(text)), path)
			}
			return err
		}))
	})
}

func plantedSecrets(t *testing.T, db kv.Database, withKeys bool) *marks {
	m := &marks{}
	for _, field := range []string{
		"admin-environment", "admin-flag", "cookie-secret", "jwt-key", "key-password", "setting-url", "setting-token", "watch-login",
	} {
		m.plant(field)
	}
	var sets []string
	if withKeys {
		file := newKeyFile(t, "a")
		key := m.plant("key--of-32-bytes") // it has 32 bytes
		require.Len(t, []byte(key + "-------")[:32], 32)
		key = string([]byte(key + "-------")[:32])
		require.NoError(t, os.WriteFile(file.path, []byte("a "+base64.StdEncoding.EncodeToString([]byte(key))+"\n"), 0o600))
		sets = append(sets, file.set())
	}
	faulty := faultkv.Wrap(db, faultkv.Options{Seed: 1, Rates: faultkv.Rates{
		faultkv.Conflict: 0.005, faultkv.UnknownCommitted: 0.005, faultkv.UnknownNotCommitted: 0.005,
	}})
	n := startPlanted(t, m, faulty, sets...)
	n.users()
	stored := append(n.replications(), n.secondFactors()...)
	n.requests()
	n.settings()
	n.panics()
	n.observe()

	found := atRest(t, m, db)
	if withKeys {
		assert.Empty(t, found, "in the store")
	} else {
		for _, field := range append(stored, "stored-cookie-secret", "stored-key-password", "stored-watch-login") {
			assert.Contains(t, found, field, "the test would not see it")
		}
	}
	n.stop()
	n.clean()
	return m
}

func (n *plantedNode) admin() by { return by{"admin", n.m.all()["admin-environment"]} }
func (n *plantedNode) owner() by { return by{"owner", n.m.all()["owner-password"]} }
func (n *plantedNode) other() by { return by{"other", n.m.all()["other-password"]} }

// users creates two users, neither of which may see the other's data.
func (n *plantedNode) users() {
	for _, name := range []string{"owner", "other"} {
		status, answer := n.do(n.admin(), http.MethodPut, "_users/org.couchdb.user:"+name,
			fmt.Sprintf(`{"type":"user","name":%q,"roles":[],"password":%q}`, name, n.m.plant(name+"-password")))
		require.Equal(n, http.StatusCreated, status, answer)
	}
	status, answer := n.do(n.admin(), http.MethodPut, "_replicator/_security", `{"members":{"names":["owner","other"]}}`)
	require.Equal(n, http.StatusOK, status, answer)
}

// secondFactors creates users with keys of one-time passwords, in revisions of all kinds. It returns the fields that
// the store must hold.
func (n *plantedNode) secondFactors() (stored []string) {
	status, answer := n.do(n.admin(), http.MethodPut, "x%2F_users", "")
	require.Equal(n, http.StatusCreated, status, answer)
	put := func(field, path, revision string) {
		n.Helper()
		stored = append(stored, field)
		status, answer := n.do(n.admin(), http.MethodPut, path, fmt.Sprintf(
			`{%s"type":"user","name":"totp","roles":[],"password":%q,"totp":{"key":%q}}`, revision, n.m.plant("totp-password"), n.m.plant(field)))
		require.Equal(n, http.StatusCreated, status, answer)
	}
	for i, database := range []string{"_users", "x%2F_users"} {
		path := database + "/org.couchdb.user:totp"
		put(fmt.Sprint("totp-old-key-", i), path, "")
		_, answer := n.do(n.admin(), http.MethodGet, database+"/_all_docs?keys=[%22org.couchdb.user:totp%22]", "")
		rev := regexp.MustCompile(`"rev":"([^"]+)"`).FindStringSubmatch(answer)
		require.NotNil(n, rev, answer)
		stored = stored[:len(stored)-1] // the next revision replaces it
		put(fmt.Sprint("totp-key-", i), path, fmt.Sprintf(`"_rev":%q,`, rev[1]))
		put(fmt.Sprint("totp-conflict-", i), path+"?new_edits=false", `"_rev":"2-00000000000000000000000000000000",`)
		put(fmt.Sprint("totp-local-", i), database+"/_local/totp", "")
	}
	return stored
}

// replications runs a replication for each way in which a peer fails. It returns the fields of one whose secrets must
// be stored.
func (n *plantedNode) replications() (stored []string) {
	peer := hostilePeer(n.T, n.m)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	secure.StartTLS()
	n.Cleanup(secure.Close)
	const noServer = "127.0.0.1:1" // no system gives this port to a test's server

	good := peer.URL + "/good/x"
	filter := func() string {
		return fmt.Sprintf(`,"filter":"d/f","query_params":{"token":%q}`, n.m.plant("query-param"))
	}
	proxy := func(scheme, address string) string {
		return fmt.Sprintf(`,"source_proxy":"%s://u:%s@%s"`, scheme, n.m.plant("source-proxy"), address)
	}
	hostile := strings.TrimPrefix(peer.URL, "http://")
	cases := map[string]string{
		"refused":        plantedDefinition(n.m, "http://"+noServer+"/x", good, ""),
		"unresolved":     plantedDefinition(n.m, "http://nobody.invalid/x", good, ""),
		"untrusted":      plantedDefinition(n.m, secure.URL+"/x", good, ""),
		"root":           plantedDefinition(n.m, peer.URL, good, ""),
		"not TLS":        plantedDefinition(n.m, "https://"+hostile+"/x/y", good, ""),
		"denied":         plantedDefinition(n.m, "http://169.254.169.254/x", good, ""),
		"proxy refuses":  plantedDefinition(n.m, "https://source.invalid/x", good, proxy("http", hostile)),
		"proxy answers":  plantedDefinition(n.m, "http://source.invalid/status500/x", good, proxy("http", hostile)),
		"proxy not TLS":  plantedDefinition(n.m, "http://source.invalid/x", good, proxy("https", hostile)),
		"no proxy":       plantedDefinition(n.m, "http://source.invalid/x", good, proxy("http", noServer)),
		"no SOCKS proxy": plantedDefinition(n.m, "http://source.invalid/x", good, proxy("socks5", noServer)),
		"socks is none":  plantedDefinition(n.m, "http://source.invalid/x", good, proxy("socks5", hostile)),
		"target proxy":   plantedDefinition(n.m, good, "http://target.invalid/status403/x", fmt.Sprintf(`,"target_proxy":"http://u:%s@%s"`, n.m.plant("target-proxy"), hostile)),
		"target fails":   plantedDefinition(n.m, good, peer.URL+"/status500/x", ""),
		// It must complete, on a busy machine as well.
		"target refuses": plantedDefinition(n.m, good, good, fmt.Sprintf(`,"connection_timeout":%d`, limit.Milliseconds())),
		"target crashes": plantedDefinition(n.m, good, peer.URL+"/bulk-docs-crash/x", ""),
		"target created": plantedDefinition(n.m, good, peer.URL+"/status404/x", `,"create_target":true`),
		"target denied":  plantedDefinition(n.m, good, peer.URL+"/create-refused/x", `,"create_target":true`),
		"writes refused": plantedDefinition(n.m, good, peer.URL+"/bulk-docs-refused/x", ""),
		"filter refused": plantedDefinition(n.m, peer.URL+"/changes-refused/x", good, filter()),
		"filter code":    plantedDefinition(n.m, peer.URL+"/filter-code/x", good, filter()),
		"filter crash":   plantedDefinition(n.m, peer.URL+"/filter-crash/x", good, filter()),
		"feed of filter": plantedDefinition(n.m, peer.URL+"/bad-row/x", good, filter()),
	}
	for _, kind := range []string{
		"status401", "status403", "status404", "status429", "status500", "text", "page", "elsewhere", "circle", "nowhere", "malformed", "hang",
		"login-refused", "session", "bad-row", "late-error", "bulk-get-error", "sequence", "changes-refused",
	} {
		cases[kind] = plantedDefinition(n.m, peer.URL+"/"+kind+"/x", good, "")
		if kind == "status429" {
			continue // they would wait for each other
		}
		// The same with a login.
		cases[kind+" with a session"] = fmt.Sprintf(`{"source":"http://u:%s@%s/%s/y","target":"http://u:%s@%s/good/y"}`,
			n.m.plant("session-source"), hostile, kind, n.m.plant("session-target"), hostile)
	}

	// The same with access tokens, and with a server of tokens that does so.
	withToken := func(database, auth string) string {
		return fmt.Sprintf(`{"source":{"url":"%s/%s/z","auth":%s},"target":%q}`, peer.URL, database, auth, good)
	}
	client := func(kind string) string {
		return fmt.Sprintf(`{"oauth2":{"token_url":"%s/%s/token","client_id":"me","client_secret":%q}}`, peer.URL, kind, n.m.plant("client-secret"))
	}
	for _, kind := range []string{"status401", "status403", "status404", "status429", "status500", "text", "page", "elsewhere", "nowhere", "malformed", "hang"} {
		cases["tokens of "+kind] = withToken("good", client(kind))
		if kind != "status429" {
			cases[kind+" with a token"] = withToken(kind, client("token"))
		}
	}
	cases["API key"] = withToken("good", fmt.Sprintf(`{"ibm":{"iam":{"api_key":%q}}}`, n.m.plant("ibm-key")))

	var posting sync.WaitGroup
	for name, definition := range cases {
		id := url.PathEscape(name)
		status, answer := n.do(n.owner(), http.MethodPut, "_replicator/"+id, definition)
		require.Equal(n, http.StatusCreated, status, "%s: %s", name, answer)
		if name == "filter code" || name == "status429" {
			continue // it would wait for the retry
		}
		once := strings.TrimSuffix(definition, "}") + `,"winning_revs_only":true}` // a different replication id
		posting.Go(func() {
			_, answer, shown := n.ask(n.owner(), http.MethodPost, "_replicate", once)
			n.saw("the answer to _replicate, "+name, shown+answer)
		})
	}
	// While requests are repeated, the listings show the reason.
	for range 20 {
		n.do(n.admin(), http.MethodGet, "_scheduler/jobs?limit=1000", "")
		n.do(n.admin(), http.MethodGet, "_active_tasks", "")
	}
	posting.Wait()
	for name := range cases {
		require.Eventually(n, func() bool {
			status, answer := n.do(n.admin(), http.MethodGet, "_scheduler/docs/_replicator/"+url.PathEscape(name), "")
			return status == http.StatusOK && regexp.MustCompile(`"state":"(crashing|failed|completed)"`).MatchString(answer)
		}, limit, 20*time.Millisecond, name)
	}
	// A job that fails for good, because another job has its replication id.
	status, answer := n.do(n.owner(), http.MethodPut, "_replicator/twin", cases["changes-refused"])
	// A conflict means that it was written, the result was not known, and its job has changed the document since.
	require.Contains(n, []int{http.StatusCreated, http.StatusConflict}, status, answer)
	require.Eventually(n, func() bool {
		_, answer := n.do(n.admin(), http.MethodGet, "_scheduler/docs/_replicator/twin", "")
		return strings.Contains(answer, `"state":"failed"`)
	}, limit, 20*time.Millisecond)
	return []string{
		"source-url", "source-cookie", "source-api-key", "source-any-header", "target-auth", "target-bearer", "query-param", "source-proxy", "target-proxy",
		"session-source", "session-target", "client-secret", "ibm-key",
	}
}

// requests makes requests that are refused, with secrets in all their parts.
func (n *plantedNode) requests() {
	plant := n.m.plant
	definitions := []string{
		`{"source":"http://u:%s@h h/x","target":"http://h/y"}`, `{"source":"u:%s@h/x","target":"http://h/y"}`,
		`{"source":"ftp://u:%s@h/x","target":"http://h/y"}`, `{"source":"http://u:%s@h:99999/x","target":"http://h/y"}`,
		`{"source":"http://u:%s@","target":"http://h/y"}`, `{"source":"http://u:%s@h/x?y=z","target":"http://h/y"}`,
		`{"source":{"url":"http://h/x","auth":{"basic":{"username":"u","password":["%s"]}}},"target":"http://h/y"}`,
		`{"source":{"url":"http://h/x","auth":"%s"},"target":"http://h/y"}`,
		`{"source":{"url":"http://h/x","auth":{"ibm":"%s"}},"target":"http://h/y"}`,
		`{"source":{"url":"http://h/x","auth":{"ibm":{"apikey":"%s"}}},"target":"http://h/y"}`,
		`{"source":{"url":"http://h/x","auth":{"oauth2":{"client_id":"me","client_secret":"%s"}}},"target":"http://h/y"}`,
		`{"source":{"url":"http://h/x","auth":{"oauth2":{"token_url":"http://u:%s@h/","client_id":"me","client_secret":"x"}}},"target":"http://h/y"}`,
		`{"source":{"url":"http://h/x","headers":{"X-Token":["%s"]}},"target":"http://h/y"}`,
		`{"source":{"url":"http://h/x","headers":{"X-Token":"%s\n"}},"target":"http://h/y"}`,
		`{"source":{"url":"http://h/x","headers":{"Authorization":"Basic %s"}},"target":"http://h/y"}`,
		`{"source":"http://h/x","target":"http://h/y","source_proxy":"http://u:%s@"}`,
		`{"source":"http://h/x","target":"http://h/y","source_proxy":"ftp://u:%s@h"}`,
		`{"source":"http://h/x","target":"http://h/y","query_params":"%s"}`,
		`{"source":"http://h/x","target":"http://h/y","worker_processes":"%s"}`,
		`{"source":"http://h/x","target":"http://h/y","doc_ids":"%s"}`,
		`{"source":"http://h/x","target":"http://h/y","filter":"%s"`,
		`{"source":"http://h/x","target":"http://h/y","cancel":"%s"}`,
		`"%s"`, `%s`,
	}
	for i, definition := range definitions {
		body := fmt.Sprintf(definition, plant("bad-definition"))
		status, answer := n.do(n.owner(), http.MethodPut, fmt.Sprintf("_replicator/bad%d", i), body)
		assert.GreaterOrEqual(n, status, 400, "%s: %s", body, answer)
		status, answer = n.do(n.owner(), http.MethodPost, "_replicate", body)
		assert.GreaterOrEqual(n, status, 400, "%s: %s", body, answer)
		n.do(n.owner(), http.MethodPost, "_replicator/_bulk_docs", `{"docs":[`+body+`]}`)
	}
	for _, who := range []by{{"owner", plant("wrong-password")}, {"nobody", plant("unknown-password")}, {"admin", plant("wrong-admin-password")}} {
		status, _ := n.do(who, http.MethodGet, "_session", "")
		assert.Equal(n, http.StatusUnauthorized, status)
	}
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"x","own":"`+plant("token-claim")+`"}`)) + "." + plant("token-signature")
	for _, header := range [][]string{
		{"Authorization", "Bearer " + token}, {"Authorization", "Bearer " + plant("bearer")}, {"Authorization", "Basic " + plant("malformed-basic")},
		{"Authorization", "Digest " + plant("digest")}, {"Cookie", "AuthSession=" + plant("cookie")},
		{"Cookie", "AuthSession=" + base64.RawURLEncoding.EncodeToString([]byte("owner:FFFFFFFF:"+plant("forged-cookie")))},
		{"X-Auth-CouchDB-Token", plant("proxy-token")}, {"Proxy-Authorization", plant("proxy-authorization")}, {"X-Api-Key", plant("own-header")},
	} {
		n.do(by{}, http.MethodGet, "_session", "", header...)
		n.do(by{}, http.MethodGet, "_all_dbs", "", header...)
	}
	for body, kind := range map[string]string{
		`{"name":"owner","password":"` + plant("session-password") + `"}`:         "application/json",
		`{"name":"owner","password":["` + plant("session-list") + `"]}`:           "application/json",
		`{"name":"owner","password":"` + plant("session-cut"):                     "application/json",
		"name=owner&password=" + plant("session-form"):                            "application/x-www-form-urlencoded",
		"name=owner&password=" + plant("session-broken-form") + "%zz":             "application/x-www-form-urlencoded",
		"name=owner&password=" + plant("session-text"):                            "text/plain",
		`{"name":"` + plant("name-that-is-a-password") + `x","password":"wrong"}`: "text/plain",
	} {
		status, _ := n.do(by{}, http.MethodPost, "_session", body, "Content-Type", kind)
		assert.GreaterOrEqual(n, status, 400, body)
	}
	for _, body := range []string{
		`{"type":"user","name":"x","roles":["_admin"],"password":"%s"}`, `{"type":"user","name":"x","roles":[],"password":["%s"]}`,
		`{"type":"user","name":"y","roles":[],"password":"%s"}`, `{"type":"user","name":"x","roles":"%s"}`, `{"type":"user","password":"%s"`,
		`{"type":"user","name":"x","roles":[],"password":"ok","derived_key":"%s","_rev":"x"}`,
	} {
		body = fmt.Sprintf(body, plant("bad-user"))
		status, _ := n.do(n.admin(), http.MethodPut, "_users/org.couchdb.user:x", body)
		assert.GreaterOrEqual(n, status, 400, body)
		n.do(n.owner(), http.MethodPut, "_users/org.couchdb.user:owner", body)
	}
	n.do(by{}, http.MethodGet, "_scheduler/jobs/http:%2F%2Fu:"+plant("path")+"@h%2F", "")
	n.do(n.admin(), http.MethodGet, "_scheduler/jobs?limit="+plant("query"), "")
	n.do(n.owner(), http.MethodGet, "_replicator/_changes?limit="+plant("query"), "")
	n.do(n.owner(), http.MethodGet, "_replicator/_changes?include_docs="+plant("query"), "")
	n.do(n.admin(), http.MethodGet, "_scheduler/jobs?password="+plant("unknown-query"), "")
}

// settings changes and reads the configuration.
func (n *plantedNode) settings() {
	plant, path := n.m.plant, "_node/_local/_config/"
	put := func(name, value string) (int, string) {
		text, err := json.Marshal(value)
		require.NoError(n, err)
		return n.do(n.admin(), http.MethodPut, path+name, string(text))
	}
	for name, value := range map[string]string{
		"jwt_keys/hmac:b":     base64.StdEncoding.EncodeToString([]byte(plant("stored-jwt-key"))),
		"replicator/password": plant("stored-key-password"),
		"replicator.watches/https:%2F%2Fwatched.example%2F": "u:" + plant("stored-watch-login"),
		"admins/third":       plant("stored-admin"),
		"nouveau/url":        "http://u:" + plant("stored-url") + "@search.example.org",
		"chttpd_auth/secret": plant("stored-cookie-secret"),
	} {
		if name == "nouveau/url" {
			continue // not a secret by its name, and stored unchanged; see docs/security.md
		}
		for range 2 {
			status, answer := put(name, value)
			assert.Equal(n, http.StatusOK, status, "%s: %s", name, answer)
		}
		status, _ := n.do(n.admin(), http.MethodGet, path+name, "")
		assert.Equal(n, http.StatusOK, status, name)
	}
	for name, value := range map[string]string{
		"jwt_keys/hmac:c": "\n" + plant("bad-jwt-key") + "\nx", "secrets/key_file": plant("key-file"), "replicator/api_token": plant("unknown-secret"),
		"replicator/cert_password": plant("no-setting"),
		"settee/store":             "fdb://u:" + plant("store-url") + "@h/",
	} {
		put(name, value)
		n.do(n.admin(), http.MethodDelete, path+name, "")
	}
	n.do(n.admin(), http.MethodPut, path+"jwt_keys/hmac:d", `["`+plant("setting-list")+`"]`)
	n.do(n.admin(), http.MethodPut, path+"jwt_keys/hmac:d", `"`+plant("setting-cut"))
	n.do(n.admin(), http.MethodGet, "_node/_local/_config", "")
	n.do(n.admin(), http.MethodDelete, path+"admins/third", "")
}

// panics makes requests panic.
func (n *plantedNode) panics() {
	password := n.m.plant("panic")
	endpoint := replicator.Endpoint{URL: "http://h/x/", Username: "u", Password: password, Headers: []replicator.Header{{Name: "X-Token", Value: password}}}
	definition := &replicator.Replication{Source: endpoint, Target: endpoint}
	for name, fault := range map[string]func(){
		"an error":      func() { panic(fmt.Errorf("the disk at http://u:%s@h/ is full", password)) },
		"an endpoint":   func() { panic(endpoint) },
		"a pointer":     func() { panic(&endpoint) },
		"a replication": func() { panic(definition) },
		"args":          func() { panic(&replicator.JobArgs{Replication: definition}) },
		"a text":        func() { panic(fmt.Sprintf("%+v %#v %s", definition, definition, &endpoint)) },
		"a store error": func() { panic(storeError{fmt.Errorf("the disk at http://u:%s@h/ is full: %+v", password, endpoint)}) },
	} {
		n.store.fault.Store(&fault)
		status, answer := n.do(n.admin(), http.MethodGet, "_replicator/x", "")
		assert.Equal(n, http.StatusInternalServerError, status, "%s: %s", name, answer)
		n.store.fault.Store(nil)
	}
	assert.GreaterOrEqual(n, strings.Count(n.log.String(), "request panicked"), 6)
}

// observe makes all requests that users other than the owner may make.
func (n *plantedNode) observe() {
	_, docs, _ := n.ask(n.admin(), http.MethodGet, "_replicator/_all_docs?include_docs=true", "")
	var list struct {
		Rows []struct {
			ID  string
			Doc map[string]json.RawMessage
		}
	}
	require.NoError(n, json.Unmarshal([]byte(docs), &list))
	ended := 0
	for _, row := range list.Rows {
		for name, value := range row.Doc {
			if strings.HasPrefix(name, "_replication") {
				n.saw("the document "+row.ID, string(value))
				ended++
			}
		}
		id := url.PathEscape(row.ID)
		for _, query := range []string{"", "?conflicts=true&revs_info=true", "?open_revs=all", "?attachments=true"} {
			status, answer := n.do(n.other(), http.MethodGet, "_replicator/"+id+query, "", "Accept", "application/json")
			assert.Equal(n, http.StatusOK, status, answer)
		}
		n.do(n.other(), http.MethodPost, "_replicator/_bulk_get", fmt.Sprintf(`{"docs":[{"id":%q}]}`, row.ID))
		n.do(n.other(), "COPY", "_replicator/"+id, "", "Destination", "copy")
		n.do(n.other(), http.MethodPut, "_replicator/"+id, `{"source":"http://h/x","target":"http://h/y"}`)
		_, job := n.do(n.admin(), http.MethodGet, "_scheduler/docs/_replicator/"+id, "")
		var listed struct{ ID string }
		require.NoError(n, json.Unmarshal([]byte(job), &listed))
		if listed.ID != "" {
			n.do(n.admin(), http.MethodGet, "_scheduler/jobs/"+url.PathEscape(listed.ID), "")
			n.do(n.admin(), http.MethodGet, "_scheduler/jobs/"+url.PathEscape(listed.ID)+"/failures", "")
		}
	}
	assert.GreaterOrEqual(n, ended, 6, "documents say how their jobs have ended")
	for _, who := range []by{n.admin(), n.other(), {}} {
		for _, path := range []string{
			"_scheduler/jobs?limit=1000", "_scheduler/docs?limit=1000", "_scheduler/docs/_replicator?limit=1000", "_scheduler/shares", "_active_tasks",
			"_scheduler/nodes", "_membership", "_cluster_setup", "_node/_local/_stats", "_node/_local/_system", "_node/_local/_versions",
			"_node/_local/_prometheus", "_node/_local/_config", "_node/_local", "_session", "_up", "_all_dbs", "_replicator", "_replicator/_security",
			"_users/org.couchdb.user:owner", "_users",
		} {
			n.do(who, http.MethodGet, path, "")
		}
	}
	for _, path := range []string{"_replicator/_all_docs?include_docs=true", "_replicator/_changes?include_docs=true", "_replicator/_design_docs", "_users/_all_docs"} {
		for _, who := range []by{n.other(), {}} {
			n.do(who, http.MethodGet, path, "")
		}
	}
	_, failures := n.do(n.admin(), http.MethodGet, "_scheduler/docs/_replicator/target%20refuses", "")
	assert.Contains(n, failures, `"doc_write_failures":1`)
}
