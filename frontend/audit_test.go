package frontend_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/replicator"
)

// audited returns what _scheduler/audit lists, the oldest first, without the times.
func (n *node) audited(query string) (list []map[string]any) {
	n.Helper()
	var body struct{ Changes []map[string]any }
	require.NoError(n, json.Unmarshal([]byte(n.Get("/_scheduler/audit"+query).Is(n.T, http.StatusOK).Body), &body))
	for _, change := range body.Changes {
		at, err := time.Parse(time.RFC3339Nano, change["at"].(string))
		require.NoError(n, err)
		require.WithinDuration(n, time.Now(), at, time.Minute)
		require.Equal(n, webtest.AdminName, change["user"])
		delete(change, "at")
		delete(change, "user")
		list = append([]map[string]any{change}, list...)
	}
	return list
}

// What users do to jobs and settings is listed, once, with the user and without secrets. What is refused, what changes nothing and
// what nodes do is not.
func TestAudit(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Put("/_replicator", "").Is(t, http.StatusCreated)
	require.Empty(t, n.audited(""))
	rev := ""
	write := func(members string) {
		t.Helper()
		if rev != "" {
			members += `, "_rev": "` + rev + `"`
		}
		rev = n.Put("/_replicator/d", definition(members)).Is(t, http.StatusCreated).JSON(t)["rev"].(string)
	}
	write(`"continuous": true`) // new ones say themselves whose they are
	write(`"continuous": true, "paused": true`)
	write(`"continuous": true`)
	n.Put("/_replicator/d", definition(`"paused": "yes", "_rev": "`+rev+`"`)).Is(t, http.StatusForbidden)
	n.Put("/_replicator/d", definition("")).Is(t, http.StatusConflict)
	write(`"continuous": true, "doc_ids": ["a"]`)
	require.NoError(t, n.accept().Crash(t.Context(), time.Now().Add(time.Hour), 1, replicator.TextFault("", "no")))
	id := n.page("/_scheduler/jobs").Jobs[0]["job_id"].(string)
	n.Do(http.MethodPost, "/_scheduler/jobs/"+url.PathEscape(id)+"/_run", "").Is(t, http.StatusAccepted)
	require.NoError(t, n.accept().Complete(t.Context(), nil)) // writes the document, as no user
	rev = strings.Trim(n.Do(http.MethodHead, "/_replicator/d", "").Header.Get("ETag"), `"`)
	n.Do(http.MethodDelete, "/_replicator/d?rev="+rev, "").Is(t, http.StatusOK)
	of := func(action string) map[string]any {
		return map[string]any{"action": action, "job_id": id, "database": "_replicator", "doc_id": "d"}
	}
	want := []map[string]any{of("pause"), of("resume"), of("edit"), of("run"), of("delete")}
	require.Equal(t, want, n.audited(""))

	n.setConfig("replicator.shares/_replicator", "0").Is(t, http.StatusOK)
	n.setConfig("replicator.shares/_replicator", "0").Is(t, http.StatusOK) // as it was
	n.setConfig("replicator.shares/_replicator", "-1").Is(t, http.StatusBadRequest)
	n.Do(http.MethodDelete, "/_node/_local/_config/replicator.shares/_replicator", "").Is(t, http.StatusOK)
	n.setConfig("admins/eve", "a secret").Is(t, http.StatusOK)
	setting := map[string]any{"action": "set", "section": "replicator.shares", "key": "_replicator", "new": "0"}
	admin := map[string]any{"action": "set", "section": "admins", "key": "eve", "new": "****"}
	want = append(want, setting, map[string]any{"action": "unset", "section": "replicator.shares", "key": "_replicator", "old": "0"}, admin)
	require.Equal(t, want, n.audited(""))

	posted := n.post(definition(`"continuous": true`)).Is(t, http.StatusAccepted).JSON(t)["_local_id"].(string)
	n.post(`{"replication_id": "`+posted+`", "cancel": true}`).Is(t, http.StatusOK)
	n.Do(http.MethodDelete, "/_replicator", "").Is(t, http.StatusOK)
	last := n.audited("?limit=2")
	require.Equal(t, "delete", last[0]["action"])
	require.NotEmpty(t, last[0]["job_id"])
	require.Equal(t, map[string]any{"action": "delete", "database": "_replicator"}, last[1])
	require.Len(t, n.audited(""), len(want)+2)
	require.Equal(t, want[:5], n.audited("?job_id="+url.QueryEscape(id)))
	require.Equal(t, want[5:], n.audited("?of=settings"))
	require.Equal(t, want[6:], n.audited("?of=settings&limit=2"))
	require.Len(t, n.audited("?of=jobs"), len(want)+2-3)
	require.Empty(t, n.audited("?of=nodes"))
	webtest.Refused(t, n.Get("/_scheduler/audit?of=users"), http.StatusBadRequest, "query_parse_error", "`of` must be one of [jobs settings nodes]")

	ann := n.NewUser("ann")
	n.As(ann, http.MethodGet, "/_scheduler/audit", "").Is(t, http.StatusUnauthorized)
}
