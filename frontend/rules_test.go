package frontend_test

import (
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
	{"GET", "/_scheduler/jobs/x/lag", "", 404, 404, 404, 404, 401},
	{"POST", "/_scheduler/check", `{}`, 400, 400, 400, 400, 401},
	{"POST", "/_scheduler/jobs/x/_run", "", 404, 404, 404, 404, 401},
	{"POST", "/_scheduler/jobs/x/_verify", "", 404, 404, 404, 404, 401},
	{"GET", "/_scheduler/jobs/x/_run", "", 405, 405, 405, 405, 401},
	{"POST", "/_scheduler/jobs/x/_acknowledge", "{}", 404, 404, 404, 404, 401},
	{"DELETE", "/_scheduler/jobs/x/_acknowledge", "", 404, 404, 404, 404, 401},
	{"POST", "/_scheduler/problems/_acknowledge", `{"kind":"failing"}`, 404, 401, 401, 401, 401},
	{"GET", "/_scheduler/summary", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/problems", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/rates", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/shares", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/audit", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/docs", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/docs/_replicator", "", 200, 401, 401, 401, 401},
	{"GET", "/_scheduler/docs/_replicator/x", "", 404, 401, 401, 401, 401},
	{"GET", "/_scheduler/nodes", "", 200, 401, 401, 401, 401},
	{"POST", "/_scheduler/nodes/x/_cordon", "", 404, 401, 401, 401, 401},
	{"DELETE", "/_scheduler/nodes/x/_cordon", "", 404, 401, 401, 401, 401},
	{"POST", "/_scheduler/nodes/x/_drain", "", 404, 401, 401, 401, 401},
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
	require.Equal(t, http.StatusCreated, n.As(p.Member, http.MethodPut, "/x%2F_replicator/rep", webtest.Replication("")).Status)
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
