package worker_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/replicator/worker"
)

func TestChanged(t *testing.T) {
	t.Parallel()
	source, target := lodges(t, 0)
	rep := replication(t, source.URL, target.URL, `"continuous":true`, `"filter":"x/y"`)
	cfg := testConfig()
	row := `{"seq":"8-x","id":"d","changes":[{"rev":"1-a"}]}`
	for rows, want := range map[string]bool{"": false, row: true} {
		source.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			require.Equal(t, "/db/_changes?feed=normal&limit=1&since=7-x", r.URL.String())
			_, err := w.Write([]byte(`{"results":[` + rows + `],"last_seq":"8-x","pending":0}`))
			return err == nil
		})
		got, err := worker.Changed(t.Context(), rep, json.RawMessage(`"7-x"`), cfg)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Equal(t, 1, source.count(), "a login that is still good was not used")

	asked := 0
	source.on("GET /_changes", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		asked++
		return refuse(w, 500, `{"error":"s3cret","reason":"ill"}`)
	})
	_, err := worker.Changed(t.Context(), rep, nil, cfg)
	var failure *worker.Error
	require.ErrorAs(t, err, &failure)
	require.NotContains(t, failure.Error(), "s3cret")
	require.Equal(t, 1, asked, "the next question comes anyway")
	require.Zero(t, target.count())
}
