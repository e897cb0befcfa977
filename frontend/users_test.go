package frontend_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A write that names an old revision of a user's document is a conflict, for the user and for administrators.
func TestUserDocumentsWithOldRevisions(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.newPeople()
	const path, none = "/_users/org.couchdb.user:eve", "1-00000000000000000000000000000000"
	const body = `{"type":"user","name":"eve","roles":[]}`
	old := n.get(path).json(t)["_rev"].(string)
	text := `{"type":"user","name":"eve","roles":[],"password":"eve-` + secret + `"}`
	require.Equal(t, http.StatusCreated, n.as(p.user, http.MethodPut, path+"?rev="+old, text).status)
	for _, who := range []string{p.user, p.root} {
		for _, rev := range []string{old, none, "7-00000000000000000000000000000000"} {
			conflict := func(method, target, body string, headers ...string) {
				t.Helper()
				refused(t, n.as(who, method, target, body, headers...), http.StatusConflict, "conflict", "Document update conflict.")
			}
			conflict(http.MethodPut, path+"?rev="+rev, body)
			conflict(http.MethodPut, path, body, "If-Match", rev)
			conflict(http.MethodPut, path, `{"_rev":"`+rev+`","type":"user","name":"eve","roles":[]}`)
			conflict(http.MethodDelete, path+"?rev="+rev, "")
			if rev == old {
				conflict(http.MethodPut, path+"/picture?rev="+rev, "x")
			} else {
				refused(t, n.as(who, http.MethodPut, path+"/picture?rev="+rev, "x"), http.StatusConflict, "not_found", "missing_rev")
			}
		}
	}
	// So is a write without a revision. A user without a document cannot make one.
	refused(t, n.as(p.user, http.MethodPut, path, body), http.StatusConflict, "conflict", "Document update conflict.")
	now := n.get(path).json(t)["_rev"].(string)
	require.Equal(t, http.StatusOK, n.as(p.user, http.MethodDelete, path+"?rev="+now, "").status)
	require.Equal(t, http.StatusUnauthorized, n.as(p.user, http.MethodPut, path, body).status)
}

// openUsers starts a node on which strangers may sign up. Its administrator of _users is boss.
func openUsers(t *testing.T) *node {
	t.Helper()
	n := start(t, "couchdb/users_db_security_editable=true")
	n.usersDatabase()
	n.with("_users", `{"admins":{"names":["boss"]}}`)
	return n
}

const annPath = "/_users/org.couchdb.user:ann"

// A stranger that signs up is a user without roles, who changes and deletes the document from then on.
func TestSigningUp(t *testing.T) {
	t.Parallel()
	n := openUsers(t)
	n.newDatabase("db")
	credentials := "ann:ann-" + secret
	doc := `{"type":"user","name":"ann","roles":[],"password":"ann-` + secret + `","email":"ann@example.org"}`
	rev := n.as(nobody, http.MethodPut, annPath, doc).is(t, http.StatusCreated).json(t)["rev"].(string)
	session := n.as(credentials, http.MethodGet, "/_session", "").is(t, http.StatusOK).json(t)
	require.Equal(t, map[string]any{"name": "ann", "roles": []any{}}, session["userCtx"])
	require.Equal(t, http.StatusForbidden, n.as(credentials, http.MethodGet, "/db", "").status)
	read := n.as(credentials, http.MethodGet, annPath, "").is(t, http.StatusOK)
	require.Equal(t, "ann@example.org", read.json(t)["email"])
	require.NotContains(t, read.body, secret)

	// The name is taken, also for whoever knows the revision.
	refused(t, n.as(nobody, http.MethodPut, annPath, doc), http.StatusConflict, "conflict", "Document update conflict.")
	for _, body := range []string{`{"type":"user","name":"ann","roles":[],"password":"mine"}`, `{"type":"user","name":"ann","roles":["_admin"]}`} {
		refused(t, n.as(nobody, http.MethodPut, annPath+"?rev="+rev, body), http.StatusForbidden, "forbidden",
			"You may only update your own user document.")
	}
	refused(t, n.as(nobody, http.MethodPut, annPath+"?rev="+rev, `{"_deleted":true}`), http.StatusForbidden, "forbidden",
		"Only admins may delete other user docs.")
	const older = `{"_id":"org.couchdb.user:ann","_rev":"9-a","type":"user","name":"ann","roles":[],"password":"mine"}`
	forged := n.as(nobody, http.MethodPost, "/_users/_bulk_docs", `{"new_edits":false,"docs":[`+older+`]}`).is(t, http.StatusCreated)
	require.Contains(t, forged.body, `"error":"forbidden"`)
	refused(t, n.as(nobody, http.MethodPut, annPath+"?new_edits=false", older), http.StatusForbidden, "forbidden",
		"Only administrators may write revisions that were made elsewhere into this database.")

	rev = n.as(credentials, http.MethodPut, annPath+"?rev="+rev, doc).is(t, http.StatusCreated).json(t)["rev"].(string)
	refused(t, n.as(credentials, http.MethodPut, annPath+"?rev="+rev, strings.Replace(doc, `[]`, `["staff"]`, 1)),
		http.StatusForbidden, "forbidden", "Only _admin may edit roles")
	n.as(credentials, http.MethodDelete, annPath+"?rev="+rev, "").is(t, http.StatusOK)
	require.Equal(t, http.StatusUnauthorized, n.as(credentials, http.MethodGet, "/_session", "").status)
	n.as(nobody, http.MethodPut, annPath, doc).is(t, http.StatusCreated)
}

// The answers to users and strangers do not tell which documents of others there are, were, or have attachments.
func TestUserDocumentsOfOthers(t *testing.T) {
	t.Parallel()
	n := openUsers(t)
	ann, boss := n.newUser("ann"), n.newUser("boss")
	const bob, none = "/_users/org.couchdb.user:bob", "/_users/org.couchdb.user:none"
	n.put(bob, `{"type":"user","name":"bob","roles":[],"_attachments":{"a":{"data":"eg=="}}}`).is(t, http.StatusCreated)
	n.put("/_users/_local/l", `{}`).is(t, http.StatusCreated)
	n.put("/_users/_design/d", `{}`).is(t, http.StatusCreated)
	rev := n.get(bob).json(t)["_rev"].(string)
	gone := n.put("/_users/org.couchdb.user:gone", `{"type":"user","name":"gone","roles":[]}`).is(t, http.StatusCreated).json(t)["rev"].(string)
	n.do(http.MethodDelete, "/_users/org.couchdb.user:gone?rev="+gone, "").is(t, http.StatusOK)

	for _, who := range []string{ann, nobody} {
		for _, query := range []string{"", "?open_revs=all", "?rev=" + rev, "?revs_info=true", "?attachments=true", "/a", "/a?rev=" + rev} {
			want := n.as(who, http.MethodGet, none+query, "")
			refused(t, want, http.StatusNotFound, "not_found", "missing")
			for _, path := range []string{bob, "/_users/org.couchdb.user:gone", "/_users/_local/l"} {
				if strings.HasPrefix(path, "/_users/_local") && strings.HasPrefix(query, "/") {
					continue // such a path is no path of an attachment
				}
				got := n.as(who, http.MethodGet, path+query, "")
				require.Equal(t, want.status, got.status, path+query)
				require.Equal(t, want.body, got.body, path+query)
			}
		}
		open := `?open_revs=["` + rev + `"]`
		for _, path := range []string{bob, none} {
			got := n.as(who, http.MethodGet, path+open, "", "Accept", "application/json").is(t, http.StatusOK)
			require.JSONEq(t, `[{"missing":"`+rev+`"}]`, got.body)
		}
		for method, target := range map[string]string{
			http.MethodDelete: "?rev=" + rev, "COPY": "", http.MethodPut: "/a?rev=" + rev,
		} {
			for _, path := range []string{bob, none} {
				refused(t, n.as(who, method, path+target, "x", "Destination", "org.couchdb.user:ann"), http.StatusNotFound, "not_found", "missing")
			}
		}
		got := n.as(who, http.MethodPost, "/_users/_bulk_get",
			`{"docs":[{"id":"org.couchdb.user:bob"},{"id":"org.couchdb.user:bob","rev":"`+rev+`"},{"id":"_local/l"},{"id":"_design/d"}]}`,
			"Accept", "application/json").is(t, http.StatusOK)
		require.NotContains(t, got.body, `"ok"`)
		require.Equal(t, 3, strings.Count(got.body, `"error":"not_found"`), got.body)
		require.Equal(t, 1, strings.Count(got.body, `"error":"forbidden"`), got.body)
		refused(t, n.as(who, http.MethodGet, "/_users/_design/d", ""), http.StatusForbidden, "forbidden",
			"Only administrators can view design docs in the users database.")
	}
	require.Contains(t, n.as(ann, http.MethodPost, "/_users/_bulk_get", `{"docs":[{"id":"org.couchdb.user:ann"}]}`, "Accept", "application/json").body, `"ok"`)
	for _, document := range []string{bob, bob + "/a", "/_users/_local/l", "/_users/_design/d"} {
		require.Equal(t, http.StatusOK, n.as(boss, http.MethodGet, document, "").status)
	}
}
