package frontend_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
)

// Users see the jobs that they have posted, and those of their documents. They learn nothing of other jobs.
func TestUsersSeeTheirOwnJobs(t *testing.T) {
	t.Parallel()
	n := start(t)
	ann, eve := n.NewUser("ann"), n.NewUser("eve")
	n.Do(http.MethodPut, "/team%2F_replicator", "").Is(t, http.StatusCreated)
	n.Do(http.MethodPut, "/team%2F_replicator/_security", `{"admins": {"names": ["eve"]}, "members": {"names": ["ann", "eve"]}}`).Is(t, http.StatusOK)
	n.As(ann, http.MethodPost, "/_replicate", definition(`"continuous": true, "doc_ids": ["posted"]`)).Is(t, http.StatusAccepted)
	n.As(ann, http.MethodPut, "/team%2F_replicator/hers", definition(`"continuous": true, "doc_ids": ["written"]`)).Is(t, http.StatusCreated)

	list := n.As(ann, http.MethodGet, "/_scheduler/jobs", "").Is(t, http.StatusOK)
	require.Equal(t, 1., list.JSON(t)["total_rows"])
	posted := list.JSON(t)["jobs"].([]any)[0].(map[string]any)
	require.Equal(t, "ann", posted["user"])
	require.Equal(t, list.Body, n.As(ann, http.MethodGet, "/_scheduler/jobs?user=ann", "").Body)
	doc := n.As(ann, http.MethodGet, "/_scheduler/docs/team%2F_replicator/hers", "").Is(t, http.StatusOK).JSON(t)
	for _, id := range []string{posted["job_id"].(string), posted["id"].(string), doc["id"].(string)} {
		for path, status := range map[string]int{"": http.StatusOK, "/failures": http.StatusOK, "/definition": http.StatusOK} {
			n.As(ann, http.MethodGet, "/_scheduler/jobs/"+id+path, "").Is(t, status)
		}
	}
	webtest.Refused(t, n.As(ann, http.MethodGet, "/_scheduler/docs/team%2F_replicator", ""), http.StatusUnauthorized, "unauthorized", "You are not a server admin.")

	require.Contains(t, n.As(eve, http.MethodGet, "/_scheduler/jobs", "").Is(t, http.StatusOK).Body, `"total_rows":0`)
	for _, target := range []string{
		"/_scheduler/jobs?sort=failing", "/_scheduler/jobs?sort=documents_refused&database=team%2F_replicator", "/_scheduler/docs/",
		"/_scheduler/jobs?user=ann", "/_scheduler/jobs?user=", "/_scheduler/jobs?database=", "/_scheduler/jobs?database=_replicator",
		"/_scheduler/jobs/" + posted["id"].(string), "/_scheduler/jobs/" + posted["id"].(string) + "/failures",
		"/_scheduler/jobs/" + posted["id"].(string) + "/definition", "/_scheduler/docs",
		"/_scheduler/summary", "/_scheduler/problems", "/_scheduler/rates", "/_scheduler/shares", "/_scheduler/nodes", "/_active_tasks",
	} {
		got := n.As(eve, http.MethodGet, target, "")
		if target == "/_scheduler/jobs?database=" {
			require.Contains(t, got.Is(t, http.StatusOK).Body, `"total_rows":0`, "her own, of which there are none")
			continue
		}
		webtest.Refused(t, got, http.StatusUnauthorized, "unauthorized", "You are not a server admin.")
	}
	// She is an administrator of the database.
	for _, target := range []string{"/_scheduler/jobs?database=team%2F_replicator", "/_scheduler/docs/team%2F_replicator"} {
		require.Equal(t, 1., n.As(eve, http.MethodGet, target, "").Is(t, http.StatusOK).JSON(t)["total_rows"], target)
	}
	n.As(eve, http.MethodGet, "/_scheduler/jobs/"+doc["id"].(string), "").Is(t, http.StatusOK)
	n.Do(http.MethodPut, "/team%2F_replicator/_security", `{"admins": {"names": []}, "members": {"names": ["ann", "eve"]}}`).Is(t, http.StatusOK)
	for _, target := range []string{
		"/_scheduler/jobs?database=team%2F_replicator", "/_scheduler/docs/team%2F_replicator", "/_scheduler/docs/team%2F_replicator/hers",
		"/_scheduler/jobs/" + doc["id"].(string),
	} {
		webtest.Refused(t, n.As(eve, http.MethodGet, target, ""), http.StatusUnauthorized, "unauthorized", "You are not a server admin.")
	}
}
