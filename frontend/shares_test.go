package frontend_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListShares(t *testing.T) {
	t.Parallel()
	n := start(t)
	require.Equal(t, `{"total_rows":0,"shares":[]}`+"\n", n.get("/_scheduler/shares").body)
	require.Equal(t, http.StatusAccepted, n.post(definition(`"continuous": true`)).status)
	require.Equal(t, http.StatusCreated, n.do(http.MethodPut, "/a%2F_replicator", "").status)
	for _, id := range []string{"1", "2"} {
		n.do(http.MethodPut, "/a%2F_replicator/"+id, definition(`"doc_ids": ["`+id+`"]`)).is(t, http.StatusCreated)
	}
	var list struct {
		TotalRows int `json:"total_rows"`
		Shares    []map[string]any
	}
	got := n.get("/_scheduler/shares").is(t, http.StatusOK)
	require.NoError(t, json.Unmarshal([]byte(got.body), &list))
	require.Equal(t, 2, list.TotalRows)
	require.Equal(t, []map[string]any{
		{"database": "a/_replicator", "user": nil, "shares": 100., "usage": 0., "running": 0., "pending": 2., "crashing": 0., "ran": 0., "entitled": 0.},
		{"database": nil, "user": adminName, "shares": 100., "usage": 0., "running": 0., "pending": 1., "crashing": 0., "ran": 0., "entitled": 0.},
	}, list.Shares)
	require.Equal(t, http.StatusMethodNotAllowed, n.do(http.MethodPost, "/_scheduler/shares", "{}").status)
}
