package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

// Everything that replicates does so with access tokens: commands, documents, POST /_replicate, mirrors, and the watch that wakes
// parked jobs. A node asks for one token, and no command prints a secret.
func TestAccessTokens(t *testing.T) {
	t.Parallel()
	data := serveNode(t, "mem:")
	data.create("db", "a", "b")
	tokens, feeds := couchtest.NewTokenServer(), atomic.Int64{}
	tokenServer := couchtest.Serve(t, tokens)
	proxy := couchtest.Proxy(t, data.url)
	guarded := couchtest.Serve(t, tokens.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/_db_updates" {
			feeds.Add(1)
		}
		proxy.ServeHTTP(w, r)
	})))
	auth := fmt.Sprintf(`{"oauth2":{"token_url":"%s/token","client_id":"me","client_secret":"s3cret-key"}}`, tokenServer.URL)
	env := []string{"SETTEE_SOURCE_AUTH=" + auth, "SETTEE_TARGET_AUTH=" + auth}

	out, errs, status := setteeWith(t, env, "replicate", guarded.URL+"/db", guarded.URL+"/copy", "--create-target", "--verify")
	require.Zero(t, status, errs)
	require.Contains(t, out, "equal: ")
	out, errs, status = setteeWith(t, env, "verify", guarded.URL+"/db", guarded.URL+"/copy")
	require.Zero(t, status, errs)
	require.NotContains(t, out+errs, "s3cret")
	require.Len(t, tokens.Asked(), 3, "a command asks once, and with --verify once more")
	_, errs, status = setteeWith(t, []string{"SETTEE_SOURCE_AUTH=s3cret"}, "verify", guarded.URL+"/db", guarded.URL+"/copy")
	require.Equal(t, 1, status)
	require.Contains(t, errs, "SETTEE_SOURCE_AUTH must be a JSON object")
	require.NotContains(t, errs, "s3cret")
	_, errs, status = setteeWith(t, append(env[1:], strings.ReplaceAll(env[0], "s3cret-key", "wr0ng-key")), "verify", guarded.URL+"/db", guarded.URL+"/copy")
	require.Equal(t, 1, status)
	require.Contains(t, errs, "the token server refuses the credentials")
	require.NotContains(t, errs, "wr0ng")

	node := serveNode(t, "mem:", "replicator/max_jobs=2", "replicator/interval_sec=3600")
	before := len(tokens.Asked())
	end := func(name, more string) string {
		return fmt.Sprintf(`{"source":{"url":"%s/%s","auth":%s},"target":{"url":"%s/%s","auth":%s}%s}`, guarded.URL, "db", auth, guarded.URL, name, auth, more)
	}
	node.ask(http.StatusOK, http.MethodPost, "_replicate", end("posted", `,"create_target":true`))
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/once", end("once", `,"create_target":true`))
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/mirror", fmt.Sprintf(
		`{"source":{"url":"%s/","auth":%s},"target":{"url":"%s/","auth":%s},"mirror":{"include":["db"],"prefix":"m-"}}`, guarded.URL, auth, guarded.URL, auth))
	copied := func(doc string, databases ...string) {
		t.Helper()
		for _, database := range databases {
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				status, _ := data.request(http.MethodGet, database+"/"+doc, "")
				assert.Equal(t, http.StatusOK, status, "%s of %s", doc, database)
			}, limit, 20*time.Millisecond)
		}
	}
	copied("a", "posted", "once", "m-db")

	// With fewer slots than continuous jobs, idle jobs are parked, and the feed of their server wakes them.
	live := []string{"live-0", "live-1", "live-2", "live-3"}
	for _, name := range live {
		node.ask(http.StatusCreated, http.MethodPut, "_replicator/"+name, end(name, `,"create_target":true,"continuous":true`))
	}
	copied("b", live...)
	require.Eventually(t, func() bool { return feeds.Load() > 0 && node.metric(`settee_replicator_jobs{state="parked"}`) >= 2 }, limit, 20*time.Millisecond)
	data.ask(http.StatusCreated, http.MethodPut, "db/late", `{}`)
	copied("late", live...)
	require.Len(t, tokens.Asked(), before+1)

	// Refused credentials are named as such, also those of a mirror.
	wrong := strings.ReplaceAll(auth, "s3cret-key", "wr0ng-key")
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/refused", strings.ReplaceAll(end("refused", `,"continuous":true`), auth, wrong))
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/refused-mirror", fmt.Sprintf(
		`{"source":{"url":"%s/","auth":%s},"target":%q,"mirror":{"prefix":"n-"},"continuous":true}`, guarded.URL, wrong, data.url))
	for _, doc := range []string{"refused", "refused-mirror"} {
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			_, text := node.request(http.MethodGet, "_scheduler/docs/_replicator/"+doc, "")
			assert.Contains(t, text, `"state":"crashing"`)
			assert.Contains(t, text, `"code":"token_refused"`)
			assert.Contains(t, text, `"advice":{"code":"token",`)
			assert.Contains(t, text, `"error":"unauthorized: `)
			assert.NotContains(t, text, "wr0ng")
		}, limit, 20*time.Millisecond)
	}
	require.NotContains(t, node.logged(), "s3cret")
	require.NotContains(t, node.logged(), "token-")
}

// A job with access tokens moves from a CouchDB that cannot run it. Its replication id is CouchDB's: tokens are no part of it.
func (m *movedFrom) tokens(t *testing.T) {
	source, target := m.couch.DB(t, "source"), m.couch.DB(t, "target")
	couchtest.Populate(t, source, couchtest.Population{Seed: 7, Docs: 10})
	tokens := couchtest.NewTokenServer()
	tokenServer := couchtest.Serve(t, tokens)
	guarded := couchtest.Serve(t, tokens.Guard(couchtest.Proxy(t, source)))
	couchURL, setteeURL := m.urls()
	const db = "tokens/_replicator"
	m.couch.Do(t, http.MethodPut, "/"+url.PathEscape(db), nil, http.StatusCreated)
	m.couch.Do(t, http.MethodPut, "/"+url.PathEscape(db)+"/job", fmt.Appendf(nil, `{"source":{"url":"%s%s","auth":{"oauth2":{"token_url":"%s/token",
		"client_id":"me","client_secret":"s3cret-key"}}},"target":%q,"continuous":true}`,
		guarded.URL, source[strings.LastIndex(source, "/"):], tokenServer.URL, target), http.StatusCreated)
	require.Eventually(t, func() bool {
		_, state := request(t, http.MethodGet, couchURL+"/_scheduler/docs/"+url.PathEscape(db)+"/job", "")
		return strings.Contains(state, `"state":"crashing"`)
	}, limit, 20*time.Millisecond)
	docs, out, status := planned(t, couchURL, db, "--to", setteeURL)
	require.Zero(t, status, out)
	require.NotContains(t, out, "s3cret")
	job := docs[db+" job"]
	require.Equal(t, "crashing", job.State)
	require.NotEmpty(t, job.ID)
	require.Empty(t, job.Warnings)
	require.NotContains(t, job.Start, "not known")
	require.NotEmpty(t, tokens.Asked(), "the plan has looked at the source")

	out, errs, status := settee(t, "import-couchdb", couchURL, db, "--move", "--to", setteeURL)
	require.Zero(t, status, errs)
	require.NotContains(t, out+errs, "s3cret")
	couchtest.AwaitSameTrees(t, source, target, limit)
}
