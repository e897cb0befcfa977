package frontend_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
)

// As in CouchDB, see accounts.WithDocumentRoles. Cookies and passwords give the same roles, and functions see them.
func TestRolesOfAdministratorsInSessions(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewUser(webtest.AdminName, "editor", "x")
	const roles = `["_admin","editor","x"]`
	require.JSONEq(t, `{"ok":true,"userCtx":{"name":"`+webtest.AdminName+`","roles":`+roles+`},
		"info":{"authentication_handlers":["cookie","default"],"authenticated":"default"}}`, n.Get("/_session").Is(t, http.StatusOK).Body)
	login := n.As(webtest.Nobody, http.MethodPost, "/_session", `{"name":"`+webtest.AdminName+`","password":"`+webtest.AdminPassword+`"}`).Is(t, http.StatusOK)
	require.JSONEq(t, `{"ok":true,"name":"`+webtest.AdminName+`","roles":`+roles+`}`, login.Body)
	cookie, _, _ := strings.Cut(login.Header.Get("Set-Cookie"), ";")
	got := n.As(webtest.Nobody, http.MethodGet, "/_session", "", "Cookie", cookie).Is(t, http.StatusOK)
	require.Contains(t, got.Body, `"userCtx":{"name":"`+webtest.AdminName+`","roles":`+roles+`}`)
	n.NewDatabase("db")
	n.Do(http.MethodPut, "/db/_design/d", `{"validate_doc_update":"function (d, o, user) { throw({forbidden: user.roles.join()}) }"}`).Is(t, http.StatusCreated)
	webtest.Refused(t, n.Do(http.MethodPut, "/db/x", `{}`), http.StatusForbidden, "forbidden", "_admin,editor,x")
}

func TestRecordedSessions(t *testing.T) {
	t.Parallel()
	n := start(t, "admins/other=password")
	n.NewDatabase("wire")
	for number, authorization := range map[int]string{8: webtest.Nobody, 9: webtest.Basic("admin", "nope")} {
		e := webtest.Recorded(t, number)
		got := n.Do(e.Method, e.Target, "", "Authorization", authorization)
		n.RequireSame(e, got, webtest.SameText)
		require.Empty(t, got.Header.Get("WWW-Authenticate"))
	}
	for number, password := range map[int]string{10: webtest.AdminPassword, 11: "nope"} {
		e := webtest.Recorded(t, number)
		got := n.As(webtest.Nobody, e.Method, e.Target, `{"name": "admin", "password": "`+password+`"}`)
		n.RequireSame(e, got, webtest.SameText)
		value := regexp.MustCompile(`AuthSession=[^;]*|Expires=[^;]*`)
		want := value.ReplaceAllString(e.Answer.Header.Get("Set-Cookie"), "x")
		require.Equal(t, want+"; SameSite=Lax", value.ReplaceAllString(got.Header.Get("Set-Cookie"), "x"))
		require.Equal(t, password == webtest.AdminPassword, !strings.HasPrefix(got.Header.Get("Set-Cookie"), "AuthSession=;"))
		require.Regexp(t, `Expires=\w{3}, \d\d-\w{3}-\d{4} \d\d:\d\d:\d\d GMT;`, got.Header.Get("Set-Cookie"))
	}
	e := webtest.Recorded(t, 12)
	n.RequireSame(e, n.Do(e.Method, e.Target, ""), webtest.SameText)

	e = webtest.Recorded(t, 112)
	for range 5 {
		require.Equal(t, http.StatusUnauthorized, n.As(webtest.Nobody, e.Method, e.Target, `{"name": "other", "password": "no"}`).Status)
	}
	n.RequireSame(e, n.As(webtest.Nobody, e.Method, e.Target, `{"name": "other", "password": "password"}`), webtest.SameText)
}

// cookieOf returns the cookie that an answer sets.
func cookieOf(t *testing.T, a webtest.Answer) string {
	t.Helper()
	cookie, _, _ := strings.Cut(a.Header.Get("Set-Cookie"), ";")
	require.Regexp(t, "^AuthSession=.", cookie)
	return cookie
}

func TestSessionOfAUser(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe())
		n.NewUser("ann", "staff")
		form := url.Values{"username": {"ann"}, "password": {"ann-" + webtest.Secret}}.Encode()
		got := n.As(webtest.Nobody, http.MethodPost, "/_session?next=http://elsewhere.example", form, "Content-Type", "application/x-www-form-urlencoded; charset=utf-8").Is(t, http.StatusOK)
		require.Equal(t, `{"ok":true,"name":"ann","roles":["staff"]}`+"\n", got.Body)
		require.NotContains(t, got.Header.Get("Set-Cookie"), "Secure")
		cookie := cookieOf(t, got)
		session := func(cookie string) webtest.Answer {
			return n.Do(http.MethodGet, "/_session", "", "Authorization", webtest.Nobody, "Cookie", cookie)
		}
		got = session(cookie)
		require.JSONEq(t, `{"ok":true,"userCtx":{"name":"ann","roles":["staff"]},
			"info":{"authentication_handlers":["cookie","default"],"authenticated":"cookie"}}`, got.Body)
		require.Empty(t, got.Header.Get("Set-Cookie"))
		time.Sleep(2 * time.Minute)
		renewed := cookieOf(t, session(cookie))
		require.NotEqual(t, cookie, renewed)
		time.Sleep(9 * time.Minute)
		const anonymous = `{"ok":true,"userCtx":{"name":null,"roles":[]},"info":{"authentication_handlers":["cookie","default"]}}` + "\n"
		require.Equal(t, anonymous, session(cookie).Body)
		require.NotEqual(t, anonymous, session(renewed).Body)
		webtest.Refused(t, session("AuthSession=nonsense"), http.StatusBadRequest, "bad_request", "Malformed AuthSession cookie. Please clear your cookies.")
		webtest.Refused(t, n.As(webtest.Nobody, http.MethodGet, "/_session?basic=true", ""), http.StatusUnauthorized, "unauthorized", "Please login.")

		got = n.Do(http.MethodDelete, "/_session", "", "Authorization", webtest.Nobody, "Cookie", renewed).Is(t, http.StatusOK)
		require.True(t, strings.HasPrefix(got.Header.Get("Set-Cookie"), "AuthSession=; "), got.Header.Get("Set-Cookie"))

		// A proxy speaks TLS to the client.
		got = n.As(webtest.Nobody, http.MethodPost, "/_session", `{"name":"ann","password":"ann-`+webtest.Secret+`"}`, "X-Forwarded-Proto", "https")
		require.Contains(t, got.Header.Get("Set-Cookie"), "; Secure")

		// What is refused before any password is looked at.
		for body, reason := range map[string]string{
			`{}`:                            "request body must contain a username",
			`{"name":"a","username":"b"}`:   "request body contains different usernames",
			`{"name":7}`:                    "`name` must be a string",
			`{"name":"a","password":["x"]}`: "`password` must be a string",
			`[]`:                            "Request body must be a JSON object",
			`{"name":"a","password":"x"`:    "invalid UTF-8 JSON",
		} {
			webtest.Refused(t, n.As(webtest.Nobody, http.MethodPost, "/_session", body), http.StatusBadRequest, "bad_request", reason)
		}
		n.As(webtest.Nobody, http.MethodPost, "/_session", `{}`, "Content-Type", "text/plain").Is(t, http.StatusUnsupportedMediaType)
		n.As(webtest.Nobody, http.MethodPost, "/_session", strings.Repeat("x", 70_000)).Is(t, http.StatusRequestEntityTooLarge)
		webtest.Refused(t, n.Do(http.MethodGet, "/", "", "Authorization", "Basic !"), http.StatusBadRequest, "bad_request",
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
			got := n.As(webtest.Nobody, http.MethodGet, path, "")
			require.Equal(t, status, got.Status, "%s: %s", setting, path)
			challenge := ""
			if status == http.StatusUnauthorized && strings.Contains(setting, "user=") {
				challenge = `Basic realm="server"`
			}
			require.Equal(t, challenge, got.Header.Get("WWW-Authenticate"), setting)
		}
		n.As(webtest.Nobody, http.MethodPost, "/_session", `{"name":"`+webtest.AdminName+`","password":"`+webtest.AdminPassword+`"}`).Is(t, http.StatusOK)
	}
}

// {"alg":"HS256","typ":"JWT"} {"sub":"ann","exp":4102444800,"_couchdb.roles":["staff"]}, by the secret "key"
const token = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsIl9jb3VjaGRiLnJvbGVzIjpbInN0YWZmIl19.4euW1e_OsgKo7IahVEd4Ik57QF1NrT0o1mlsv08Y1gQ"

func TestBearerToken(t *testing.T) {
	t.Parallel()
	const handlers = "chttpd/authentication_handlers={chttpd_auth, jwt_authentication_handler}, {chttpd_auth, default_authentication_handler}"
	n := start(t, handlers, "jwt_keys/hmac:_default=a2V5")
	got := n.Do(http.MethodGet, "/_session", "", "Authorization", "Bearer "+token)
	require.JSONEq(t, `{"ok":true,"userCtx":{"name":"ann","roles":["staff"]},
		"info":{"authentication_handlers":["jwt","default"],"authenticated":"jwt"}}`, got.Body)
	webtest.Refused(t, n.Do(http.MethodGet, "/", "", "Authorization", "Bearer "+token+"x"), http.StatusBadRequest, "bad_request",
		"Bad signature in authentication token")
	webtest.Refused(t, n.Do(http.MethodGet, "/_all_dbs", "", "Authorization", "Bearer "+token), http.StatusUnauthorized, "unauthorized",
		"You are not a server admin.")

	without := start(t, "jwt_keys/hmac:_default=a2V5")
	got = without.Do(http.MethodGet, "/_session", "", "Authorization", "Bearer "+token)
	require.Contains(t, got.Body, `"name":null`, "tokens are taken where the configuration says so")
}

// A password that is put into the configuration is hashed before it is stored.
func TestAdminsInTheStore(t *testing.T) {
	t.Parallel()
	db := webtest.Memory(t)
	n := startOn(t, db, webtest.ListenTCP(t))
	says(t, n.setConfig("admins/root", "first-"+webtest.Secret), "")
	require.Equal(t, http.StatusOK, n.As("root:first-"+webtest.Secret, http.MethodGet, "/_all_dbs", "").Status)
	says(t, n.setConfig("admins/root", "second-"+webtest.Secret), "****")
	require.Equal(t, http.StatusUnauthorized, n.As("root:first-"+webtest.Secret, http.MethodGet, "/_all_dbs", "").Status)
	require.Equal(t, http.StatusOK, n.As("root:second-"+webtest.Secret, http.MethodGet, "/_all_dbs", "").Status)
	require.Contains(t, n.Config.Current().Shown()["admins"], "root")
	require.Equal(t, http.StatusOK, n.Do(http.MethodDelete, configPath+"/admins/root", "").Status)
	require.Equal(t, http.StatusUnauthorized, n.As("root:second-"+webtest.Secret, http.MethodGet, "/_all_dbs", "").Status)
}

func TestUserIsInTheLog(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Get("/_all_dbs")
	require.Equal(t, webtest.AdminName, n.Journal.Line(t, `"path":"/_all_dbs"`)["user"])
	n.As(webtest.Nobody, http.MethodGet, "/_active_tasks", "")
	require.Empty(t, n.Journal.Line(t, `"path":"/_active_tasks"`)["user"])
	n.As(webtest.AdminName+":wrong", http.MethodGet, "/_up", "")
	line := n.Journal.Line(t, "a login failed")
	require.Equal(t, "127.0.0.1", line["from"])
	require.Equal(t, webtest.AdminName, line["name"])
}

// A one-time password comes with the login: never with a request.
func TestOneTimePasswords(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.UsersDatabase()
	const key = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ" // base32 of 12345678901234567890
	got := n.Do(http.MethodPut, "/_users/org.couchdb.user:ann",
		`{"type":"user","name":"ann","roles":[],"password":"ann-`+webtest.Secret+`","totp":{"key":"`+key+`"}}`)
	require.Equal(t, http.StatusCreated, got.Status, got.Body)
	webtest.Refused(t, n.As("ann:ann-"+webtest.Secret, http.MethodGet, "/", ""), http.StatusUnauthorized, "unauthorized", "Name or password is incorrect.")
	login := func(kind, body string) webtest.Answer {
		return n.Do(http.MethodPost, "/_session", body, "Content-Type", kind, "Authorization", webtest.Nobody)
	}
	const form = "application/x-www-form-urlencoded"
	webtest.Refused(t, login(form, "name=ann&password=ann-"+webtest.Secret), http.StatusUnauthorized, "unauthorized", "Name or password is incorrect.")
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
	inJSON := func(token string) webtest.Answer {
		return login("application/json", `{"name":"ann","password":"ann-`+webtest.Secret+`","token":"`+token+`"}`)
	}
	require.Equal(t, http.StatusOK, login(form, "name=ann&password=ann-"+webtest.Secret+"&token="+one).Status)
	webtest.Refused(t, inJSON(one), http.StatusUnauthorized, "unauthorized", "Name or password is incorrect.")
	require.Equal(t, http.StatusOK, inJSON(next).Status)
}
