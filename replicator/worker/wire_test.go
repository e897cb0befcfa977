package worker_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorded returns what CouchDB 3.5 answered to the request of that number.
func recorded(t testing.TB, number string) (status int, body []byte) {
	t.Helper()
	names, err := filepath.Glob("../../testdata/wire/" + number + "-*.response")
	require.NoError(t, err)
	require.Len(t, names, 1, number)
	text, err := os.ReadFile(names[0])
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(text)), nil)
	require.NoError(t, err)
	defer answer.Body.Close()
	_, rest, found := bytes.Cut(text, []byte("\r\n\r\n"))
	require.True(t, found)
	body, err = io.ReadAll(bytes.NewReader(bytes.TrimSpace(rest)))
	require.NoError(t, err)
	return answer.StatusCode, body
}
