package accounts_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/frontend/accounts"
	"settee/internal/testkit"
	"settee/pkg/config"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/memkv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

// quick makes hashing cheap.
const quick = "chttpd_auth/iterations=10"

// node is the accounts of a frontend.
type node struct {
	*testing.T
	*accounts.Accounts
	docs *docstore.Store
	live *config.Live
	log  *testkit.Journal
}

func memory(t *testing.T) kv.Database {
	t.Helper()
	db, err := memkv.Open(memkv.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// open opens the accounts of a store. The settings are section/key=value.
func open(t *testing.T, db kv.Database, settings ...string) *node {
	t.Helper()
	cfg, _, err := config.Load(config.Options{Flags: append([]string{quick}, settings...)})
	require.NoError(t, err)
	n := &node{T: t, log: &testkit.Journal{}, docs: docstore.Open(db, []byte("docs"), docstore.Options{})}
	t.Cleanup(n.docs.Close)
	n.live, err = config.OpenLive(t.Context(), cfg, config.LiveOptions{Store: db, Prefix: []byte("config")})
	require.NoError(t, err)
	n.Accounts, err = accounts.Open(t.Context(), accounts.Options{
		Store: db, Prefix: []byte("accounts"), Documents: n.docs, Config: n.live, Log: zerolog.New(n.log),
	})
	require.NoError(t, err)
	return n
}

// user writes the document of a user.
func (n *node) user(name, password string, roles ...string) docstore.Rev {
	n.Helper()
	return n.write(docstore.Rev{}, name, map[string]any{"password": password, "roles": append([]string{}, roles...)})
}

// write writes a revision of the document of a user.
func (n *node) write(rev docstore.Rev, name string, members map[string]any) docstore.Rev {
	n.Helper()
	db, err := n.docs.Database(n.Context(), accounts.Database)
	if err != nil {
		db, err = n.docs.Create(n.Context(), accounts.Database)
	}
	require.NoError(n, err)
	all := map[string]any{"type": "user", "name": name, "roles": []string{}}
	for key, value := range members {
		all[key] = value
	}
	text, err := json.Marshal(all)
	require.NoError(n, err)
	id := accounts.IDPrefix + name
	body, err := n.Document(n.Context(), accounts.Write{ID: id, Body: docjson.Must(text), Admin: true})
	require.NoError(n, err)
	rev, err = db.Put(n.Context(), docstore.Edit{ID: id, Rev: rev, Body: body})
	require.NoError(n, err)
	return rev
}

const here = "192.0.2.1:4711"

// login logs in, and returns the name and the roles.
func (n *node) login(name, password string) ([]string, error) {
	return n.loginFrom(here, name, password)
}

func (n *node) loginFrom(address, name, password string) ([]string, error) {
	user, err := n.Login(n.Context(), name, password, address)
	if err != nil {
		return nil, err
	}
	return append([]string{user.Name}, user.Roles...), nil
}

func (n *node) is(want []string, name, password string) {
	n.Helper()
	got, err := n.login(name, password)
	require.NoError(n, err)
	require.Equal(n, want, got)
}

func (n *node) fails(want error, name, password string) {
	n.Helper()
	_, err := n.login(name, password)
	require.ErrorIs(n, err, want)
}

// session returns the user of a cookie, and the renewed cookie.
func (n *node) session(cookie string) (name, renewed string) {
	n.Helper()
	user, renewed, err := n.Session(n.Context(), cookie)
	require.NoError(n, err)
	return user.Name, renewed
}

func (n *node) cookie(name string) string {
	n.Helper()
	cookie, err := n.SignSession(n.Context(), name)
	require.NoError(n, err)
	return cookie
}

const minute = time.Minute
