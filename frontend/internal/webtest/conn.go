package webtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Conn is one connection to a node.
type Conn struct {
	*testing.T
	net.Conn
	Answers *bufio.Reader
}

// Connect opens a connection.
func (n *Node) Connect() *Conn {
	n.Helper()
	conn, err := n.Dial(n.Context())
	require.NoError(n, err)
	n.Cleanup(func() { _ = conn.Close() })
	return &Conn{n.T, conn, bufio.NewReader(conn)}
}

// Send sends a request, or a part of one. If the node has closed the connection, sending may fail.
func (c *Conn) Send(text string) { _, _ = io.WriteString(c, text) }

// Ask sends a request for /.
func (c *Conn) Ask() {
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
}

// Answer reads the next answer. closes reports whether it is the last one on its connection.
func (c *Conn) Answer() (got Answer, closes bool) {
	c.Helper()
	response, err := http.ReadResponse(c.Answers, nil)
	require.NoError(c, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(c, err)
	return Answer{Status: response.StatusCode, Header: response.Header, Body: string(text)}, response.Close
}

// Status returns the status of the next answer, or 0 if the connection ends without one.
func (c *Conn) Status() int {
	c.Helper()
	response, err := http.ReadResponse(c.Answers, nil)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(c, err)
	return response.StatusCode
}

// Follow opens a feed, with or without a body.
func (c *Conn) Follow(request, body string) {
	c.Helper()
	c.Send(fmt.Sprintf("%s HTTP/1.1\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", request, RawHead, len(body), body))
	line, err := c.Answers.ReadString('\n')
	require.NoError(c, err)
	require.Equal(c, "HTTP/1.1 200 OK\r\n", line)
}

// Begin sends a request without the last byte of its body.
func (c *Conn) Begin(method, target, body string) {
	c.Send(fmt.Sprintf("%s %s HTTP/1.1\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, target, RawHead,
		len(body), body[:len(body)-1]))
}
