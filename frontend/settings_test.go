package frontend_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
)

func TestUnusedSettings(t *testing.T) {
	t.Parallel()
	n := start(t)
	for _, name := range []string{"smoosh/x", "couchdb/database_dir", "chttpd_auth/authentication_db", "smoosh.ratio_dbs/a%2Fb"} {
		got := n.setConfig(name, "1").Is(t, http.StatusOK)
		require.Equal(t, name, got.Header.Get("X-Settee-Unused"))
	}
	got := n.setConfig("couchdb/max_document_size", "1000000").Is(t, http.StatusOK)
	require.Empty(t, got.Header.Values("X-Settee-Unused"))
}

// The answers of a CouchDB 3.5.0: databases that were created before the change keep their security objects.
func TestDefaultSecurity(t *testing.T) {
	t.Parallel()
	n := start(t)
	for database, setting := range map[string]string{"a": "everyone", "b": "admin_local", "c": "admin_only"} {
		n.setConfig("couchdb/default_security", setting).Is(t, http.StatusOK)
		n.Put("/"+database, "").Is(t, http.StatusCreated)
	}
	n.setConfig("couchdb/default_security", "admin_only").Is(t, http.StatusOK)
	for database, want := range map[string]string{"a": "{}", "b": "{}"} {
		require.JSONEq(t, want, n.Get("/"+database+"/_security").Body)
	}
	require.NotEqual(t, "{}\n", n.Get("/c/_security").Body)
	n.setConfig("couchdb/default_security", "nonsense").Is(t, http.StatusBadRequest)
}

func TestSecurityOfUsers(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.UsersDatabase()
	webtest.Refused(t, n.Put("/_users/_security", `{}`), http.StatusForbidden, "forbidden", "You can't edit the security object of the user database.")
	n.setConfig("couchdb/users_db_security_editable", "true").Is(t, http.StatusOK)
	n.Put("/_users/_security", `{"members":{"roles":["x"]}}`).Is(t, http.StatusOK)
	require.JSONEq(t, `{"members":{"roles":["x"]}}`, n.Get("/_users/_security").Body)
}

func TestAlgorithmsOfUUIDs(t *testing.T) {
	t.Parallel()
	n := start(t)
	ids := func() (all []string) {
		for _, id := range n.Get("/_uuids?count=1000").JSON(t)["uuids"].([]any) {
			all = append(all, id.(string))
		}
		all = append(all, n.Do(http.MethodPost, "/db", `{}`, "Content-Type", "application/json").JSON(t)["id"].(string))
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(all))), 1001)
		return all
	}
	n.NewDatabase("db")
	n.setConfig("uuids/utc_id_suffix", "-end")
	for algorithm, form := range map[string]string{
		"sequential": "^[0-9a-f]{32}$", "random": "^[0-9a-f]{32}$", "utc_random": "^0[0-9a-f]{31}$", "utc_id": "^0[0-9a-f]{13}-end$",
	} {
		n.setConfig("uuids/algorithm", algorithm).Is(t, http.StatusOK)
		all := ids()
		for _, id := range all {
			require.Regexp(t, form, id)
		}
		require.Equal(t, algorithm != "random", slices.IsSorted(all[:500]), algorithm)
	}
}

func TestNamesOfForwardedHeaders(t *testing.T) {
	t.Parallel()
	n := start(t)
	location := func(database string) string {
		return n.Do(http.MethodPut, "/"+database, "", "X-Forwarded-Host", "a.example", "X-Host", "b.example", "X-Scheme", "https").
			Is(t, http.StatusCreated).Header.Get("Location")
	}
	require.Equal(t, "http://a.example/a", location("a"))
	n.setConfig("chttpd/x_forwarded_host", "X-Host").Is(t, http.StatusOK)
	n.setConfig("chttpd/x_forwarded_proto", "X-Scheme").Is(t, http.StatusOK)
	require.Equal(t, "https://b.example/b", location("b"))
	n.setConfig("chttpd/x_forwarded_host", "X-None").Is(t, http.StatusOK)
	require.Equal(t, "https://"+n.Address+"/c", location("c"))
	n.setConfig("chttpd/x_forwarded_host", "a b").Is(t, http.StatusBadRequest)
}

func TestProxyAuthentication(t *testing.T) {
	t.Parallel()
	n := start(t)
	mac := hmac.New(sha256.New, []byte("k-"+webtest.Secret))
	mac.Write([]byte("ann"))
	token := hex.EncodeToString(mac.Sum(nil))
	user := func(name, token string) any {
		got := n.Do(http.MethodGet, "/_session", "", "Authorization", webtest.Nobody, "X-Auth-CouchDB-UserName", name,
			"X-Auth-CouchDB-Roles", "a, b,,", "X-Auth-CouchDB-Token", token).Is(t, http.StatusOK)
		return got.JSON(t)["userCtx"]
	}
	none := map[string]any{"name": nil, "roles": []any{}}
	ann := map[string]any{"name": "ann", "roles": []any{"a", "b"}}
	require.Equal(t, none, user("ann", token), "the handler is not among those of the node")
	n.setConfig("chttpd/authentication_handlers",
		"{couch_httpd_auth, proxy_authentication_handler}, {chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}").
		Is(t, http.StatusOK)
	require.Equal(t, none, user("ann", token), "the node has no secret")
	n.setConfig("chttpd_auth/secret", "k-"+webtest.Secret).Is(t, http.StatusOK)
	require.Equal(t, ann, user("ann", token))
	require.Equal(t, none, user("eve", token))
	require.Equal(t, none, user("ann", ""))
	require.Equal(t, none, user("ann", "nonsense"))
	require.Equal(t, none, user("", token))
	n.setConfig("chttpd_auth/proxy_use_secret", "false").Is(t, http.StatusOK)
	require.Equal(t, ann, user("ann", ""))
}

// The answers of a CouchDB 3.5.0.
func TestRulesOfPasswords(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.UsersDatabase()
	n.setConfig("chttpd_auth/password_regexp", `[{".{10,}", "ten or more."}, "[0-9]"]`).Is(t, http.StatusOK)
	set := func(password string) webtest.Answer {
		return n.Put("/_users/org.couchdb.user:a", `{"name":"a","type":"user","roles":[],"password":"`+password+`"}`)
	}
	webtest.Refused(t, set("short"), http.StatusBadRequest, "bad_request", "Password does not conform to requirements. ten or more.")
	webtest.Refused(t, set("longlonglong"), http.StatusBadRequest, "bad_request", "Password does not conform to requirements.")
	set("longlonglong1").Is(t, http.StatusCreated)
	for _, text := range []string{"x", `[".{10,}`, `["(?=x)"]`, `["\d"]`, `[{"x", "y", "z"}]`, `["a" "b"]`, `["a",]`, `[,]`, `["\."]`} {
		n.setConfig("chttpd_auth/password_regexp", text).Is(t, http.StatusBadRequest)
	}
	n.setConfig("chttpd_auth/password_regexp", `["\\.", {"^...$"}].`).Is(t, http.StatusOK)
	webtest.Refused(t, set("axb"), http.StatusBadRequest, "bad_request", "Password does not conform to requirements.")
	n.Put("/_users/org.couchdb.user:c", `{"name":"c","type":"user","roles":[],"password":"a.b"}`).Is(t, http.StatusCreated)
	n.setConfig("chttpd_auth/password_regexp", `[{ "^\\S+$" } , "\""]`).Is(t, http.StatusOK)
	n.Put("/_users/org.couchdb.user:b", `{"name":"b","type":"user","roles":[],"password":"a \""}`).Is(t, http.StatusBadRequest)
	n.Put("/_users/org.couchdb.user:b", `{"name":"b","type":"user","roles":[],"password":"a\""}`).Is(t, http.StatusCreated)
}
