package frontend_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
)

// Time is the bubble's in these tests, and the network and the store are in memory.

// A request that is refused does not wait long for the rest of its body, and neither does its
// connection.
func TestBodiesThatAreNotRead(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		request string
		status  int
		within  time.Duration
	}{
		{"PUT /db HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", http.StatusUnauthorized, time.Second},
		{"PUT /db HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", http.StatusUnauthorized, 0},
		{"PUT /db HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n", http.StatusUnauthorized, 0},
		{"PUT /db HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", http.StatusUnauthorized, 0},
		{"POST /_up HTTP/1.1\r\n" + webtest.RawHead + "Content-Length: 5\r\n\r\n123", http.StatusMethodNotAllowed, time.Second},
		{"GET /other HTTP/1.1\r\n" + webtest.RawHead + "Content-Length: 5\r\n\r\n", http.StatusNotFound, time.Second},
		{"GET / HTTP/1.1\r\n" + webtest.RawHead + "Content-Length: 5\r\n\r\n1", http.StatusOK, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := startOn(t, webtest.Memory(t), webtest.ListenPipe())
			c := n.Connect()
			c.Send(test.request)
			began := time.Now()
			if test.within > 0 {
				synctest.Wait()
				require.Equal(t, []string{c.LocalAddr().String()}, n.handler.Usage().Receiving, "it could make room")
			}
			response, err := http.ReadResponse(c.Answers, nil)
			require.NoError(t, err)
			defer response.Body.Close()
			require.Equal(t, test.status, response.StatusCode, test.request)
			require.True(t, response.Close)
			require.Equal(t, test.within, time.Since(began))
			_, err = io.Copy(io.Discard, response.Body)
			require.NoError(t, err)
			synctest.Wait() // the answer may be here before the node has counted its end
			require.Zero(t, n.handler.Usage().Requests)
			_, err = c.Answers.ReadByte()
			require.ErrorIs(t, err, io.EOF)
			require.LessOrEqual(t, time.Since(began), test.within+time.Second)
		})
	}
}

// A body that comes with its request costs the client nothing.
func TestBodiesThatAreNotNeeded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe())
		c := n.Connect()
		body := strings.Repeat("x", 100_000)
		for range 3 {
			go c.Send(fmt.Sprintf("PUT /db HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
			began := time.Now()
			require.Equal(t, http.StatusUnauthorized, c.Status())
			require.Zero(t, time.Since(began))
		}
	})
}

// A feed whose request announces a body does not wait for it forever.
func TestFeedWithABodyThatDoesNotCome(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe())
		n.NewDatabase("db")
		c := n.Connect()
		c.Send("GET /db/_changes?feed=longpoll HTTP/1.1\r\n" + webtest.RawHead + "Content-Length: 5\r\n\r\n")
		began := time.Now()
		synctest.Wait()
		require.Equal(t, []string{c.LocalAddr().String()}, n.handler.Usage().Receiving, "it could make room")
		require.Equal(t, http.StatusRequestTimeout, c.Status())
		require.Equal(t, time.Minute, time.Since(began))
		_, err := c.Answers.ReadByte()
		require.ErrorIs(t, err, io.EOF)
	})
}
