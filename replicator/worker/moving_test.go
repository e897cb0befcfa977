package worker

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
)

// answering answers each request with a status.
type answering int

func (status answering) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: int(status), Body: io.NopCloser(strings.NewReader("answer"))}, nil
}

func TestMovedBytes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var m moved
		require.True(t, m.last().IsZero())
		ask := func(path, body string, status int) bool {
			time.Sleep(time.Minute)
			var content io.Reader
			if body != "" {
				content = strings.NewReader(body)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://host/db/"+path, content)
			require.NoError(t, err)
			response, err := m.through(answering(status)).RoundTrip(r)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			return time.Since(m.last()) < time.Second
		}
		require.True(t, ask("_bulk_get", "", http.StatusOK))
		require.True(t, ask("doc", "sent", http.StatusOK))
		require.False(t, ask("_changes", "", http.StatusOK), "a feed has heartbeats")
		require.False(t, ask("doc", "", http.StatusInternalServerError), "an error is no progress")
	})
}
