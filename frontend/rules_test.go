package frontend_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend"
	"settee/frontend/internal/webtest"
	"settee/pkg/docstore"
)

// The statuses, in the order of people: with none of them anything is changed that later rows
// need.
var rules = []struct {
	method, target, body          string
	root, admin, member, user, no int
}{
	// The server.
	{"GET", "/", "", 200, 200, 200, 200, 200},
	{"GET", "/_up", "", 200, 200, 200, 200, 200},
	{"GET", "/_uuids", "", 200, 200, 200, 200, 200},
	{"GET", "/_session", "", 200, 200, 200, 200, 200},
	{"DELETE", "/_session", "", 200, 200, 200, 200, 200},
	{"POST", "/_session", `{}`, 400, 400, 400, 400, 400},
	{"GET", "/_utils", "", 200, 200, 200, 200, 200},
	{"GET", "/_utils/", "", 200, 200, 200, 200, 200},
	{"GET", "/_utils/main.js", "", 200, 200, 200, 200, 200},
	{"GET", "/_utils/none", "", 404, 404, 404, 404, 404},
	{"POST", "/_utils/main.js", "", 405, 401, 401, 401, 401},
	{"GET", "/_all_dbs", "", 200, 401, 401, 401, 401},
	{"GET", "/_db_updates", "", 200, 401, 401, 401, 401},
	{"GET", "/_dbs_info", "", 200, 401, 401, 401, 401},
	{"POST", "/_dbs_info", `{"keys":[]}`, 200, 401, 401, 401, 401},
	{"GET", "/_all_dbs/x", "", 404, 401, 401, 401, 401},
	{"POST", "/_dbs_info/x", "", 404, 401, 401, 401, 401},
	{"GET", "/_active_tasks", "", 200, 401, 401, 401, 401},
	{"POST", "/_replicate", `{}`, 400, 400, 400, 400, 401},
	{"POST", "/_replicate", `{"cancel":true,"replication_id":"x"}`, 404, 404, 404, 404, 401},
	{"GET", "/_scheduler/jobs", "", 200, 200, 200, 200, 401},
	{"GET", "/_scheduler/jobs?user=root", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/jobs?user=", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/jobs?database=_replicator", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/jobs/x", "", 404, 404, 404, 404, 401},
	{"GET", "/_scheduler/jobs/x/definition", "", 404, 404, 404, 404, 401},
	{"GET", "/_scheduler/jobs/x/failures", "", 404, 404, 404, 404, 401},
	{"POST", "/_scheduler/check", `{}`, 400, 400, 400, 400, 401},
	{"POST", "/_scheduler/jobs/x/_run", "", 404, 404, 404, 404, 401},
	{"GET", "/_scheduler/jobs/x/_run", "", 405, 405, 405, 405, 401},
	{"POST", "/_scheduler/jobs/x/_acknowledge", "{}", 404, 404, 404, 404, 401},
	{"DELETE", "/_scheduler/jobs/x/_acknowledge", "", 404, 404, 404, 404, 401},
	{"POST", "/_scheduler/problems/_acknowledge", `{"kind":"failing"}`, 404, 401, 401, 401, 401},
	{"GET", "/_scheduler/summary", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/problems", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/rates", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/shares", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/docs", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/docs/_replicator", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/docs/_replicator/x", "", 404, 401, 401, 401, 401},
	{"GET", "/_scheduler/nodes", "", 200, 401, 401, 401, 401},
	{"GET", "/_membership", "", 200, 401, 401, 401, 401},
	{"GET", "/_cluster_setup", "", 200, 401, 401, 401, 401},
	{"POST", "/_cluster_setup", `{"action":"finish_cluster"}`, 400, 401, 401, 401, 401},
	{"GET", "/_node", "", 400, 401, 401, 401, 401},
	{"GET", "/_node/_local", "", 200, 401, 401, 401, 401},
	{"GET", "/_node/_local/_config", "", 200, 401, 401, 401, 401},
	{"GET", "/_node/_local/_config/admins", "", 200, 401, 401, 401, 401},
	{"GET", "/_node/_local/_config/log/level", "", 200, 401, 401, 401, 401},
	{"PUT", "/_node/_local/_config/log/level", `7`, 400, 401, 401, 401, 401},
	{"DELETE", "/_node/_local/_config/log/level", "", 404, 401, 401, 401, 401},
	{"POST", "/_node/_local/_config/_reload", "", 200, 401, 401, 401, 401},
	{"POST", "/_node/_local/_backup", "", 501, 401, 401, 401, 401}, // a store without backups
	{"GET", "/_node/_local/_prometheus", "", 404, 401, 401, 401, 401},
	{"GET", "/_node/_local/_stats", "", 200, 401, 401, 401, 401},
	{"GET", "/_node/_local/_stats/couchdb/httpd", "", 200, 401, 401, 401, 401},
	{"GET", "/_node/_local/_system", "", 200, 401, 401, 401, 401},
	{"GET", "/_node/_local/_versions", "", 200, 401, 401, 401, 401},
	{"GET", "/_node/_local/_nothing", "", 404, 401, 401, 401, 401},
	{"GET", "/_nothing", "", 404, 401, 401, 401, 401},
	{"GET", "//_all_dbs//", "", 200, 401, 401, 401, 401},
	{"GET", "/%5Fall_dbs", "", 200, 401, 401, 401, 401},

	// A database.
	{"GET", "/db", "", 200, 200, 200, 403, 401},
	{"HEAD", "/db", "", 200, 200, 200, 403, 401},
	{"GET", "/none", "", 404, 404, 404, 404, 404},
	{"PUT", "/db", "", 412, 401, 401, 401, 401},
	{"DELETE", "/none", "", 404, 401, 401, 401, 401},
	{"POST", "/db", `{}`, 201, 201, 201, 403, 401},
	{"GET", "/db/_security", "", 200, 200, 200, 403, 401},
	{"PUT", "/db/_security", webtest.Security, 200, 200, 403, 403, 401},
	{"GET", "/db/_revs_limit", "", 200, 200, 200, 403, 401},
	{"PUT", "/db/_revs_limit", `1000`, 200, 200, 403, 403, 401},
	{"GET", "/db/_time_seq", "", 200, 200, 200, 403, 401},
	{"DELETE", "/db/_time_seq", "", 200, 200, 403, 403, 401},
	{"POST", "/db/_time_seq", "", 405, 405, 405, 403, 401},
	{"POST", "/db/_ensure_full_commit", "", 201, 201, 201, 403, 401},
	{"POST", "/db/_compact", "", 202, 202, 403, 403, 401},
	{"POST", "/db/_compact/x", "", 404, 404, 403, 403, 401},
	{"POST", "/db/_view_cleanup", "", 202, 202, 403, 403, 401},
	{"POST", "/db/_search_cleanup", "", 202, 202, 202, 403, 401},
	{"POST", "/db/_nouveau_cleanup", "", 202, 202, 202, 403, 401},
	{"GET", "/db/_search_cleanup", "", 405, 405, 405, 403, 401},
	{"POST", "/db/_purge", `{}`, 501, 401, 401, 401, 401},
	{"GET", "/db/_purged_infos_limit", "", 501, 401, 401, 401, 401},
	{"POST", "/db/_sync_shards", "", 501, 401, 401, 401, 401},
	{"GET", "/db/_shards", "", 501, 501, 501, 403, 401},
	{"POST", "/db/_find", `{}`, 501, 501, 501, 403, 401},
	{"POST", "/db/_index", `{}`, 501, 501, 501, 403, 401},
	{"GET", "/db/_design/d/_view/v", "", 501, 501, 501, 403, 401},
	{"GET", "/db/_design%2Fd/_view/v", "", 501, 501, 501, 403, 401},
	{"POST", "/db/_temp_view", `{}`, 501, 501, 501, 403, 401},
	{"POST", "/db/_local_docs/queries", `{}`, 400, 400, 400, 403, 401},
	{"GET", "/db/_partition/p", "", 501, 501, 501, 403, 401},
	{"GET", "/db/_all_docs", "", 200, 200, 200, 403, 401},
	{"POST", "/db/_all_docs", `{}`, 200, 200, 200, 403, 401},
	{"POST", "/db/_all_docs/queries", `{"queries":[]}`, 200, 200, 200, 403, 401},
	{"GET", "/db/_design_docs", "", 200, 200, 200, 403, 401},
	{"POST", "/db/_design_docs/queries", `{"queries":[]}`, 200, 200, 200, 403, 401},
	{"GET", "/db/_local_docs", "", 200, 200, 200, 403, 401},
	{"GET", "/db/_changes", "", 200, 200, 200, 403, 401},
	{"POST", "/db/_changes", `{}`, 200, 200, 200, 403, 401},
	{"POST", "/db/_bulk_get", `{"docs":[]}`, 200, 200, 200, 403, 401},
	{"POST", "/db/_bulk_docs", `{"docs":[]}`, 201, 201, 201, 403, 401},
	{"POST", "/db/_revs_diff", `{}`, 200, 200, 200, 403, 401},
	{"POST", "/db/_missing_revs", `{}`, 200, 200, 200, 403, 401},

	// Documents.
	{"GET", "/db/doc", "", 200, 200, 200, 403, 401},
	{"GET", "/db/doc?open_revs=all", "", 200, 200, 200, 403, 401},
	{"PUT", "/db/doc", `{}`, 409, 409, 409, 403, 401},
	{"DELETE", "/db/doc", "", 409, 409, 409, 403, 401},
	{"COPY", "/db/doc", "", 400, 400, 400, 403, 401},
	{"GET", "/db/doc/a", "", 404, 404, 404, 403, 401},
	{"PUT", "/db/doc/a", `x`, 409, 409, 409, 403, 401},
	{"DELETE", "/db/doc/a", "", 404, 404, 404, 403, 401},
	{"PUT", "/db/_local/l", `{}`, 201, 201, 201, 403, 401},
	{"GET", "/db/_local/l", "", 200, 200, 200, 403, 401},
	{"GET", "/db/_design/d", "", 200, 200, 200, 403, 401},
	{"PUT", "/db/_design/d", `{}`, 409, 409, 403, 403, 401},
	{"PUT", "/db/_design%2Fd", `{}`, 409, 409, 403, 403, 401},
	{"DELETE", "/db/_design/d", "", 409, 409, 403, 403, 401},
	{"PUT", "/db/_design/d/a", `x`, 409, 409, 403, 403, 401},
	{"DELETE", "/db/_design/d/a", "", 404, 404, 403, 403, 401},
	{"POST", "/db", `{"_id":"_design/d"}`, 409, 409, 403, 403, 401},

	// A database without a security object is for server administrators.
	{"GET", "/fresh", "", 200, 403, 403, 403, 401},
	{"POST", "/fresh", `{}`, 201, 403, 403, 403, 401},
	{"GET", "/fresh/_security", "", 200, 403, 403, 403, 401},
	// One that is everybody's.
	{"GET", "/public", "", 200, 200, 200, 200, 200},
	{"POST", "/public", `{}`, 201, 201, 201, 201, 201},
	{"PUT", "/public/_security", `{}`, 200, 403, 403, 403, 401},
	{"PUT", "/public/_design/d", `{}`, 201, 403, 403, 403, 401},

	// A replicator database with that security object: what lists revisions is for administrators.
	{"GET", "/x%2F_replicator", "", 200, 200, 200, 403, 401},
	{"PUT", "/x%2F_replicator", "", 412, 401, 401, 401, 401},
	{"GET", "/x%2F_replicator/_all_docs", "", 200, 200, 403, 403, 401},
	{"GET", "/x%2F_replicator/_design_docs", "", 200, 200, 403, 403, 401},
	{"POST", "/x%2F_replicator/_all_docs/queries", `{"queries":[]}`, 200, 200, 403, 403, 401},
	{"GET", "/x%2F_replicator/_changes", "", 200, 200, 403, 403, 401},
	{"POST", "/x%2F_replicator/_revs_diff", `{}`, 200, 200, 403, 403, 401},
	{"POST", "/x%2F_replicator/_missing_revs", `{}`, 200, 200, 403, 403, 401},
	{"POST", "/x%2F_replicator/_bulk_get", `{"docs":[]}`, 200, 200, 200, 403, 401},
	{"GET", "/x%2F_replicator/rep", "", 404, 404, 404, 403, 401},
	{"PUT", "/x%2F_replicator/rep", `{}`, 403, 403, 403, 403, 401}, // it is no replication
	{"GET", "/_replicator", "", 200, 403, 403, 403, 401},
	{"PUT", "/_replicator/rep", `{}`, 403, 403, 403, 403, 401},

	// Users: eve is "user". Of her document she has but one revision to replace. What CouchDB answers to the same requests
	// is in useranswers_test.go.
	{"GET", "/_users", "", 200, 403, 403, 403, 401},
	{"POST", "/_users", `{}`, 403, 403, 403, 403, 401},
	{"GET", "/_users/_all_docs", "", 200, 401, 401, 401, 401},
	{"GET", "/_users/_changes", "", 200, 401, 401, 401, 401},
	{"POST", "/_users/_bulk_get", `{"docs":[]}`, 200, 403, 403, 403, 401},
	{"POST", "/_users/_bulk_docs", `{"docs":[]}`, 201, 403, 403, 403, 401},
	{"GET", "/_users/org.couchdb.user:eve", "", 200, 403, 403, 200, 401},
	{"GET", "/_users/org.couchdb.user:eve?open_revs=all", "", 200, 403, 403, 200, 401},
	{"PUT", "/_users/org.couchdb.user:eve", `{"type":"user","name":"eve","roles":[]}`, 409, 403, 403, 409, 401},
	{"DELETE", "/_users/org.couchdb.user:eve", "", 409, 403, 403, 409, 401},
	{"GET", "/_users/org.couchdb.user:none", "", 404, 403, 403, 403, 401},
	{"PUT", "/_users/org.couchdb.user:none", `{}`, 403, 403, 403, 403, 401},
	{"GET", "/_users/_design/d", "", 404, 403, 403, 403, 401},
	{"GET", "/_users/_local/l", "", 404, 403, 403, 403, 401},
	{"GET", "/_users/_security", "", 200, 403, 403, 403, 401},
	{"PUT", "/_users/_security", `{}`, 403, 403, 403, 403, 401},

	// Another database of users, with that security object. Everything but the lists is as in _users with it.
	{"GET", "/x%2F_users", "", 200, 200, 200, 403, 401},
	{"GET", "/x%2F_users/_all_docs", "", 200, 200, 403, 403, 401},
	{"GET", "/x%2F_users/_changes", "", 200, 200, 403, 403, 401},
	{"GET", "/x%2F_users/_design_docs", "", 200, 200, 403, 403, 401},
	{"GET", "/x%2F_users/_local_docs", "", 200, 200, 403, 403, 401},
	{"POST", "/x%2F_users/_revs_diff", `{}`, 200, 200, 403, 403, 401},
	{"POST", "/x%2F_users/_missing_revs", `{}`, 200, 200, 403, 403, 401},
	{"POST", "/x%2F_users/_bulk_get", `{"docs":[]}`, 200, 200, 200, 403, 401},
	{"GET", "/x%2F_users/org.couchdb.user:bob", "", 200, 200, 404, 403, 401},
	{"GET", "/x%2F_users/org.couchdb.user:none", "", 404, 404, 404, 403, 401},
	{"GET", "/x%2F_users/_local/l", "", 404, 404, 404, 403, 401},
	{"PUT", "/x%2F_users/_local/l", `{`, 400, 400, 400, 403, 401},
	{"PUT", "/x%2F_users/org.couchdb.user:bob", `{"type":"user","name":"bob","roles":[]}`, 409, 409, 404, 403, 401},
	{"PUT", "/x%2F_users/org.couchdb.user:bob/a", `x`, 409, 409, 404, 403, 401},
	{"DELETE", "/x%2F_users/org.couchdb.user:bob/a", "", 404, 404, 404, 403, 401},
	{"DELETE", "/x%2F_users/org.couchdb.user:bob", "", 409, 409, 404, 403, 401},
	{"PUT", "/x%2F_users/_design/d", `{`, 400, 400, 403, 403, 401},
	{"DELETE", "/none%2F_users", "", 404, 401, 401, 401, 401},
}

func TestRules(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	n.With("db", webtest.Security)
	n.With("x/_replicator", webtest.Security)
	n.With("public", "{}")
	n.setConfig("couchdb/users_db_security_editable", "true").Is(t, http.StatusOK)
	n.With("x/_users", webtest.Security)
	n.setConfig("couchdb/users_db_security_editable", "false").Is(t, http.StatusOK)
	n.Put("/x%2F_users/org.couchdb.user:bob", `{"type":"user","name":"bob","roles":[]}`).Is(t, http.StatusCreated)
	for _, path := range []string{"/fresh", "/_replicator", "/db/doc", "/db/_design/d"} {
		require.Equal(t, http.StatusCreated, n.Do(http.MethodPut, path, "{}").Status)
	}
	for _, rule := range rules {
		for i, want := range []int{rule.root, rule.admin, rule.member, rule.user, rule.no} {
			who := p.All()[i]
			got := n.As(who, rule.method, rule.target, rule.body)
			name, _, _ := strings.Cut(who, ":")
			assert.Equal(t, want, got.Status, "%s: %s %s: %s", name, rule.method, rule.target, got.Body)
		}
	}
}

// A path that is not in the table is open to somebody by accident.
// A user with the role _metrics reads metrics, and has no other right of a server administrator.
func TestMonitors(t *testing.T) {
	t.Parallel()
	n := start(t)
	monitor := n.NewUser("prometheus", "_metrics")
	for target, want := range map[string]int{
		"/_node/_local/_prometheus": http.StatusNotFound, // there are none, but it may look
		"/_node/_local/_stats":      http.StatusOK,
		"/_node/_local/_stats/a/b":  http.StatusOK,
		"/_node/_local/_system":     http.StatusOK,
		"/_node/_local/_versions":   http.StatusUnauthorized,
		"/_node/_local/_config":     http.StatusUnauthorized,
		"/_membership":              http.StatusUnauthorized,
		"/_scheduler/nodes":         http.StatusUnauthorized,
		"/_node/_local":             http.StatusUnauthorized,
		"/_active_tasks":            http.StatusUnauthorized,
		"/_scheduler/docs":          http.StatusUnauthorized,
	} {
		assert.Equal(t, want, n.As(monitor, http.MethodGet, target, "").Status, target)
	}
	assert.Equal(t, http.StatusUnauthorized, n.As(monitor, http.MethodPost, "/_node/_local/_prometheus", "").Status)
}

func TestRulesAreOfAllPaths(t *testing.T) {
	t.Parallel()
	n := start(t)
	templates, err := n.handler.Templates()
	require.NoError(t, err)
	tested := map[string]bool{}
	for _, rule := range rules {
		template, err := n.handler.TemplateOf(rule.method, rule.target)
		require.NoError(t, err)
		tested[template] = true
	}
	for _, template := range templates {
		assert.True(t, tested[template], template)
	}
}

// The words are CouchDB's.
func TestReasons(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	n.With("db", webtest.Security)
	for _, test := range []struct {
		who, method, target string
		status              int
		code, reason        string
	}{
		{webtest.Nobody, "GET", "/db", 401, "unauthorized", "You are not authorized to access this db."},
		{p.User, "GET", "/db", 403, "forbidden", "You are not allowed to access this db."},
		{webtest.Nobody, "GET", "/_all_dbs", 401, "unauthorized", "You are not a server admin."},
		{webtest.Nobody, "GET", "/_node/_local/_stats/a", 401, "unauthorized", "You are not a server admin or read-only metrics user"},
		{p.User, "PUT", "/new", 401, "unauthorized", "You are not a server admin."},
		{p.Member, "PUT", "/db/_security", 403, "forbidden", "You are not a db or server admin."},
		{webtest.Nobody, "POST", "/_replicate", 401, "unauthorized", "You are not an authenticated user"},
		{webtest.Nobody, "GET", "/none", 404, "not_found", "Database does not exist."},
		{p.Root, "PUT", "/_users/_security", 403, "forbidden", "You can't edit the security object of the user database."},
	} {
		webtest.Refused(t, n.As(test.who, test.method, test.target, ""), test.status, test.code, test.reason)
	}
}

// A member loses what the security object gave as soon as it says something else.
func TestSecurityCountsAtOnce(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	n.With("db", webtest.Security)
	require.Equal(t, http.StatusOK, n.As(p.Member, http.MethodGet, "/db", "").Status)
	require.Equal(t, http.StatusOK, n.As(p.Admin, http.MethodPut, "/db/_security", `{"members":{"names":["eve"]}}`).Status)
	require.Equal(t, http.StatusForbidden, n.As(p.Member, http.MethodGet, "/db", "").Status)
	require.Equal(t, http.StatusForbidden, n.As(p.Admin, http.MethodGet, "/db", "").Status)
	require.Equal(t, http.StatusOK, n.As(p.User, http.MethodGet, "/db", "").Status)
}

// A feed ends when its user may no longer read the database, or when that is unknown.
func TestFeedsEndWithTheirRights(t *testing.T) {
	for name, test := range map[string]struct {
		who  func(webtest.People) string
		lose func(n *node)
	}{
		"security": {func(p webtest.People) string { return p.Member }, func(n *node) {
			require.Equal(n, http.StatusOK, n.Do(http.MethodPut, "/db/_security", `{"members":{"names":["eve"]}}`).Status)
		}},
		"roles": {func(p webtest.People) string { return p.Member }, func(n *node) {
			user := n.Get("/_users/org.couchdb.user:ann").Body
			require.Equal(n, http.StatusCreated, n.Put("/_users/org.couchdb.user:ann", strings.Replace(user, `"staff"`, "", 1)).Status)
		}},
		"account": {func(p webtest.People) string { return p.Member }, func(n *node) {
			rev := n.Get("/_users/org.couchdb.user:ann").JSON(n.T)["_rev"].(string)
			require.Equal(n, http.StatusOK, n.Do(http.MethodDelete, "/_users/org.couchdb.user:ann?rev="+rev, "").Status)
		}},
		"server administrator": {func(webtest.People) string { return "other:other-" + webtest.Secret }, func(n *node) {
			require.Equal(n, http.StatusOK, n.Do(http.MethodDelete, "/_node/_local/_config/admins/other", "").Status)
		}},
		"nobody": {func(webtest.People) string { return webtest.Nobody }, func(n *node) {
			require.Equal(n, http.StatusOK, n.Do(http.MethodPut, "/db/_security", webtest.Security).Status)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, n *node, db *docstore.Database) {
				p := n.NewPeople()
				n.With("db", webtest.Security)
				if name == "nobody" {
					n.With("db", "{}")
				}
				require.Equal(t, http.StatusOK, n.setConfig("admins/other", "other-"+webtest.Secret).Status)
				authorization := webtest.Nobody
				if user, password, found := strings.Cut(test.who(p), ":"); found {
					authorization = webtest.Basic(user, password)
				}
				var feeds []*webtest.Feed
				for _, query := range []string{"?feed=continuous&since=now", "?feed=continuous&since=now&heartbeat=5000", "?feed=longpoll&since=now"} {
					feeds = append(feeds, n.Follow(query, "Authorization", authorization))
				}
				mine := n.Follow("?feed=continuous&since=now")
				time.Sleep(2 * time.Second)
				webtest.Write(t, db, webtest.Doc("shown", `{}`))
				for _, f := range feeds[:2] {
					f.Expect(webtest.Changed("shown"))
				}
				feeds[2].Expect(`{"results":[`, webtest.Changed("shown"))
				require.Equal(t, webtest.FeedTail, feeds[2].Rest())

				test.lose(n)
				time.Sleep(2 * time.Second)
				webtest.Write(t, db, webtest.Doc("hidden", `{}`))
				for _, f := range feeds[:2] {
					require.Equal(t, webtest.FeedLast, f.Rest())
				}
				mine.Expect(webtest.Changed("shown"), webtest.Changed("hidden"))
			})
		})
	}
}

// One that is silent ends with its next heartbeat.
func TestSilentFeedsEndWithTheirRights(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, _ *docstore.Database) {
		p := n.NewPeople()
		n.With("db", webtest.Security)
		user, password, _ := strings.Cut(p.Member, ":")
		f := n.Follow("?feed=continuous&since=now&heartbeat=5000", "Authorization", webtest.Basic(user, password))
		f.Expect("")
		n.With("db", "{}")
		require.Equal(t, webtest.FeedLast, f.Rest())
		f.After(10 * time.Second)
	})
}

// Design documents can be written in many ways.
func TestDesignDocumentsAreAdministrators(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	n.With("db", webtest.Security)
	require.Equal(t, http.StatusCreated, n.As(p.Admin, http.MethodPut, "/db/_design/d", "{}").Status)
	require.Equal(t, http.StatusCreated, n.As(p.Member, http.MethodPut, "/db/doc", "{}").Status)
	require.Equal(t, http.StatusForbidden, n.As(p.Member, "COPY", "/db/doc", "", "Destination", "_design/e").Status)
	require.Equal(t, http.StatusForbidden, n.As(p.Member, "COPY", "/db/_design/d", "", "Destination", "_design%2fe").Status)
	for _, edits := range []string{"true", "false"} {
		got := n.As(p.Member, http.MethodPost, "/db/_bulk_docs", `{"new_edits":`+edits+`,"docs":[{"_id":"_design/e","_rev":"1-a"},{"_id":"_design/f","_rev":"1-b"},{"_id":"doc2","_rev":"1-a"}]}`)
		if edits == "true" {
			require.Equal(t, http.StatusCreated, got.Status, got.Body)
		}
		require.Contains(t, got.Body, `{"id":"_design/e"`)
		require.Contains(t, got.Body, `"error":"forbidden","reason":"You are not a db or server admin."`)
		require.Equal(t, http.StatusNotFound, n.Get("/db/_design/e").Status)
		require.Equal(t, http.StatusNotFound, n.Get("/db/_design/f").Status)
	}
}

func TestUserDocuments(t *testing.T) {
	t.Parallel()
	n := start(t)
	ann, eve := n.NewUser("ann", "staff"), n.NewUser("eve")
	const mine = "/_users/org.couchdb.user:ann"
	got := n.As(ann, http.MethodGet, mine, "").Is(t, http.StatusOK)
	doc := got.JSON(t)
	require.Equal(t, "pbkdf2", doc["password_scheme"])
	require.Equal(t, "sha256", doc["pbkdf2_prf"])
	require.NotContains(t, doc, "password")
	put := func(who string, changes map[string]any) webtest.Answer {
		body := map[string]any{}
		for name, value := range doc {
			body[name] = value
		}
		for name, value := range changes {
			body[name] = value
		}
		text, err := json.Marshal(body)
		require.NoError(t, err)
		return n.As(who, http.MethodPut, mine, string(text))
	}
	webtest.Refused(t, put(ann, map[string]any{"roles": []string{"staff", "more"}}), http.StatusForbidden, "forbidden", "Only _admin may edit roles")
	require.Equal(t, http.StatusForbidden, put(eve, nil).Status)
	got = put(ann, map[string]any{"password": "new-" + webtest.Secret})
	require.Equal(t, http.StatusCreated, got.Status, got.Body)
	require.Equal(t, http.StatusUnauthorized, n.As(ann, http.MethodGet, mine, "").Status)
	ann = "ann:new-" + webtest.Secret

	// Revisions from elsewhere could win with any roles.
	n.As(ann, http.MethodPut, mine+"?new_edits=false", `{"_rev":"9-a","type":"user","name":"ann","roles":["staff"]}`).Is(t, http.StatusForbidden)
	// A user without a document, as one with a token, cannot make one, and neither can a user that has deleted it.
	rev := n.As(ann, http.MethodGet, mine, "").JSON(t)["_rev"].(string)
	for _, target := range []string{"org.couchdb.user:other", "org.couchdb.user:eve", "_local/mine"} {
		webtest.Refused(t, n.As(ann, "COPY", mine, "", "Destination", target), http.StatusNotFound, "not_found", "missing")
	}
	require.Equal(t, http.StatusCreated, n.As(ann, http.MethodPut, mine+"/photo?rev="+rev, "x", "Content-Type", "image/png").Status)
	require.Equal(t, http.StatusOK, n.As(ann, http.MethodGet, mine+"/photo", "").Status)
	require.Equal(t, http.StatusForbidden, n.As(eve, http.MethodGet, mine+"/photo", "").Status)
	rev = n.As(ann, http.MethodGet, mine, "").JSON(t)["_rev"].(string)
	require.Equal(t, http.StatusOK, n.As(ann, http.MethodDelete, mine+"?rev="+rev, "").Status)
	require.Equal(t, http.StatusUnauthorized, n.As(ann, http.MethodGet, mine, "").Status)

	// Administrators write many, replicated ones too, and no password is kept as it came.
	got = n.Do(http.MethodPost, "/_users/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"org.couchdb.user:bob","_rev":"3-a",
		"type":"user","name":"bob","roles":["x"],"password":"bob-`+webtest.Secret+`"},{"_id":"org.couchdb.user:bad","_rev":"1-a","name":"bad"}]}`,
		"Content-Type", "application/json")
	require.Contains(t, got.Body, `doc.type must be user`)
	require.NotContains(t, n.Get("/_users/_all_docs?include_docs=true").Body, `"password":`)
	got = n.As("bob:bob-"+webtest.Secret, http.MethodGet, "/_session", "")
	require.Contains(t, got.Body, `"userCtx":{"name":"bob","roles":["x"]}`)
}

// replication is the body of a document of a replicator database, with credentials.
func replication(members string) string {
	text := `{"source":"http://u:` + webtest.Secret + `@a.example/db","target":{"url":"http://b.example/db","headers":{"X-Key":"` + webtest.Secret + `"},
		"auth":{"basic":{"username":"u","password":"` + webtest.Secret + `"}}},"continuous":true`
	if members != "" {
		text += "," + members
	}
	return text + "}"
}

// show makes a request whose answer may have the secret, and returns it with that replaced.
func (n *node) show(who, method, target, body string) (int, string) {
	n.Helper()
	name, password, _ := strings.Cut(who, ":")
	r, err := http.NewRequestWithContext(n.Context(), method, "http://"+n.Address+target, strings.NewReader(body))
	require.NoError(n, err)
	r.SetBasicAuth(name, password)
	r.Header.Set("Content-Type", "application/json")
	response, err := n.Client.Do(r)
	require.NoError(n, err)
	defer response.Body.Close()
	var text strings.Builder
	_, err = fmt.Fprint(&text, readAll(n.T, response.Body))
	require.NoError(n, err)
	return response.StatusCode, strings.ReplaceAll(text.String(), webtest.Secret, "SECRET")
}

func TestReplicationDocumentsOfOthers(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	other := n.NewUser("bob", "staff")
	const database = "/x%2F_replicator"
	n.With("x/_replicator", webtest.Security)
	got := n.As(p.Member, http.MethodPut, database+"/rep", replication("")).Is(t, http.StatusCreated)
	first := got.JSON(t)["rev"].(string)
	got = n.As(p.Member, http.MethodPut, database+"/rep?rev="+first, replication(`"n":2`)).Is(t, http.StatusCreated)
	rev := got.JSON(t)["rev"].(string)

	for _, who := range []string{p.Root, p.Admin, p.Member} {
		status, body := n.show(who, http.MethodGet, database+"/rep", "")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, body, `"_rev":"`+rev+`"`)
		require.Contains(t, body, "SECRET")
		require.Contains(t, body, `"owner":"ann"`)
	}
	// In no way does another one see more, or a revision that there is.
	for _, target := range []string{
		"/rep", "/rep?revs=true", "/rep?revs_info=true", "/rep?meta=true&attachments=true", "/rep?rev=" + rev, "/rep?latest=true&rev=" + rev,
		"/rep?open_revs=all", "/rep?open_revs=[%22" + rev + "%22]&revs=true", "/rep?local_seq=true&conflicts=true",
	} {
		for _, accept := range []string{"application/json", "multipart/mixed"} {
			got := n.As(other, http.MethodGet, database+target, "", "Accept", accept).Is(t, http.StatusOK)
			for _, kept := range []string{first, rev} {
				require.NotContains(t, got.Body, kept[len("1-"):], target)
				require.NotContains(t, got.Header.Get("ETag"), kept[len("1-"):])
			}
			require.Contains(t, got.Body, `"source":"http://a.example/db","target":{"url":"http://b.example/db"}`, target)
		}
	}
	got = n.As(other, http.MethodPost, database+"/_bulk_get?revs=true", `{"docs":[{"id":"rep"},{"id":"rep","rev":"`+rev+`"}]}`).Is(t, http.StatusOK)
	require.NotContains(t, got.Body, rev[len("2-"):]+`","source`)
	require.NotContains(t, got.Body, first[len("1-"):])

	// It cannot be written back, and not by its real revision either.
	stripped := n.As(other, http.MethodGet, database+"/rep", "").JSON(t)
	fake := stripped["_rev"].(string)
	require.NotEqual(t, rev, fake)
	// The made up one says nothing of the real one: the same is shown under the same.
	got = n.As(p.Member, http.MethodPut, database+"/rep?rev="+rev, strings.ReplaceAll(replication(`"n":2`), webtest.Secret, "other-"+webtest.Secret)).Is(t, http.StatusCreated)
	third := got.JSON(t)["rev"].(string)
	got = n.As(p.Member, http.MethodPut, database+"/same", replication("")).Is(t, http.StatusCreated)
	n.As(p.Member, http.MethodPut, database+"/same?rev="+got.JSON(t)["rev"].(string), replication(`"n":2`)).Is(t, http.StatusCreated)
	require.Equal(t, fake, n.As(other, http.MethodGet, database+"/same", "").JSON(t)["_rev"])
	rev = third
	require.Equal(t, http.StatusConflict, n.As(other, http.MethodPut, database+"/rep?rev="+fake, replication("")).Status)
	const others = "Can't update replication documents from other users."
	webtest.Refused(t, n.As(other, http.MethodPut, database+"/rep?rev="+rev, replication("")), http.StatusForbidden, "forbidden", others)
	webtest.Refused(t, n.As(other, http.MethodDelete, database+"/rep?rev="+rev, ""), http.StatusForbidden, "forbidden", others)
	webtest.Refused(t, n.As(other, http.MethodPut, database+"/rep/a?rev="+rev, "x"), http.StatusForbidden, "forbidden", others)
	got = n.As(other, http.MethodPost, database+"/_bulk_docs", `{"docs":[{"_id":"rep","_rev":"`+rev+`","_deleted":true}]}`)
	require.Contains(t, got.Body, others)
	for _, body := range []string{
		`{"new_edits":false,"docs":[{"_id":"rep","_rev":"9-a","_deleted":true}]}`,
		`{"new_edits":false,"docs":[{"_id":"new","_rev":"1-a","source":"http://a/b","target":"http://c/d","owner":"bob"}]}`,
	} {
		require.Contains(t, n.As(other, http.MethodPost, database+"/_bulk_docs", body).Body, `"error":"forbidden"`)
	}
	// Nor copied.
	require.Equal(t, http.StatusForbidden, n.As(other, "COPY", database+"/rep", "", "Destination", "mine").Status)
	require.Equal(t, http.StatusForbidden, n.As(other, http.MethodGet, database+"/rep/a", "").Status)
	require.Equal(t, http.StatusNotFound, n.Get(database+"/mine").Status)

	// Its owner may.
	require.Equal(t, http.StatusOK, n.As(p.Member, http.MethodDelete, database+"/rep?rev="+rev, "").Status)
}

// No answer tells which attachments, and which revisions, a replication document has that is
// another user's.
func TestAttachmentsOfOthers(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	other := n.NewUser("bob", "staff")
	const database = "/x%2F_replicator"
	n.With("x/_replicator", webtest.Security)
	got := n.As(p.Member, http.MethodPut, database+"/rep", replication(`"_attachments":{"a":{"data":"aGVsbG8="}}`)).Is(t, http.StatusCreated)
	rev := got.JSON(t)["rev"].(string)
	gotten := n.As(p.Member, http.MethodGet, database+"/rep/a", "").Is(t, http.StatusOK)
	etag := gotten.Header.Get("ETag")

	shape := func(a webtest.Answer) string {
		for _, name := range []string{"Date", "X-Couch-Request-Id"} {
			a.Header.Del(name)
		}
		return fmt.Sprint(a.Status, a.Header, a.Body)
	}
	for _, request := range []struct {
		method  string
		headers []string
	}{
		{http.MethodGet, nil},
		{http.MethodHead, nil},
		{http.MethodGet, []string{"Range", "bytes=1-2"}},
		{http.MethodGet, []string{"Range", "bytes=100-200"}},
		{http.MethodGet, []string{"If-None-Match", etag}},
		{http.MethodGet, []string{"Accept-Encoding", "gzip"}},
		{http.MethodPut, nil},
		{http.MethodDelete, nil},
	} {
		answers := map[string]string{}
		for _, name := range []string{"a", "b"} {
			for _, query := range []string{"", "?rev=" + rev, "?rev=1-00000000000000000000000000000000", "?rev=7-a", "?latest=true&rev=" + rev} {
				got := n.As(other, request.method, database+"/rep/"+name+query, "", request.headers...).Is(t, http.StatusForbidden)
				answers[shape(got)] = name + query
			}
		}
		require.Len(t, answers, 1, request.method)
	}
	for _, query := range []string{"", "?rev=" + rev, "?rev=7-a"} {
		require.Equal(t, http.StatusForbidden, n.As(other, "COPY", database+"/rep"+query, "", "Destination", "mine").Status)
	}
	for _, since := range []string{rev, "7-a"} {
		for _, accept := range []string{"application/json", "multipart/mixed", "multipart/related"} {
			got := n.As(other, http.MethodPost, database+"/_bulk_get?attachments=true",
				`{"docs":[{"id":"rep","atts_since":["`+since+`"]}]}`, "Accept", accept)
			require.Equal(t, http.StatusOK, got.Status, got.Body)
			require.NotContains(t, got.Body, "attachment")
			got = n.As(other, http.MethodGet, database+`/rep?attachments=true&atts_since=["`+since+`"]`, "", "Accept", accept).Is(t, http.StatusOK)
			require.NotContains(t, got.Body, "attachment")
		}
	}

	// Members see what is missing. Other users do not see the attachments of a deleted document either.
	require.Equal(t, http.StatusNotFound, n.As(p.Member, http.MethodGet, database+"/rep/b", "").Status)
	require.Equal(t, http.StatusConflict, n.As(p.Member, http.MethodPut, database+"/rep/b?rev=7-a", "").Status)
	require.Equal(t, http.StatusNotFound, n.As(other, http.MethodGet, database+"/none/b", "").Status)
	got = n.As(p.Member, http.MethodPut, database+"/rep?rev="+rev, `{"_deleted":true,"_attachments":{"a":{"stub":true}}}`).Is(t, http.StatusOK)
	require.Equal(t, http.StatusForbidden, n.As(other, http.MethodGet, database+"/rep/a?rev="+got.JSON(t)["rev"].(string), "").Status)
	require.Equal(t, http.StatusOK, n.As(p.Root, http.MethodGet, database+"/rep/a?rev="+got.JSON(t)["rev"].(string), "").Status)
}

func TestOwnersAndUserCtx(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	const database = "/x%2F_replicator"
	n.With("x/_replicator", webtest.Security)
	for i, test := range []struct {
		who, members, owner, reason string
	}{
		{p.Member, ``, `"ann"`, ""},
		{p.Member, `"owner":"ann"`, `"ann"`, ""},
		{p.Member, `"owner":"bob"`, "", "Can't update replication documents from other users."},
		{p.Member, `"owner":null`, "", "Can't update replication documents from other users."},
		{p.Member, `"owner":"ann","owner":"bob"`, "", "Can't update replication documents from other users."},
		{p.Member, `"user_ctx":{"name":"ann","roles":["staff"]}`, `"ann"`, ""},
		{p.Member, `"user_ctx":{"name":"boss","roles":[]}`, "", "`user_ctx.name` can only be your own name"},
		{p.Member, `"user_ctx":{"name":"ann","roles":["_admin"]}`, "", "`user_ctx.roles` can only have roles of your own"},
		{p.Admin, ``, `"boss"`, ""},
		{p.Admin, `"owner":"bob"`, `"bob"`, ""},
		{p.Root, `"owner":null`, `"admin"`, ""},
		{p.Root, `"user_ctx":{"name":"ann","roles":["anything"]}`, `"admin"`, ""},
	} {
		path := fmt.Sprintf("%s/rep%d", database, i)
		members := test.members
		if members != "" {
			members = "," + members
		}
		got := n.As(test.who, http.MethodPut, path, fmt.Sprintf(`{"source":"http://a.example/%d","target":"http://b.example/db"%s}`, i, members))
		if test.reason != "" {
			webtest.Refused(t, got, http.StatusForbidden, "forbidden", test.reason)
			continue
		}
		require.Equal(t, http.StatusCreated, got.Status, got.Body)
		require.Contains(t, n.Get(path).Body, `"owner":`+test.owner, test.members)
	}
	// What administrators replicate stays as it was.
	n.Do(http.MethodPut, database+"/replicated?new_edits=false", `{"_rev":"1-a","source":"http://a.example/x","target":"http://b.example/db"}`).Is(t, http.StatusCreated)
	require.NotContains(t, n.Get(database+"/replicated").Body, "owner")
}

func TestTransientJobsOfUsers(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	body := definition(`"continuous":true`)
	got := n.As(p.Member, http.MethodPost, "/_replicate", body).Is(t, http.StatusAccepted)
	id := got.LocalID(t)
	require.Equal(t, "ann", n.Get("/_scheduler/jobs/" + strings.Replace(id, "+", "%2B", 1)).JSON(t)["user"])
	n.opened()
	// Another user that posts the same gets a conflict that does not name the first one.
	got = n.As(p.User, http.MethodPost, "/_replicate", body).Is(t, http.StatusConflict)
	require.NotContains(t, got.Body, "ann")
	cancel := `{"cancel":true,"replication_id":"` + id + `"}`
	for _, who := range []string{p.User, p.Admin} {
		webtest.Refused(t, n.As(who, http.MethodPost, "/_replicate", cancel), http.StatusUnauthorized, "unauthorized", "You are not a server admin.")
		webtest.Refused(t, n.As(who, http.MethodPost, "/_replicate", definition(`"continuous":true,"cancel":true`)),
			http.StatusUnauthorized, "unauthorized", "You are not a server admin.")
	}
	require.Equal(t, http.StatusOK, n.As(p.Member, http.MethodPost, "/_replicate", definition(`"continuous":true,"cancel":true`)).Status)
	require.Equal(t, http.StatusNotFound, n.As(p.Member, http.MethodPost, "/_replicate", cancel).Status)

	require.Equal(t, http.StatusAccepted, n.As(p.Member, http.MethodPost, "/_replicate", body).Status)
	require.Equal(t, http.StatusOK, n.As(p.Root, http.MethodPost, "/_replicate", cancel).Status)

	// The job of a document is never cancelled here.
	n.With("x/_replicator", webtest.Security)
	require.Equal(t, http.StatusCreated, n.As(p.Member, http.MethodPut, "/x%2F_replicator/rep", replication("")).Status)
	for _, who := range []string{p.Root, p.Member} {
		require.Equal(t, http.StatusNotFound, n.As(who, http.MethodPost, "/_replicate", cancel).Status)
	}
}

// The rules must not take a path for another one than the router does.
func FuzzPaths(f *testing.F) {
	for _, path := range []string{
		"/db/doc", "/x%2F_replicator/_changes", "//_users///org.couchdb.user:a", "/db/_design%2Fd/a%2fb", "/db/_design/d|x/a", "/_users%2F/x", "/%5fusers/%2e%2e/x", "/db/..;/_security",
	} {
		f.Add(path)
	}
	handler := frontend.New(frontend.Options{})
	f.Fuzz(func(t *testing.T, path string) {
		db, doc, segments, ok := handler.Parts(http.MethodGet, path)
		if !ok {
			return
		}
		if db != segments[0] {
			t.Fatalf("%q is in %q for the router, and in %q for the rules", path, db, segments[0])
		}
		if doc != "" && doc != segments[1] && !strings.HasPrefix(doc, segments[1]+"/") {
			t.Fatalf("%q is of %q for the router, and of %q for the rules", path, doc, segments[1])
		}
	})
}
