package frontend_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Users see the jobs that they have posted, and those of their documents. They learn nothing of other jobs.
func TestUsersSeeTheirOwnJobs(t *testing.T) {
	t.Parallel()
	n := start(t)
	ann, eve := n.newUser("ann"), n.newUser("eve")
	n.do(http.MethodPut, "/team%2F_replicator", "").is(t, http.StatusCreated)
	n.do(http.MethodPut, "/team%2F_replicator/_security", `{"admins": {"names": ["eve"]}, "members": {"names": ["ann", "eve"]}}`).is(t, http.StatusOK)
	n.as(ann, http.MethodPost, "/_replicate", definition(`"continuous": true, "doc_ids": ["posted"]`)).is(t, http.StatusAccepted)
	n.as(ann, http.MethodPut, "/team%2F_replicator/hers", definition(`"continuous": true, "doc_ids": ["written"]`)).is(t, http.StatusCreated)

	list := n.as(ann, http.MethodGet, "/_scheduler/jobs", "").is(t, http.StatusOK)
	require.Equal(t, 1., list.json(t)["total_rows"])
	posted := list.json(t)["jobs"].([]any)[0].(map[string]any)
	require.Equal(t, "ann", posted["user"])
	require.Equal(t, list.body, n.as(ann, http.MethodGet, "/_scheduler/jobs?user=ann", "").body)
	doc := n.as(ann, http.MethodGet, "/_scheduler/docs/team%2F_replicator/hers", "").is(t, http.StatusOK).json(t)
	for _, id := range []string{posted["job_id"].(string), posted["id"].(string), doc["id"].(string)} {
		for path, status := range map[string]int{"": http.StatusOK, "/failures": http.StatusOK, "/definition": http.StatusOK} {
			n.as(ann, http.MethodGet, "/_scheduler/jobs/"+id+path, "").is(t, status)
		}
	}
	refused(t, n.as(ann, http.MethodGet, "/_scheduler/docs/team%2F_replicator", ""), http.StatusUnauthorized, "unauthorized", "You are not a server admin.")

	require.Contains(t, n.as(eve, http.MethodGet, "/_scheduler/jobs", "").is(t, http.StatusOK).body, `"total_rows":0`)
	for _, target := range []string{
		"/_scheduler/jobs?sort=failing", "/_scheduler/jobs?sort=documents_refused&database=team%2F_replicator", "/_scheduler/docs/",
		"/_scheduler/jobs?user=ann", "/_scheduler/jobs?user=", "/_scheduler/jobs?database=", "/_scheduler/jobs?database=_replicator",
		"/_scheduler/jobs/" + posted["id"].(string), "/_scheduler/jobs/" + posted["id"].(string) + "/failures",
		"/_scheduler/jobs/" + posted["id"].(string) + "/definition", "/_scheduler/docs",
		"/_scheduler/summary", "/_scheduler/problems", "/_scheduler/rates", "/_scheduler/shares", "/_scheduler/nodes", "/_active_tasks",
	} {
		got := n.as(eve, http.MethodGet, target, "")
		if target == "/_scheduler/jobs?database=" {
			require.Contains(t, got.is(t, http.StatusOK).body, `"total_rows":0`, "her own, of which there are none")
			continue
		}
		refused(t, got, http.StatusUnauthorized, "unauthorized", "You are not a server admin.")
	}
	// She is an administrator of the database.
	for _, target := range []string{"/_scheduler/jobs?database=team%2F_replicator", "/_scheduler/docs/team%2F_replicator"} {
		require.Equal(t, 1., n.as(eve, http.MethodGet, target, "").is(t, http.StatusOK).json(t)["total_rows"], target)
	}
	n.as(eve, http.MethodGet, "/_scheduler/jobs/"+doc["id"].(string), "").is(t, http.StatusOK)
	n.do(http.MethodPut, "/team%2F_replicator/_security", `{"admins": {"names": []}, "members": {"names": ["ann", "eve"]}}`).is(t, http.StatusOK)
	for _, target := range []string{
		"/_scheduler/jobs?database=team%2F_replicator", "/_scheduler/docs/team%2F_replicator", "/_scheduler/docs/team%2F_replicator/hers",
		"/_scheduler/jobs/" + doc["id"].(string),
	} {
		refused(t, n.as(eve, http.MethodGet, target, ""), http.StatusUnauthorized, "unauthorized", "You are not a server admin.")
	}
}
