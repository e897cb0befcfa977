package databases_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
)

// A write that names an old revision of a user's document is a conflict, for the user and for administrators.
func TestUserDocumentsWithOldRevisions(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	const path, none = "/_users/org.couchdb.user:eve", "1-00000000000000000000000000000000"
	const body = `{"type":"user","name":"eve","roles":[]}`
	old := n.Get(path).JSON(t)["_rev"].(string)
	text := `{"type":"user","name":"eve","roles":[],"password":"eve-` + webtest.Secret + `"}`
	require.Equal(t, http.StatusCreated, n.As(p.User, http.MethodPut, path+"?rev="+old, text).Status)
	for _, who := range []string{p.User, p.Root} {
		for _, rev := range []string{old, none, "7-00000000000000000000000000000000"} {
			conflict := func(method, target, body string, headers ...string) {
				t.Helper()
				webtest.Refused(t, n.As(who, method, target, body, headers...), http.StatusConflict, "conflict", "Document update conflict.")
			}
			conflict(http.MethodPut, path+"?rev="+rev, body)
			conflict(http.MethodPut, path, body, "If-Match", rev)
			conflict(http.MethodPut, path, `{"_rev":"`+rev+`","type":"user","name":"eve","roles":[]}`)
			conflict(http.MethodDelete, path+"?rev="+rev, "")
			if rev == old {
				conflict(http.MethodPut, path+"/picture?rev="+rev, "x")
			} else {
				webtest.Refused(t, n.As(who, http.MethodPut, path+"/picture?rev="+rev, "x"), http.StatusConflict, "not_found", "missing_rev")
			}
		}
	}
	// So is a write without a revision. A user without a document cannot make one.
	webtest.Refused(t, n.As(p.User, http.MethodPut, path, body), http.StatusConflict, "conflict", "Document update conflict.")
	now := n.Get(path).JSON(t)["_rev"].(string)
	require.Equal(t, http.StatusOK, n.As(p.User, http.MethodDelete, path+"?rev="+now, "").Status)
	require.Equal(t, http.StatusUnauthorized, n.As(p.User, http.MethodPut, path, body).Status)
}

// openUsers starts a node on which strangers may sign up. Its administrator of _users is boss.
func openUsers(t *testing.T) *node {
	t.Helper()
	n := start(t, "couchdb/users_db_security_editable=true")
	n.UsersDatabase()
	n.With("_users", `{"admins":{"names":["boss"]}}`)
	return n
}

const annPath = "/_users/org.couchdb.user:ann"

// A stranger that signs up is a user without roles, who changes and deletes the document from then on.
func TestSigningUp(t *testing.T) {
	t.Parallel()
	n := openUsers(t)
	n.NewDatabase("db")
	credentials := "ann:ann-" + webtest.Secret
	doc := `{"type":"user","name":"ann","roles":[],"password":"ann-` + webtest.Secret + `","email":"ann@example.org"}`
	rev := n.As(webtest.Nobody, http.MethodPut, annPath, doc).Is(t, http.StatusCreated).JSON(t)["rev"].(string)
	session := n.As(credentials, http.MethodGet, "/_session", "").Is(t, http.StatusOK).JSON(t)
	require.Equal(t, map[string]any{"name": "ann", "roles": []any{}}, session["userCtx"])
	require.Equal(t, http.StatusForbidden, n.As(credentials, http.MethodGet, "/db", "").Status)
	read := n.As(credentials, http.MethodGet, annPath, "").Is(t, http.StatusOK)
	require.Equal(t, "ann@example.org", read.JSON(t)["email"])
	require.NotContains(t, read.Body, webtest.Secret)

	// The name is taken, also for whoever knows the revision.
	webtest.Refused(t, n.As(webtest.Nobody, http.MethodPut, annPath, doc), http.StatusConflict, "conflict", "Document update conflict.")
	for _, body := range []string{`{"type":"user","name":"ann","roles":[],"password":"mine"}`, `{"type":"user","name":"ann","roles":["_admin"]}`} {
		webtest.Refused(t, n.As(webtest.Nobody, http.MethodPut, annPath+"?rev="+rev, body), http.StatusForbidden, "forbidden",
			"You may only update your own user document.")
	}
	webtest.Refused(t, n.As(webtest.Nobody, http.MethodPut, annPath+"?rev="+rev, `{"_deleted":true}`), http.StatusForbidden, "forbidden",
		"Only admins may delete other user docs.")
	const older = `{"_id":"org.couchdb.user:ann","_rev":"9-a","type":"user","name":"ann","roles":[],"password":"mine"}`
	forged := n.As(webtest.Nobody, http.MethodPost, "/_users/_bulk_docs", `{"new_edits":false,"docs":[`+older+`]}`).Is(t, http.StatusCreated)
	require.Contains(t, forged.Body, `"error":"forbidden"`)
	webtest.Refused(t, n.As(webtest.Nobody, http.MethodPut, annPath+"?new_edits=false", older), http.StatusForbidden, "forbidden",
		"Only administrators may write revisions that were made elsewhere into this database.")

	rev = n.As(credentials, http.MethodPut, annPath+"?rev="+rev, doc).Is(t, http.StatusCreated).JSON(t)["rev"].(string)
	webtest.Refused(t, n.As(credentials, http.MethodPut, annPath+"?rev="+rev, strings.Replace(doc, `[]`, `["staff"]`, 1)),
		http.StatusForbidden, "forbidden", "Only _admin may edit roles")
	n.As(credentials, http.MethodDelete, annPath+"?rev="+rev, "").Is(t, http.StatusOK)
	require.Equal(t, http.StatusUnauthorized, n.As(credentials, http.MethodGet, "/_session", "").Status)
	n.As(webtest.Nobody, http.MethodPut, annPath, doc).Is(t, http.StatusCreated)
}

// The answers to users and strangers do not tell which documents of others there are, were, or have attachments.
func TestUserDocumentsOfOthers(t *testing.T) {
	t.Parallel()
	n := openUsers(t)
	ann, boss := n.NewUser("ann"), n.NewUser("boss")
	const bob, none = "/_users/org.couchdb.user:bob", "/_users/org.couchdb.user:none"
	n.Put(bob, `{"type":"user","name":"bob","roles":[],"_attachments":{"a":{"data":"eg=="}}}`).Is(t, http.StatusCreated)
	n.Put("/_users/_local/l", `{}`).Is(t, http.StatusCreated)
	n.Put("/_users/_design/d", `{}`).Is(t, http.StatusCreated)
	rev := n.Get(bob).JSON(t)["_rev"].(string)
	gone := n.Put("/_users/org.couchdb.user:gone", `{"type":"user","name":"gone","roles":[]}`).Is(t, http.StatusCreated).JSON(t)["rev"].(string)
	n.Do(http.MethodDelete, "/_users/org.couchdb.user:gone?rev="+gone, "").Is(t, http.StatusOK)

	for _, who := range []string{ann, webtest.Nobody} {
		for _, query := range []string{"", "?open_revs=all", "?rev=" + rev, "?revs_info=true", "?attachments=true", "/a", "/a?rev=" + rev} {
			want := n.As(who, http.MethodGet, none+query, "")
			webtest.Refused(t, want, http.StatusNotFound, "not_found", "missing")
			for _, path := range []string{bob, "/_users/org.couchdb.user:gone", "/_users/_local/l"} {
				if strings.HasPrefix(path, "/_users/_local") && strings.HasPrefix(query, "/") {
					continue // such a path is no path of an attachment
				}
				got := n.As(who, http.MethodGet, path+query, "")
				require.Equal(t, want.Status, got.Status, path+query)
				require.Equal(t, want.Body, got.Body, path+query)
			}
		}
		open := `?open_revs=["` + rev + `"]`
		for _, path := range []string{bob, none} {
			got := n.As(who, http.MethodGet, path+open, "", "Accept", "application/json").Is(t, http.StatusOK)
			require.JSONEq(t, `[{"missing":"`+rev+`"}]`, got.Body)
		}
		for method, target := range map[string]string{
			http.MethodDelete: "?rev=" + rev, "COPY": "", http.MethodPut: "/a?rev=" + rev,
		} {
			for _, path := range []string{bob, none} {
				webtest.Refused(t, n.As(who, method, path+target, "x", "Destination", "org.couchdb.user:ann"), http.StatusNotFound, "not_found", "missing")
			}
		}
		got := n.As(who, http.MethodPost, "/_users/_bulk_get",
			`{"docs":[{"id":"org.couchdb.user:bob"},{"id":"org.couchdb.user:bob","rev":"`+rev+`"},{"id":"_local/l"},{"id":"_design/d"}]}`,
			"Accept", "application/json").Is(t, http.StatusOK)
		require.NotContains(t, got.Body, `"ok"`)
		require.Equal(t, 3, strings.Count(got.Body, `"error":"not_found"`), got.Body)
		require.Equal(t, 1, strings.Count(got.Body, `"error":"forbidden"`), got.Body)
		webtest.Refused(t, n.As(who, http.MethodGet, "/_users/_design/d", ""), http.StatusForbidden, "forbidden",
			"Only administrators can view design docs in the users database.")
	}
	require.Contains(t, n.As(ann, http.MethodPost, "/_users/_bulk_get", `{"docs":[{"id":"org.couchdb.user:ann"}]}`, "Accept", "application/json").Body, `"ok"`)
	for _, document := range []string{bob, bob + "/a", "/_users/_local/l", "/_users/_design/d"} {
		require.Equal(t, http.StatusOK, n.As(boss, http.MethodGet, document, "").Status)
	}
}
