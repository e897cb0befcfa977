package frontend_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
)

// Who may see, run, list, change and cancel jobs: the table of docs/security.md over HTTP, row by row.
func TestJobRules(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.With("x/_replicator", webtest.Security)
	p, member := n.NewPeople(), n.NewUser("bob", "staff")
	post, document := definition(`"continuous": true, "doc_ids": ["posted"]`), definition(`"continuous": true, "doc_ids": ["written"]`)
	posted := n.As(p.Member, http.MethodPost, "/_replicate", post).Is(t, http.StatusAccepted).LocalID(t)
	rev := n.As(p.Member, http.MethodPut, "/x%2F_replicator/hers", document).Is(t, http.StatusCreated).JSON(t)["rev"]
	hers := n.Get("/_scheduler/docs/x%2F_replicator/hers").Is(t, http.StatusOK).JSON(t)["id"].(string)
	cancel := func(id string) string { return fmt.Sprintf(`{"cancel": true, "id": %q}`, id) }

	for _, c := range []struct {
		method, target, body            string
		root, admin, owner, member, out int // owner is also the poster
	}{
		{"GET", "/_scheduler/jobs/" + posted, "", 200, 401, 200, 401, 401},
		{"GET", "/_scheduler/jobs/" + posted + "/definition", "", 200, 401, 200, 401, 401},
		{"GET", "/_scheduler/jobs/" + posted + "/failures", "", 200, 401, 200, 401, 401},
		{"POST", "/_scheduler/jobs/" + posted + "/_acknowledge", "{}", 409, 401, 409, 401, 401},
		{"POST", "/_scheduler/jobs/" + posted + "/_run", "", 202, 401, 202, 401, 401},
		{"GET", "/_scheduler/jobs?mirror=" + posted, "", 200, 401, 200, 401, 401},
		{"GET", "/_scheduler/jobs?user=ann", "", 200, 401, 200, 401, 401},
		{"GET", "/_scheduler/jobs?user=", "", 200, 401, 401, 401, 401},

		{"GET", "/_scheduler/jobs/" + hers, "", 200, 200, 200, 401, 401},
		{"GET", "/_scheduler/jobs/" + hers + "/definition", "", 200, 200, 200, 401, 401},
		{"GET", "/_scheduler/jobs/" + hers + "/failures", "", 200, 200, 200, 401, 401},
		{"GET", "/_scheduler/docs/x%2F_replicator/hers", "", 200, 200, 200, 401, 401},
		{"GET", "/_scheduler/docs/x%2F_replicator/none", "", 404, 404, 401, 401, 401},
		{"POST", "/_scheduler/jobs/" + hers + "/_acknowledge", "{}", 409, 409, 409, 401, 401},
		{"POST", "/_scheduler/jobs/" + hers + "/_run", "", 202, 202, 202, 401, 401},
		{"GET", "/_scheduler/docs/x%2F_replicator", "", 200, 200, 401, 401, 401},
		{"GET", "/_scheduler/jobs?database=x%2F_replicator", "", 200, 200, 401, 401, 401},
		{"POST", "/_replicate", cancel(hers), 404, 404, 404, 404, 404},

		{"GET", "/_scheduler/docs", "", 200, 401, 401, 401, 401},
		{"GET", "/_scheduler/jobs?sort=failing", "", 200, 401, 401, 401, 401},
		{"GET", "/_scheduler/jobs?database=x%2F_replicator&sort=failing", "", 200, 401, 401, 401, 401},
		{"GET", "/_scheduler/problems", "", 200, 401, 401, 401, 401},
		{"POST", "/_scheduler/problems/_acknowledge", `{"kind": "failing"}`, 404, 401, 401, 401, 401},
		{"GET", "/_scheduler/summary", "", 200, 401, 401, 401, 401},
		{"GET", "/_active_tasks", "", 200, 401, 401, 401, 401},
	} {
		for who, want := range map[string]int{p.Root: c.root, p.Admin: c.admin, p.Member: c.owner, member: c.member, p.User: c.out} {
			require.Equal(t, want, n.As(who, c.method, c.target, c.body).Status, "%s %s by %s", c.method, c.target, who)
		}
	}

	// A pause is a change of the document.
	for who, want := range map[string]int{p.Root: 201, p.Admin: 201, p.Member: 201, member: 403, p.User: 403} {
		paused := definition(fmt.Sprintf(`"continuous": true, "doc_ids": ["written"], "owner": "ann", "paused": true, "_rev": %q`, rev))
		got := n.As(who, http.MethodPut, "/x%2F_replicator/hers", paused).Is(t, want)
		if want == http.StatusCreated {
			rev = got.JSON(t)["rev"]
		}
	}
	for who, want := range map[string]int{p.Root: 200, p.Admin: 401, p.Member: 200, member: 401, p.User: 401} {
		n.As(p.Member, http.MethodPost, "/_replicate", post).Is(t, http.StatusAccepted)
		require.Equal(t, want, n.As(who, http.MethodPost, "/_replicate", cancel(posted)).Status, who)
	}
}

// A collision names a posted replication to its user and to server administrators.
func TestCollisionWithAPostedReplication(t *testing.T) {
	t.Parallel()
	n := start(t)
	ann, eve := n.NewUser("ann"), n.NewUser("eve")
	id := n.As(ann, http.MethodPost, "/_replicate", definition(`"continuous": true`)).Is(t, http.StatusAccepted).LocalID(t)
	n.opened()
	plain := "the replication " + id + " exists already"
	webtest.Refused(t, n.As(eve, http.MethodPost, "/_replicate", definition(`"continuous": true`)), http.StatusConflict, "conflict", plain)
	webtest.Refused(t, n.post(definition(`"continuous": true`)), http.StatusConflict, "conflict", plain+", posted by the user `ann`")
}

// TestValidateSystemDatabases has validate functions in databases with checks of their own.
func TestValidateSystemDatabases(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewUser("ann")
	n.NewDatabase("_replicator")
	const only = `{"validate_doc_update":"function (doc) { if (!doc._deleted && !doc.allowed) throw {forbidden: 'not allowed'} }"}`
	n.Put("/_replicator/_design/v", only).Is(t, http.StatusCreated)
	n.Put("/_users/_design/v", only).Is(t, http.StatusCreated)
	replication := `{"source":"http://a.example/a","target":"http://a.example/b"`
	webtest.Refused(t, n.Put("/_replicator/doc", replication+"}"), http.StatusForbidden, "forbidden", "not allowed")
	n.Put("/_replicator/doc", replication+`,"allowed":true}`).Is(t, http.StatusCreated)
	user := `{"type":"user","name":"eve","roles":[],"password":"eve-` + webtest.Secret + `"`
	webtest.Refused(t, n.Put("/_users/org.couchdb.user:eve", user+"}"), http.StatusForbidden, "forbidden", "not allowed")
	n.Put("/_users/org.couchdb.user:eve", user+`,"allowed":true}`).Is(t, http.StatusCreated)
}
