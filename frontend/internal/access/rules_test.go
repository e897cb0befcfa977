package access

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/auth"
	"settee/frontend/internal/web"
)

// failed returns the status of an error that is an answer.
func failed(t *testing.T, err error) int {
	t.Helper()
	var failure *web.Failure
	require.ErrorAs(t, err, &failure)
	return failure.Status
}

func TestAudiences(t *testing.T) {
	t.Parallel()
	ada := auth.User{Name: "ada"}
	for _, c := range []struct {
		method, path string
		want         audience
	}{
		{"GET", "", anybody},
		{"GET", "_up", anybody}, {"GET", "_uuids", anybody}, {"POST", "_session", anybody},
		{"GET", "_utils/a/b", anybody}, {"POST", "_utils/a", serverAdmins},
		{"POST", "_replicate", users}, {"POST", "_replicate/x", serverAdmins},
		{"GET", "_all_dbs", serverAdmins}, {"GET", "_dbs_info", serverAdmins}, {"GET", "_active_tasks", serverAdmins},
		{"GET", "_unknown", serverAdmins}, {"GET", "_node/_local/_config", serverAdmins},
		{"GET", "_node/_local/_prometheus", monitors}, {"GET", "_node/_local/_stats/a/b", monitors}, {"GET", "_node/_local/_system", monitors},
		{"PUT", "_node/_local/_stats", serverAdmins}, {"GET", "_node/_local/_prometheus/x", serverAdmins},
		{"POST", "_scheduler/check", users}, {"GET", "_scheduler/jobs", users}, {"GET", "_scheduler/jobs/1", users},
		{"POST", "_scheduler/jobs/1/_run", users}, {"POST", "_scheduler/jobs/1", serverAdmins},
		{"DELETE", "_scheduler/jobs/1/_acknowledge", users}, {"POST", "_scheduler/problems/_acknowledge", serverAdmins}, {"GET", "_scheduler/audit", serverAdmins},
		{"GET", "_scheduler/docs/db/doc", users}, {"GET", "_scheduler/docs", serverAdmins}, {"GET", "_scheduler/shares", serverAdmins},

		{"GET", "db", members}, {"HEAD", "db", members}, {"POST", "db", members}, {"PUT", "db", serverAdmins}, {"DELETE", "db", serverAdmins},
		{"GET", "db/doc", members}, {"PUT", "db/doc", members}, {"GET", "db/doc/a", members},
		{"GET", "db/_design/d", members}, {"PUT", "db/_design/d", databaseAdmins}, {"DELETE", "db/_design", databaseAdmins},
		{"GET", "db/_security", members}, {"PUT", "db/_security", databaseAdmins}, {"PUT", "db/_revs_limit", databaseAdmins},
		{"POST", "db/_compact", databaseAdmins}, {"POST", "db/_purge", serverAdmins}, {"GET", "db/_all_docs", members},
		{"GET", "_replicator/doc", members}, {"GET", "_replicator/_all_docs", databaseAdmins},
		{"GET", "a/_replicator/_changes", members}, // the database a, and its document _replicator
		{"GET", "_users/org.couchdb.user:ada", owner}, {"PUT", "_users/org.couchdb.user:ada", owner},
		{"GET", "_users", members}, {"POST", "_users", members}, {"PUT", "_users", serverAdmins},
		{"GET", "_users/org.couchdb.user:ada/a", owner}, {"GET", "_users/org.couchdb.user:bob", members},
		{"GET", "_users/_all_docs", serverAdmins}, {"POST", "_users/_all_docs/queries", serverAdmins}, {"GET", "_users/_changes", serverAdmins},
		{"GET", "_users/_design_docs", databaseAdmins}, {"GET", "_users/_local_docs", databaseAdmins}, {"POST", "_users/_revs_diff", databaseAdmins},
		{"GET", "_users/_design/d", members}, {"PUT", "_users/_design/d", databaseAdmins}, {"POST", "_users/_bulk_docs", members},
	} {
		var segments []string
		if c.path != "" {
			segments = strings.Split(c.path, "/")
		}
		assert.Equal(t, c.want, audienceOf(c.method, segments, ada), "%s /%s", c.method, c.path)
	}
	assert.Equal(t, databaseAdmins, audienceOf("GET", []string{"a/_replicator", "_changes"}, ada))
	assert.Equal(t, databaseAdmins, audienceOf("GET", []string{"a/_users", "_all_docs"}, ada))
	assert.Equal(t, databaseAdmins, audienceOf("GET", []string{"a/_users", "_changes"}, ada))
	assert.NotEqual(t, owner, audienceOf("GET", []string{"_users", "org.couchdb.user:"}, auth.User{}), "nobody owns no document")
}

func TestRequestsThatActByRoles(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"": false, "_up": false, "_node/_local/_config": false, "_scheduler/jobs": false, "_all_dbs": false, "_session/x": false,
		"_session": true, "db": true, "db/doc": true, "_users/x": true, "_replicator/_changes": true,
	} {
		segments := strings.FieldsFunc(path, func(c rune) bool { return c == '/' })
		assert.Equal(t, want, actsByRoles(segments), path)
	}
}

func TestPermits(t *testing.T) {
	t.Parallel()
	nobody, ada := new(Rights), &Rights{user: Identity{User: auth.User{Name: "ada"}}}
	member := &Rights{user: ada.user, member: true}
	admin := &Rights{user: ada.user, admin: true}
	for _, needed := range []audience{members, databaseAdmins, owner} {
		require.NoError(t, admin.permits(needed))
	}
	require.NoError(t, member.permits(members))
	require.NoError(t, ada.permits(owner))
	assert.Equal(t, http.StatusForbidden, failed(t, ada.permits(members)))
	assert.Equal(t, http.StatusForbidden, failed(t, member.permits(databaseAdmins)))
	assert.Equal(t, http.StatusUnauthorized, failed(t, nobody.permits(members)))
	assert.Equal(t, http.StatusUnauthorized, failed(t, nobody.permits(databaseAdmins)))
	// As in CouchDB the reason is the first that applies.
	const notAllowed, notAdmin = "You are not allowed to access this db.", "You are not a db or server admin."
	assert.Equal(t, notAllowed, reason(t, ada.permits(databaseAdmins)))
	assert.Equal(t, notAdmin, reason(t, member.permits(databaseAdmins)))
	assert.Equal(t, "You are not authorized to access this db.", reason(t, nobody.permits(databaseAdmins)))
	assert.Equal(t, notAdmin, reason(t, (&Rights{member: true}).permits(databaseAdmins)))
}

// reason returns the reason of an error that is an answer.
func reason(t *testing.T, err error) string {
	t.Helper()
	var failure *web.Failure
	require.ErrorAs(t, err, &failure)
	return failure.Reason
}

func TestRightsOfRequestsThatNoGuardAdmitted(t *testing.T) {
	t.Parallel()
	a := RightsOf(httptest.NewRequest(http.MethodGet, "/db", nil))
	assert.Equal(t, http.StatusUnauthorized, failed(t, a.permits(members)))
}

func TestSecurityObjects(t *testing.T) {
	t.Parallel()
	for _, good := range []string{`{}`, DefaultSecurity, `{"members":{"names":["a"]},"other":1}`} {
		require.NoError(t, checkSecurity([]byte(good)), good)
	}
	for _, bad := range []string{`[]`, `1`, `{"members":[]}`, `{"admins":{"names":"a"}}`, `{"members":{"roles":[1]}}`} {
		assert.Equal(t, http.StatusBadRequest, failed(t, checkSecurity([]byte(bad))), bad)
	}
}

func TestLogins(t *testing.T) {
	t.Parallel()
	form, err := formLogin([]byte("name=a%20b&password=p&token=1&other=x"))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"name": "a b", "password": "p", "token": "1", "other": "x"}, form)
	_, err = formLogin([]byte("name=%zz"))
	assert.Equal(t, http.StatusBadRequest, failed(t, err))
	object, err := jsonLogin([]byte(`{"username":"a","password":"p","other":1}`))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"username": "a", "password": "p"}, object)
	for _, bad := range []string{`[]`, `{"name":1}`, `{"password":null}`} {
		_, err := jsonLogin([]byte(bad))
		assert.Equal(t, http.StatusBadRequest, failed(t, err), bad)
	}
}
