package frontend_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
)

func basic(name, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
}

// as makes a request with other credentials than the administrator's: nobody, or name:password.
func (n *node) as(who, method, target, body string, headers ...string) answer {
	n.Helper()
	authorization := nobody
	if who != nobody {
		name, password, _ := strings.Cut(who, ":")
		authorization = basic(name, password)
	}
	headers = append([]string{"Authorization", authorization, "Content-Type", "application/json"}, headers...)
	return n.do(method, target, body, headers...)
}

// newUser makes a user, whose password is the name and the tests' password.
func (n *node) newUser(name string, roles ...string) (credentials string) {
	n.Helper()
	n.usersDatabase()
	text, err := json.Marshal(map[string]any{
		"type": "user", "name": name, "roles": append([]string{}, roles...), "password": name + "-" + secret,
	})
	require.NoError(n, err)
	n.do(http.MethodPut, "/_users/org.couchdb.user:"+name, string(text)).is(n.T, http.StatusCreated)
	return name + ":" + name + "-" + secret
}

func (n *node) usersDatabase() {
	n.Helper()
	if n.get("/_users").status == http.StatusNotFound {
		require.Equal(n, http.StatusCreated, n.do(http.MethodPut, "/_users", "").status)
	}
}

// As in CouchDB, see accounts.WithDocumentRoles. Cookies and passwords give the same roles, and functions see them.
func TestRolesOfAdministratorsInSessions(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.newUser(adminName, "editor", "x")
	const roles = `["_admin","editor","x"]`
	require.JSONEq(t, `{"ok":true,"userCtx":{"name":"`+adminName+`","roles":`+roles+`},
		"info":{"authentication_handlers":["cookie","default"],"authenticated":"default"}}`, n.get("/_session").is(t, http.StatusOK).body)
	login := n.as(nobody, http.MethodPost, "/_session", `{"name":"`+adminName+`","password":"`+adminPassword+`"}`).is(t, http.StatusOK)
	require.JSONEq(t, `{"ok":true,"name":"`+adminName+`","roles":`+roles+`}`, login.body)
	cookie, _, _ := strings.Cut(login.header.Get("Set-Cookie"), ";")
	got := n.as(nobody, http.MethodGet, "/_session", "", "Cookie", cookie).is(t, http.StatusOK)
	require.Contains(t, got.body, `"userCtx":{"name":"`+adminName+`","roles":`+roles+`}`)
	n.newDatabase("db")
	n.do(http.MethodPut, "/db/_design/d", `{"validate_doc_update":"function (d, o, user) { throw({forbidden: user.roles.join()}) }"}`).is(t, http.StatusCreated)
	refused(t, n.do(http.MethodPut, "/db/x", `{}`), http.StatusForbidden, "forbidden", "_admin,editor,x")
}

func TestRecordedSessions(t *testing.T) {
	t.Parallel()
	n := start(t, "admins/other=password")
	n.newDatabase("wire")
	for number, authorization := range map[int]string{8: nobody, 9: basic("admin", "nope")} {
		e := recorded(t, number)
		got := n.do(e.method, e.target, "", "Authorization", authorization)
		n.requireSame(e, got, sameText)
		require.Empty(t, got.header.Get("WWW-Authenticate"))
	}
	for number, password := range map[int]string{10: adminPassword, 11: "nope"} {
		e := recorded(t, number)
		got := n.as(nobody, e.method, e.target, `{"name": "admin", "password": "`+password+`"}`)
		n.requireSame(e, got, sameText)
		value := regexp.MustCompile(`AuthSession=[^;]*|Expires=[^;]*`)
		want := value.ReplaceAllString(e.answer.header.Get("Set-Cookie"), "x")
		require.Equal(t, want+"; SameSite=Lax", value.ReplaceAllString(got.header.Get("Set-Cookie"), "x"))
		require.Equal(t, password == adminPassword, !strings.HasPrefix(got.header.Get("Set-Cookie"), "AuthSession=;"))
		require.Regexp(t, `Expires=\w{3}, \d\d-\w{3}-\d{4} \d\d:\d\d:\d\d GMT;`, got.header.Get("Set-Cookie"))
	}
	e := recorded(t, 12)
	n.requireSame(e, n.do(e.method, e.target, ""), sameText)

	e = recorded(t, 112)
	for range 5 {
		require.Equal(t, http.StatusUnauthorized, n.as(nobody, e.method, e.target, `{"name": "other", "password": "no"}`).status)
	}
	n.requireSame(e, n.as(nobody, e.method, e.target, `{"name": "other", "password": "password"}`), sameText)
}

// cookieOf returns the cookie that an answer sets.
func cookieOf(t *testing.T, a answer) string {
	t.Helper()
	cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	require.Regexp(t, "^AuthSession=.", cookie)
	return cookie
}

func TestSessionOfAUser(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, memory(t), listenPipe())
		n.newUser("ann", "staff")
		form := url.Values{"username": {"ann"}, "password": {"ann-" + secret}}.Encode()
		got := n.as(nobody, http.MethodPost, "/_session?next=http://elsewhere.example", form, "Content-Type", "application/x-www-form-urlencoded; charset=utf-8").is(t, http.StatusOK)
		require.Equal(t, `{"ok":true,"name":"ann","roles":["staff"]}`+"\n", got.body)
		require.NotContains(t, got.header.Get("Set-Cookie"), "Secure")
		cookie := cookieOf(t, got)
		session := func(cookie string) answer {
			return n.do(http.MethodGet, "/_session", "", "Authorization", nobody, "Cookie", cookie)
		}
		got = session(cookie)
		require.JSONEq(t, `{"ok":true,"userCtx":{"name":"ann","roles":["staff"]},
			"info":{"authentication_handlers":["cookie","default"],"authenticated":"cookie"}}`, got.body)
		require.Empty(t, got.header.Get("Set-Cookie"))
		time.Sleep(2 * time.Minute)
		renewed := cookieOf(t, session(cookie))
		require.NotEqual(t, cookie, renewed)
		time.Sleep(9 * time.Minute)
		const anonymous = `{"ok":true,"userCtx":{"name":null,"roles":[]},"info":{"authentication_handlers":["cookie","default"]}}` + "\n"
		require.Equal(t, anonymous, session(cookie).body)
		require.NotEqual(t, anonymous, session(renewed).body)
		refused(t, session("AuthSession=nonsense"), http.StatusBadRequest, "bad_request", "Malformed AuthSession cookie. Please clear your cookies.")
		refused(t, n.as(nobody, http.MethodGet, "/_session?basic=true", ""), http.StatusUnauthorized, "unauthorized", "Please login.")

		got = n.do(http.MethodDelete, "/_session", "", "Authorization", nobody, "Cookie", renewed).is(t, http.StatusOK)
		require.True(t, strings.HasPrefix(got.header.Get("Set-Cookie"), "AuthSession=; "), got.header.Get("Set-Cookie"))

		// A proxy speaks TLS to the client.
		got = n.as(nobody, http.MethodPost, "/_session", `{"name":"ann","password":"ann-`+secret+`"}`, "X-Forwarded-Proto", "https")
		require.Contains(t, got.header.Get("Set-Cookie"), "; Secure")

		// What is refused before any password is looked at.
		for body, reason := range map[string]string{
			`{}`:                            "request body must contain a username",
			`{"name":"a","username":"b"}`:   "request body contains different usernames",
			`{"name":7}`:                    "`name` must be a string",
			`{"name":"a","password":["x"]}`: "`password` must be a string",
			`[]`:                            "Request body must be a JSON object",
			`{"name":"a","password":"x"`:    "invalid UTF-8 JSON",
		} {
			refused(t, n.as(nobody, http.MethodPost, "/_session", body), http.StatusBadRequest, "bad_request", reason)
		}
		n.as(nobody, http.MethodPost, "/_session", `{}`, "Content-Type", "text/plain").is(t, http.StatusUnsupportedMediaType)
		n.as(nobody, http.MethodPost, "/_session", strings.Repeat("x", 70_000)).is(t, http.StatusRequestEntityTooLarge)
		refused(t, n.do(http.MethodGet, "/", "", "Authorization", "Basic !"), http.StatusBadRequest, "bad_request",
			"Authorization header has invalid base64 value")
	})
}

func TestRequireValidUser(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]map[string]int{
		"chttpd/require_valid_user=true":               {"/": 401, "/_up": 401, "/_session": 401, "/db": 401},
		"chttpd/require_valid_user_except_for_up=true": {"/": 401, "/_up": 200, "/_session": 401, "/db": 401},
		"chttpd/require_valid_user=false":              {"/": 200, "/_up": 200, "/_session": 200, "/db": 404},
	} {
		n := start(t, setting)
		for path, status := range want {
			got := n.as(nobody, http.MethodGet, path, "")
			require.Equal(t, status, got.status, "%s: %s", setting, path)
			challenge := ""
			if status == http.StatusUnauthorized && strings.Contains(setting, "user=") {
				challenge = `Basic realm="server"`
			}
			require.Equal(t, challenge, got.header.Get("WWW-Authenticate"), setting)
		}
		n.as(nobody, http.MethodPost, "/_session", `{"name":"`+adminName+`","password":"`+adminPassword+`"}`).is(t, http.StatusOK)
	}
}

// {"alg":"HS256","typ":"JWT"} {"sub":"ann","exp":4102444800,"_couchdb.roles":["staff"]}, by the secret "key"
const token = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsIl9jb3VjaGRiLnJvbGVzIjpbInN0YWZmIl19.4euW1e_OsgKo7IahVEd4Ik57QF1NrT0o1mlsv08Y1gQ"

func TestBearerToken(t *testing.T) {
	t.Parallel()
	const handlers = "chttpd/authentication_handlers={chttpd_auth, jwt_authentication_handler}, {chttpd_auth, default_authentication_handler}"
	n := start(t, handlers, "jwt_keys/hmac:_default=a2V5")
	got := n.do(http.MethodGet, "/_session", "", "Authorization", "Bearer "+token)
	require.JSONEq(t, `{"ok":true,"userCtx":{"name":"ann","roles":["staff"]},
		"info":{"authentication_handlers":["jwt","default"],"authenticated":"jwt"}}`, got.body)
	refused(t, n.do(http.MethodGet, "/", "", "Authorization", "Bearer "+token+"x"), http.StatusBadRequest, "bad_request",
		"Bad signature in authentication token")
	refused(t, n.do(http.MethodGet, "/_all_dbs", "", "Authorization", "Bearer "+token), http.StatusUnauthorized, "unauthorized",
		"You are not a server admin.")

	without := start(t, "jwt_keys/hmac:_default=a2V5")
	got = without.do(http.MethodGet, "/_session", "", "Authorization", "Bearer "+token)
	require.Contains(t, got.body, `"name":null`, "tokens are taken where the configuration says so")
}

// A password that is put into the configuration is hashed before it is stored.
func TestAdminsInTheStore(t *testing.T) {
	t.Parallel()
	db := memory(t)
	n := startOn(t, db, listenTCP(t))
	says(t, n.setConfig("admins/root", "first-"+secret), "")
	require.Equal(t, http.StatusOK, n.as("root:first-"+secret, http.MethodGet, "/_all_dbs", "").status)
	says(t, n.setConfig("admins/root", "second-"+secret), "****")
	require.Equal(t, http.StatusUnauthorized, n.as("root:first-"+secret, http.MethodGet, "/_all_dbs", "").status)
	require.Equal(t, http.StatusOK, n.as("root:second-"+secret, http.MethodGet, "/_all_dbs", "").status)
	require.Contains(t, n.config.Current().Shown()["admins"], "root")
	require.Equal(t, http.StatusOK, n.do(http.MethodDelete, configPath+"/admins/root", "").status)
	require.Equal(t, http.StatusUnauthorized, n.as("root:second-"+secret, http.MethodGet, "/_all_dbs", "").status)
}

func TestUserIsInTheLog(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.get("/_all_dbs")
	require.Equal(t, adminName, n.log.line(t, `"path":"/_all_dbs"`)["user"])
	n.as(nobody, http.MethodGet, "/_active_tasks", "")
	require.Empty(t, n.log.line(t, `"path":"/_active_tasks"`)["user"])
	n.as(adminName+":wrong", http.MethodGet, "/_up", "")
	line := n.log.line(t, "a login failed")
	require.Equal(t, "127.0.0.1", line["from"])
	require.Equal(t, adminName, line["name"])
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}

// A one-time password comes with the login: never with a request.
func TestOneTimePasswords(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.usersDatabase()
	const key = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ" // base32 of 12345678901234567890
	got := n.do(http.MethodPut, "/_users/org.couchdb.user:ann",
		`{"type":"user","name":"ann","roles":[],"password":"ann-`+secret+`","totp":{"key":"`+key+`"}}`)
	require.Equal(t, http.StatusCreated, got.status, got.body)
	refused(t, n.as("ann:ann-"+secret, http.MethodGet, "/", ""), http.StatusUnauthorized, "unauthorized", "Name or password is incorrect.")
	login := func(kind, body string) answer {
		return n.do(http.MethodPost, "/_session", body, "Content-Type", kind, "Authorization", nobody)
	}
	const form = "application/x-www-form-urlencoded"
	refused(t, login(form, "name=ann&password=ann-"+secret), http.StatusUnauthorized, "unauthorized", "Name or password is incorrect.")
	oneTime := func(at time.Time) string { // RFC 4226 and 6238
		mac := hmac.New(sha1.New, []byte("12345678901234567890"))
		step, err := hex.DecodeString(fmt.Sprintf("%016x", at.Unix()/30))
		require.NoError(t, err)
		_, err = mac.Write(step)
		require.NoError(t, err)
		sum := mac.Sum(nil)
		offset := sum[len(sum)-1] & 0xf
		code, err := strconv.ParseUint(hex.EncodeToString(sum[offset:offset+4]), 16, 32)
		require.NoError(t, err)
		return fmt.Sprintf("%06d", code&0x7fffffff%1_000_000)
	}
	now := time.Now()
	one, next := oneTime(now), oneTime(now.Add(30*time.Second)) // the next is right half a minute before its time
	inJSON := func(token string) answer {
		return login("application/json", `{"name":"ann","password":"ann-`+secret+`","token":"`+token+`"}`)
	}
	require.Equal(t, http.StatusOK, login(form, "name=ann&password=ann-"+secret+"&token="+one).status)
	refused(t, inJSON(one), http.StatusUnauthorized, "unauthorized", "Name or password is incorrect.")
	require.Equal(t, http.StatusOK, inJSON(next).status)
}
