package worker_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/worker"
)

// A server and the runs of its databases share their login, whatever the path above the database.
func TestAServerSharesTheLoginsOfRuns(t *testing.T) {
	t.Parallel()
	l := lodgeOf(newStub(t))
	l.stub.on("POST /_dbs_info", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		require.Equal(t, "yes", r.Header.Get("X-Own"))
		_, err := w.Write([]byte(`[{"key":"db","info":{"update_seq":"7-x"}}]`))
		return err == nil
	})
	rep := replication(t, l.URL, newStub(t).URL)
	rep.Source.Headers = append(rep.Source.Headers, replicator.Header{Name: "X-Own", Value: "yes"})
	cfg := testConfig()
	_, err := worker.Changed(t.Context(), rep, nil, cfg)
	require.NoError(t, err)
	url, _, ok := rep.Source.Server()
	require.True(t, ok)
	server, err := worker.OpenServer(rep.Source, url, cfg)
	require.NoError(t, err)
	defer server.Close()
	infos, err := server.DatabasesInfo(t.Context(), []string{"db"})
	require.NoError(t, err)
	require.Equal(t, `"7-x"`, string(infos[0].UpdateSeq))
	require.Equal(t, 1, l.count())
}
