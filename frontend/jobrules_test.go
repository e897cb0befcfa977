package frontend_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who may see, run, list, change and cancel jobs: the table of docs/security.md over HTTP, row by row.
func TestJobRules(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.with("x/_replicator", security)
	p, member := n.newPeople(), n.newUser("bob", "staff")
	post, document := definition(`"continuous": true, "doc_ids": ["posted"]`), definition(`"continuous": true, "doc_ids": ["written"]`)
	posted := n.as(p.member, http.MethodPost, "/_replicate", post).is(t, http.StatusAccepted).localID(t)
	rev := n.as(p.member, http.MethodPut, "/x%2F_replicator/hers", document).is(t, http.StatusCreated).json(t)["rev"]
	hers := n.get("/_scheduler/docs/x%2F_replicator/hers").is(t, http.StatusOK).json(t)["id"].(string)
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
		for who, want := range map[string]int{p.root: c.root, p.admin: c.admin, p.member: c.owner, member: c.member, p.user: c.out} {
			require.Equal(t, want, n.as(who, c.method, c.target, c.body).status, "%s %s by %s", c.method, c.target, who)
		}
	}

	// A pause is a change of the document.
	for who, want := range map[string]int{p.root: 201, p.admin: 201, p.member: 201, member: 403, p.user: 403} {
		paused := definition(fmt.Sprintf(`"continuous": true, "doc_ids": ["written"], "owner": "ann", "paused": true, "_rev": %q`, rev))
		got := n.as(who, http.MethodPut, "/x%2F_replicator/hers", paused).is(t, want)
		if want == http.StatusCreated {
			rev = got.json(t)["rev"]
		}
	}
	for who, want := range map[string]int{p.root: 200, p.admin: 401, p.member: 200, member: 401, p.user: 401} {
		n.as(p.member, http.MethodPost, "/_replicate", post).is(t, http.StatusAccepted)
		require.Equal(t, want, n.as(who, http.MethodPost, "/_replicate", cancel(posted)).status, who)
	}
}

// A collision names a posted replication to its user and to server administrators.
func TestCollisionWithAPostedReplication(t *testing.T) {
	t.Parallel()
	n := start(t)
	ann, eve := n.newUser("ann"), n.newUser("eve")
	id := n.as(ann, http.MethodPost, "/_replicate", definition(`"continuous": true`)).is(t, http.StatusAccepted).localID(t)
	n.opened()
	plain := "the replication " + id + " exists already"
	refused(t, n.as(eve, http.MethodPost, "/_replicate", definition(`"continuous": true`)), http.StatusConflict, "conflict", plain)
	refused(t, n.post(definition(`"continuous": true`)), http.StatusConflict, "conflict", plain+", posted by the user `ann`")
}
