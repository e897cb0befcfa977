package frontend_test

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"
)

var userAnswersFile = filepath.Join("testdata", "useranswers.json")

// usersSecurity are the security objects of _users that are compared: the default one, and those with which strangers sign up.
var usersSecurity = map[string]string{
	"closed": `{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}`,
	"open":   `{}`,
	"named":  `{"admins":{"names":["boss"]},"members":{"names":[],"roles":[]}}`,
	"staff":  `{"members":{"roles":["staff"]}}`,
}

// callers are the users that ask: an anonymous one, one with the role staff, an administrator of the database if it has
// one, and a server administrator.
var callers = []string{"", "ann", "boss", "root"}

// askAsUsers returns the requests about _users of one caller. None changes what another one asks for.
func askAsUsers(security, caller string) (all []asked) {
	const users, bob, none = "/_users", "/_users/org.couchdb.user:bob", "/_users/org.couchdb.user:none"
	id := func(name string) string { return users + "/org.couchdb.user:" + name }
	doc := func(name, members string) string { return `{"type":"user","name":"` + name + `"` + members + `}` }
	own := cmp.Or(caller, "none")
	all = append(all,
		asked{method: http.MethodHead, target: users}, asked{method: http.MethodPut, target: users},
		askGet(users+"/_security"), askGet(users+"/_revs_limit"), askPost(users+"/_ensure_full_commit", ""),
		askGet(users+"/_all_docs?limit=0"), askPost(users+"/_all_docs", `{"limit":0}`), askPost(users+"/_all_docs/queries", `{"queries":[]}`),
		askGet(users+"/_changes?limit=0"), askPost(users+"/_changes?limit=0", `{}`),
		askGet(users+"/_design/d"), askGet(users+"/_design/none"), askGet(users+"/_design/d/a"), askGet(users+"/_local/x"),
		askGet(bob), asked{method: http.MethodHead, target: bob}, askGet(none), asked{method: http.MethodHead, target: none}, askGet(users+"/other"),
		askGet(bob+"?rev=1-a"), askGet(none+"?rev=1-a"), askGet(bob+"?revs_info=true"), askGet(bob+"?conflicts=true&deleted_conflicts=true"),
		askGet(none+"?open_revs=all"), askGet(bob+`?open_revs=%5B%221-a%22%5D`), askGet(none+`?open_revs=%5B%221-a%22%5D`),
		askGet(bob+"/a"), askGet(none+"/a"), asked{method: http.MethodHead, target: bob + "/a"}, asked{method: http.MethodDelete, target: bob + "/a"},
		asked{method: http.MethodDelete, target: bob}, asked{method: http.MethodDelete, target: none},
		asked{method: http.MethodDelete, target: bob + "?rev=1-a"}, asked{method: http.MethodDelete, target: none + "?rev=1-a"},
		asked{"COPY", bob, "", []string{"Destination", "org.couchdb.user:copy"}}, asked{"COPY", none, "", []string{"Destination", "x"}},
		askPut(bob, doc("bob", `,"roles":[]`)), askPut(bob+"?rev=1-a", doc("bob", `,"roles":[]`)), askPut(bob, doc("bob", `,"roles":[],"password":"weak"`)),
		askPost(users, `{"_id":"org.couchdb.user:bob"}`), askPost(users+"/_bulk_docs", `{"docs":[]}`),
	)
	if security != "closed" && (security != "staff" || caller == "ann") || caller == "" || caller == "root" {
		all = append(all, askGet(id(own)), asked{method: http.MethodHead, target: id(own)}, askGet(id(own)+"/a"),
			askPut(id(own), doc(own, `,"roles":["staff"]`)))
	}
	// Signing up.
	n := 0
	name := func() string {
		n++
		return "new" + string(rune('a'+n)) + security + caller
	}
	for _, members := range []string{
		`,"roles":[]`, `,"roles":[],"password":"pass1"`, `,"roles":[],"password":"weak"`, `,"roles":[],"password":""`, `,"roles":[],"password":null`,
		`,"roles":[],"email":"a@example.org","prefs":{"a":[1]}`, `,"roles":["a"]`, `,"roles":["_admin"]`, `,"roles":["_metrics"]`, ``,
		`,"roles":[],"_attachments":{"a":{"data":"eg=="}}`, `,"roles":[],"password_scheme":"md5"`,
		`,"roles":[],"password_scheme":"pbkdf2","pbkdf2_prf":"sha256","iterations":10,"salt":"s","derived_key":"` + strings.Repeat("ab", 32) + `"`,
	} {
		made := name()
		all = append(all, askPut(id(made), doc(made, members)), askGet(id(made)), askPut(id(made), doc(made, `,"roles":[]`)))
	}
	made := name()
	return append(all,
		askPut(id(made), `{"name":"`+made+`","roles":[]}`), askPut(id(made), `{"type":"user","roles":[]}`), askPut(id(made), doc("other", `,"roles":[]`)),
		askPut(users+"/"+made, doc(made, `,"roles":[]`)), askPut(id("_"+made), doc("_"+made, `,"roles":[]`)), askPut(id("a:"+made), doc("a:"+made, `,"roles":[]`)),
		askPut(id(made)+"?rev=1-a", doc(made, `,"roles":[]`)), askPut(id(made), `{"_rev":"1-a"}`),
		askPost(users, `{"_id":"org.couchdb.user:`+made+`","type":"user","name":"`+made+`","roles":[]}`), askPost(users, doc(made, `,"roles":[]`)),
	)
}

// bulkOfStranger are documents of one anonymous request.
const bulkOfStranger = `{"docs":[{"_id":"org.couchdb.user:bulk","type":"user","name":"bulk","roles":[]},
	{"_id":"org.couchdb.user:bulk2","type":"user","name":"bulk2","roles":["a"]},{"_id":"org.couchdb.user:bob","type":"user","name":"bob","roles":[]},
	{"_id":"_design/x"},{"_id":"other","type":"user","name":"other","roles":[]}]}`

// heard is an answer of a session, with its request.
type heard struct {
	security, caller string
	asked
	said
}

// userSession makes users, sends all requests to a server, and returns the answers. Revisions are hashes over salts, so
// they are left out, and so is what documents and databases contain.
func userSession(ask func(caller string, r asked) said) (all []heard) {
	for _, name := range []string{"ann", "boss", "bob"} {
		roles := map[string]string{"ann": `["staff"]`}[name]
		ask("root", askPut("/_users/org.couchdb.user:"+name,
			`{"type":"user","name":"`+name+`","roles":`+cmp.Or(roles, "[]")+`,"password":"`+userPassword+`"}`))
	}
	ask("root", askPut("/_users/_design/d", `{"filters":{"f":"function(){return true}"}}`))
	for _, security := range []string{"closed", "open", "named", "staff"} {
		ask("root", askPut("/_users/_security", usersSecurity[security]))
		add := func(caller string, r asked) {
			got := ask(caller, r)
			got.Body = revisions.ReplaceAllString(strings.TrimSpace(got.Body), "REV")
			if got.Status < http.StatusBadRequest && !strings.HasPrefix(got.Body, "[") {
				got.Body = ""
			}
			all = append(all, heard{security, caller, r, got})
		}
		for _, caller := range callers {
			for _, r := range askAsUsers(security, caller) {
				add(caller, r)
			}
		}
		if security == "open" {
			add("", askPost("/_users/_bulk_docs", bulkOfStranger))
		}
	}
	return all
}

const userPassword = "pass-1"

var revisions = regexp.MustCompile(`\b[0-9]+-[0-9a-f]{32}\b`)

func recordedUserAnswers(t *testing.T) (answers []said) {
	t.Helper()
	text, err := os.ReadFile(userAnswersFile)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &answers))
	return answers
}

// The answers of a CouchDB 3.5.0 about _users: to strangers, users and administrators.
func TestAnswersAboutUsers(t *testing.T) {
	t.Parallel()
	n := start(t, "couchdb/users_db_security_editable=true", `chttpd_auth/password_regexp=["^$|[0-9]"]`)
	n.UsersDatabase()
	recorded := recordedUserAnswers(t)
	all := userSession(func(caller string, r asked) said {
		who := caller + ":" + userPassword
		switch caller {
		case "":
			who = webtest.Nobody
		case "root":
			who = webtest.AdminName + ":" + webtest.AdminPassword
		}
		got := n.As(who, r.method, r.target, r.body, r.headers...)
		return said{got.Status, got.Body}
	})
	require.Len(t, recorded, len(all))
	for i, got := range all {
		r := got.asked
		r.method = got.security + ", " + got.caller + ": " + r.method
		if recorded[i].Body == "" {
			require.Equal(t, recorded[i].Status, got.Status, "%s %s %s: %s", r.method, r.target, r.body, got.Body)
			continue
		}
		requireSaid(t, r, recorded[i], got.said, false)
	}
}

// TestRecordedAnswersAboutUsers compares the recorded answers with those of a CouchDB.
func TestRecordedAnswersAboutUsers(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	server := couchtest.StartCouchDB(t, map[string]map[string]string{
		"couchdb":     {"users_db_security_editable": "true"},
		"chttpd_auth": {"password_regexp": `["^$|[0-9]"]`},
	})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ask := func(caller string, r asked) said {
		request, err := http.NewRequestWithContext(t.Context(), r.method, server.URL+r.target, strings.NewReader(r.body))
		require.NoError(t, err)
		for pair := range slices.Chunk(r.headers, 2) {
			request.Header.Set(pair[0], pair[1])
		}
		switch caller {
		case "":
		case "root":
			request.SetBasicAuth(server.Username, server.Password)
		default:
			request.SetBasicAuth(caller, userPassword)
		}
		answer, err := client.Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return said{answer.StatusCode, string(body)}
	}
	// CouchDB writes the function that validates documents after it has begun to answer, and runs it from then on.
	require.Eventually(t, func() bool { return ask("root", askGet("/_users/_design/_auth")).Status == http.StatusOK },
		time.Minute, 10*time.Millisecond)
	var answers []said
	for _, got := range userSession(ask) {
		answers = append(answers, got.said)
	}
	if *recordAnswers {
		text, err := json.MarshalIndent(answers, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(userAnswersFile, append(text, '\n'), 0o644))
		return
	}
	require.Equal(t, recordedUserAnswers(t), answers)
}
