package frontend_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
)

func TestListShares(t *testing.T) {
	t.Parallel()
	n := start(t)
	require.Equal(t, `{"total_rows":0,"shares":[]}`+"\n", n.Get("/_scheduler/shares").Body)
	require.Equal(t, http.StatusAccepted, n.post(definition(`"continuous": true`)).Status)
	require.Equal(t, http.StatusCreated, n.Do(http.MethodPut, "/a%2F_replicator", "").Status)
	for _, id := range []string{"1", "2"} {
		n.Do(http.MethodPut, "/a%2F_replicator/"+id, definition(`"doc_ids": ["`+id+`"]`)).Is(t, http.StatusCreated)
	}
	var list struct {
		TotalRows int `json:"total_rows"`
		Shares    []map[string]any
	}
	got := n.Get("/_scheduler/shares").Is(t, http.StatusOK)
	require.NoError(t, json.Unmarshal([]byte(got.Body), &list))
	require.Equal(t, 2, list.TotalRows)
	require.Equal(t, []map[string]any{
		{"database": "a/_replicator", "user": nil, "shares": 100., "usage": 0., "running": 0., "pending": 2., "scheduled": 0., "parked": 0., "paused": 0., "crashing": 0., "ran": 0., "entitled": 0.},
		{"database": nil, "user": webtest.AdminName, "shares": 100., "usage": 0., "running": 0., "pending": 1., "scheduled": 0., "parked": 0., "paused": 0., "crashing": 0., "ran": 0., "entitled": 0.},
	}, list.Shares)

	// Paused databases say since when, and their jobs do.
	n.Do(http.MethodPut, "/empty%2F_replicator", "").Is(t, http.StatusCreated)
	require.NoError(t, n.jobs.Shares.SetWeights(t.Context(), map[string]float64{"a/_replicator": 0.07, "empty/_replicator": 0.5}))
	require.NoError(t, n.jobs.Shares.SetWeights(t.Context(), map[string]float64{"a/_replicator": 0, "empty/_replicator": 0.5}))
	require.NoError(t, json.Unmarshal([]byte(n.Get("/_scheduler/shares").Is(t, http.StatusOK).Body), &list))
	require.Len(t, list.Shares, 3)
	since := list.Shares[0]["paused_since"]
	require.NotEmpty(t, since)
	require.Equal(t, []any{0., 7.}, []any{list.Shares[0]["shares"], list.Shares[0]["shares_before"]})
	require.Equal(t, []any{2., 0.}, []any{list.Shares[0]["paused"], list.Shares[0]["pending"]})
	require.Equal(t, []any{"empty/_replicator", 50., nil}, []any{list.Shares[1]["database"], list.Shares[1]["shares"], list.Shares[1]["paused_since"]})
	for _, path := range []string{"/_scheduler/jobs?database=a/_replicator", "/_scheduler/docs/a%2F_replicator"} {
		for _, rows := range n.Get(path).Is(t, http.StatusOK).JSON(t) {
			if rows, ok := rows.([]any); ok {
				require.Len(t, rows, 2)
				row := rows[0].(map[string]any)
				require.Equal(t, []any{"paused", "database", since}, []any{conditionOf(row)["state"], conditionOf(row)["reason"], conditionOf(row)["since"]}, path)
				if id, known := row["job_id"].(string); known { // run now, it waits, and the answer says so
					run := n.Do(http.MethodPost, "/_scheduler/jobs/"+url.PathEscape(id)+"/_run", "").Is(t, http.StatusAccepted).JSON(t)
					require.Equal(t, []any{"paused", since}, []any{conditionOf(run)["state"], conditionOf(run)["since"]})
				}
			}
		}
	}
	require.NotContains(t, n.Get("/_scheduler/jobs?database=").Is(t, http.StatusOK).Body, "paused")
	require.Equal(t, http.StatusMethodNotAllowed, n.Do(http.MethodPost, "/_scheduler/shares", "{}").Status)
}
