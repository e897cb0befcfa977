package frontend_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
)

// If two readers of a connection could disagree about the end of a request, what follows it
// is not read as another request (RFC 9112, 6.1).
func TestFramingThatIsNotClear(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	const chunks = "9\r\n{\"a\": 1}\n\r\n0\r\n\r\n"
	for name, test := range map[string]struct {
		request string
		status  int
	}{
		"length and chunks":        {"POST /db HTTP/1.1\r\n" + webtest.RawHead + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", http.StatusCreated},
		"chunks and length":        {"POST /db HTTP/1.1\r\n" + webtest.RawHead + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", http.StatusCreated},
		"length of all":            {"POST /db HTTP/1.1\r\n" + webtest.RawHead + "Content-Length: 19\r\nTransfer-Encoding: chunked\r\n", http.StatusCreated},
		"chunks alone":             {"POST /db HTTP/1.1\r\n" + webtest.RawHead + "Transfer-Encoding: chunked\r\n", http.StatusCreated}, // it is not seen that there is no length
		"refused":                  {"POST /db HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n", http.StatusUnauthorized},
		"chunks before there were": {"POST /db HTTP/1.0\r\n" + webtest.RawHead + "Connection: keep-alive\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n", http.StatusBadRequest},
		"no length":                {"POST /db HTTP/1.0\r\n" + webtest.RawHead + "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n", http.StatusBadRequest},
		"another coding":           {"POST /db HTTP/1.1\r\n" + webtest.RawHead + "Content-Length: 4\r\nTransfer-Encoding: gzip, chunked\r\n", http.StatusNotImplemented},
		"twice":                    {"POST /db HTTP/1.1\r\n" + webtest.RawHead + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", http.StatusNotImplemented},
		"two lengths":              {"POST /db HTTP/1.1\r\n" + webtest.RawHead + "Content-Length: 4\r\nContent-Length: 5\r\n", http.StatusBadRequest},
		"bad length":               {"POST /db HTTP/1.1\r\n" + webtest.RawHead + "Content-Length: +4\r\nTransfer-Encoding: chunked\r\n", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := n.Connect()
			c.Send(test.request + "Content-Type: application/json\r\n\r\n" + chunks + "GET /db HTTP/1.1\r\n" + webtest.RawHead + "\r\n")
			response, err := http.ReadResponse(c.Answers, nil)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, test.status, response.StatusCode)
			require.True(t, response.Close)
			_, err = c.Answers.ReadByte()
			require.Error(t, err, "what follows is not answered")
		})
	}
	// If the end is clear, the connection stays open.
	c := n.Connect()
	for range 2 {
		c.Send("POST /db HTTP/1.1\r\n" + webtest.RawHead + "Content-Type: application/json\r\nContent-Length: 8\r\n\r\n{\"a\": 1}")
		require.Equal(t, http.StatusCreated, c.Status())
	}
}
