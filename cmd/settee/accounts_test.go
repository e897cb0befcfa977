package main

import (
	"bytes"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/kv/enginetest"
)

// A store without an administrator gets one, once, if there is a terminal.
func TestFirstAdmin(t *testing.T) {
	t.Parallel()
	db := enginetest.Memory(t)
	docs := docstore.Open(db, []byte("docs"), docstore.Options{})
	defer docs.Close()
	cfg, _, err := config.Load(config.Options{Flags: []string{"chttpd_auth/iterations=10"}})
	require.NoError(t, err)
	live, err := config.OpenLive(t.Context(), cfg, config.LiveOptions{Store: db, Prefix: []byte("config")})
	require.NoError(t, err)

	n := &node{db: db, docs: docs, live: live, log: zerolog.Nop()}
	err = n.openAccounts(t.Context())
	require.ErrorIs(t, err, errNoAdmin)
	for _, names := range []string{"COUCHDB_USER", "COUCHDB_PASSWORD", "[admins]", "--set admins/"} {
		require.ErrorContains(t, err, names)
	}

	var screen, log bytes.Buffer
	n.screen, n.log = &screen, zerolog.New(&log)
	require.NoError(t, n.openAccounts(t.Context()))
	printed := regexp.MustCompile(`password  (\S+)`).FindStringSubmatch(screen.String())
	require.NotNil(t, printed, "%s", &screen)
	user, err := n.accounts.Login(t.Context(), "admin", printed[1], "192.0.2.1:1")
	require.NoError(t, err)
	require.True(t, user.IsAdmin())
	require.Empty(t, log.String())
	rows, err := live.Set(t.Context(), "admins", "admin", "")
	require.NoError(t, err)
	require.NotContains(t, rows, printed[1])
	_, err = live.SetFirst(t.Context(), "admins", "other", "-hashed-c88e9c67041a74e0357befdff93f87dde0904214,salt")
	require.NoError(t, err)

	screen.Reset()
	require.NoError(t, n.openAccounts(t.Context()))
	require.Empty(t, screen.String())
}

// With accounts a node may listen on any address, and only authenticated users may make requests that are not public.
func TestPublicAddress(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:", "chttpd/bind_address=0.0.0.0")
	url := strings.Replace(withoutAdmin(node.url), "0.0.0.0", "127.0.0.1", 1)
	for path, want := range map[string]int{"": 200, "_up": 200, "_all_dbs": 401, "_replicator": 401, "_node/_local/_config": 401} {
		status, answer := request(t, http.MethodGet, url+path, "")
		assert.Equal(t, want, status, "%s: %s", path, answer)
		ask(t, http.StatusOK, http.MethodGet, withAdmin(url)+path, "")
	}
	ask(t, http.StatusUnauthorized, http.MethodPut, url+"anything", "")
	assert.Zero(t, node.end(syscall.SIGTERM))
	assert.NotContains(t, node.logged(), adminPassword)
}

// A frontend renews a weak hash when its user logs in.
func TestHashesAreRenewed(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	const path = "_users/org.couchdb.user:ann"
	// The hash of the password "password" with the salt "salt".
	status, answer := node.request(http.MethodPut, path, `{"type":"user","name":"ann","roles":[],
		"password_scheme":"simple","salt":"salt","password_sha":"c88e9c67041a74e0357befdff93f87dde0904214"}`)
	require.Equal(t, http.StatusCreated, status, answer)
	answer = node.ask(http.StatusOK, http.MethodGet, "_users/_changes", "")
	seq := regexp.MustCompile(`"last_seq":"([^"]+)"`).FindStringSubmatch(answer)
	require.NotNil(t, seq, answer)
	ask(t, http.StatusOK, http.MethodGet, strings.Replace(withoutAdmin(node.url), "://", "://ann:password@", 1)+"_session", "")
	answer = node.ask(http.StatusOK, http.MethodGet, "_users/_changes?feed=longpoll&since="+seq[1], "")
	require.Contains(t, answer, "org.couchdb.user:ann")
	answer = node.ask(http.StatusOK, http.MethodGet, path, "")
	require.Contains(t, answer, `"password_scheme":"pbkdf2"`)
	require.Zero(t, node.end(syscall.SIGTERM))
}
