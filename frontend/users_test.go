package frontend_test

import (
	"net/http"
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
