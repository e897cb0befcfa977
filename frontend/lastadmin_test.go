package frontend_test

import (
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend"
	"settee/frontend/accounts"
	"settee/frontend/internal/auth"
	"settee/frontend/internal/webtest"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
)

// lonely is a frontend that has no administrators other than those of its store and its file.
type lonely struct {
	*testing.T
	handler *frontend.Handler
	file    string
}

func newLonely(t *testing.T, db kv.Database, flags ...string) *lonely {
	t.Helper()
	n := &lonely{T: t, file: filepath.Join(t.TempDir(), "local.ini")}
	require.NoError(t, os.WriteFile(n.file, nil, 0o600))
	cfg, _, err := config.Load(config.Options{Flags: append([]string{"chttpd_auth/iterations=1"}, flags...), Files: []string{n.file}})
	require.NoError(t, err)
	live, err := config.OpenLive(t.Context(), cfg, config.LiveOptions{Store: db, Prefix: []byte("config"), Files: []string{n.file}})
	require.NoError(t, err)
	docs := docstore.Open(db, []byte("docs"), docstore.Options{})
	t.Cleanup(docs.Close)
	if len(config.Admins.Get(live.Current())) == 0 {
		_, err = live.SetFirst(t.Context(), "admins", webtest.AdminName, auth.NewHash(webtest.AdminPassword, "sha256", 1).String())
		require.NoError(t, err)
	}
	known, err := accounts.Open(t.Context(), accounts.Options{Store: db, Prefix: []byte("accounts"), Documents: docs, Config: live})
	require.NoError(t, err)
	n.handler = frontend.New(frontend.Options{Documents: docs, Accounts: known, Config: live, Log: zerolog.Nop()})
	return n
}

func (n *lonely) put(name, text string) webtest.Answer {
	return ask(n.handler, http.MethodPut, configPath+"/"+name, `"`+text+`"`)
}

func (n *lonely) remove(name string) webtest.Answer {
	return ask(n.handler, http.MethodDelete, configPath+"/"+name, "")
}

// refusal requires that a change was refused because it would leave no administrator.
func refusal(t *testing.T, a webtest.Answer) {
	t.Helper()
	webtest.Refused(t, a, http.StatusConflict, "conflict", "no server administrator could log in any more: add another one to [admins] first")
}

func closing(t *testing.T, db kv.Database) kv.Database {
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestTheLastAdministratorStays(t *testing.T) {
	t.Parallel()
	n := newLonely(t, closing(t, webtest.Memory(t)))
	refusal(t, n.remove("admins/"+webtest.AdminName))
	refusal(t, n.put("admins/"+webtest.AdminName, ""))
	refusal(t, n.put("admins/"+webtest.AdminName, " "))
	says(t, n.put("admins/"+webtest.AdminName, webtest.AdminPassword), "****") // another password for the same administrator
	webtest.Refused(t, n.remove("admins/other"), http.StatusNotFound, "not_found", "unknown_config_value")

	// An administrator with a hash that cannot be used does not count.
	says(t, n.put("chttpd_auth/max_iterations", "20"), "1000000")
	slow := auth.NewHash("x", "sha256", 21).String()
	got := n.put("admins/slow", slow).Is(t, http.StatusBadRequest)
	require.Contains(t, got.JSON(t)["reason"], "[admins] slow: it has 21 iterations, and [chttpd_auth] max_iterations is 20")
	says(t, n.put("chttpd_auth/max_iterations", "21"), "20")
	says(t, n.put("admins/slow", slow), "")
	says(t, n.put("chttpd_auth/max_iterations", "20"), "21")
	refusal(t, n.remove("admins/"+webtest.AdminName))

	// One of two can go.
	says(t, n.put("admins/second", "word"), "")
	says(t, n.remove("admins/second"), "****")
	says(t, n.put("admins/second", "word"), "")
	says(t, n.remove("admins/slow"), "****")
	says(t, n.remove("admins/"+webtest.AdminName), "****")
	require.Equal(t, http.StatusUnauthorized, n.remove("admins/second").Status, "the administrator is none any more")
}

// A setting that makes the hashes of all administrators unusable is refused as well.
func TestTheLastAdministratorCanLogIn(t *testing.T) {
	t.Parallel()
	n := newLonely(t, closing(t, webtest.Memory(t)))
	says(t, n.put("admins/"+webtest.AdminName, auth.NewHash(webtest.AdminPassword, "sha256", 5).String()), "****")
	refusal(t, n.put("chttpd_auth/max_iterations", "4"))
	says(t, n.put("chttpd_auth/max_iterations", "5"), "1000000")
}

// Administrators of files and flags count too.
func TestAdministratorsOfAllPlaces(t *testing.T) {
	t.Parallel()
	n := newLonely(t, closing(t, webtest.Memory(t)))
	require.NoError(t, os.WriteFile(n.file, []byte("[admins]\nfiled = word\n"), 0o600))
	require.Equal(t, http.StatusOK, ask(n.handler, http.MethodPost, configPath+"/_reload", "").Status)
	says(t, n.remove("admins/"+webtest.AdminName), "****")

	broken := newLonely(t, closing(t, webtest.Memory(t)))
	require.NoError(t, os.WriteFile(broken.file, []byte("[admins]\nfiled = -pbkdf2-nonsense\n"), 0o600))
	require.Equal(t, http.StatusOK, ask(broken.handler, http.MethodPost, configPath+"/_reload", "").Status)
	refusal(t, broken.remove("admins/"+webtest.AdminName))

	flagged := newLonely(t, closing(t, webtest.Memory(t)), "admins/"+webtest.AdminName+"="+webtest.AdminPassword)
	says(t, flagged.put("admins/second", "word"), "")
	says(t, flagged.remove("admins/second"), "****")
}

// Two frontends that each remove one of the last two do not both succeed.
func TestTheLastTwoAdministrators(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		db := closing(t, faultkv.Wrap(webtest.Memory(t), faultkv.Options{Seed: seed, Rates: faultkv.Rates{
			faultkv.Conflict: 0.1, faultkv.UnknownCommitted: 0.2, faultkv.UnknownNotCommitted: 0.1,
		}}))
		one := newLonely(t, db)
		says(t, one.put("admins/second", "word"), "")
		other := newLonely(t, db)
		var removing sync.WaitGroup
		var answers [2]webtest.Answer
		removing.Go(func() { answers[0] = one.remove("admins/second") })
		removing.Go(func() { answers[1] = other.remove("admins/" + webtest.AdminName) })
		removing.Wait()
		succeeded := 0
		for _, a := range answers {
			switch a.Status {
			case http.StatusOK:
				succeeded++
			case http.StatusUnauthorized: // the client's own account is gone
			default:
				refusal(t, a)
			}
		}
		assert.Equal(t, 1, succeeded, "%d: %v", seed, answers)
	}
}
