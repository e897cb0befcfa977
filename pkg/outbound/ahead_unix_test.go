//go:build unix

package outbound

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// aheadPair returns both ends of a connection. One reads ahead.
func aheadPair(t *testing.T) (*aheadConn, *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	peer, err := listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(); peer.Close() })
	c := readAhead(conn)
	require.NotNil(t, c)
	return c, peer.(*net.TCPConn)
}

// The bytes are the same in pieces of any size, and at the end the connection has no buffer.
func TestReadAhead(t *testing.T) {
	t.Parallel()
	sent := make([]byte, 5*aheadSize+1)
	_, _ = rand.Read(sent)
	for _, expected := range []int64{0, int64(len(sent)), 1 << 40} {
		for _, size := range []int{1, 4 << 10, aheadSize, 2 * aheadSize} {
			c, peer := aheadPair(t)
			flow := new(Flow)
			flow.Expect(expected)
			c.flow.Store(flow)
			go func() {
				_, _ = peer.Write(sent)
				_ = peer.CloseWrite()
			}()
			var got bytes.Buffer
			_, err := io.CopyBuffer(struct{ io.Writer }{&got}, c, make([]byte, size))
			require.NoError(t, err)
			require.True(t, bytes.Equal(sent, got.Bytes()), "other bytes, in pieces of %d", size)
			require.Nil(t, c.buffer)
		}
	}
}

// A connection that waits has no buffer, and neither has one whose bytes were all read.
func TestReadAheadWaitsWithoutABuffer(t *testing.T) {
	t.Parallel()
	c, peer := aheadPair(t)
	require.False(t, fills(t, c), "it read what has not come")
	require.Nil(t, c.buffer)
	_, err := peer.Write([]byte("hello"))
	require.NoError(t, err)
	p := make([]byte, 3)
	_, err = io.ReadFull(c, p)
	require.NoError(t, err)
	require.NotNil(t, c.buffer)
	_, err = io.ReadFull(c, p[:2])
	require.NoError(t, err)
	require.Nil(t, c.buffer)
}

// fills tries once to read what has come.
func fills(t *testing.T, c *aheadConn) (filled bool) {
	t.Helper()
	require.NoError(t, c.raw.Control(func(fd uintptr) { filled = c.tryFill(fd) }))
	return filled
}

// A connection that reads ahead returns the same errors as a plain one.
func TestReadAheadErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end func(*testing.T, net.Conn, *net.TCPConn)
		is  error
	}{
		"end":      {func(_ *testing.T, _ net.Conn, peer *net.TCPConn) { peer.Close() }, io.EOF},
		"closed":   {func(_ *testing.T, c net.Conn, _ *net.TCPConn) { c.Close() }, net.ErrClosed},
		"deadline": {func(t *testing.T, c net.Conn, _ *net.TCPConn) { require.NoError(t, c.SetReadDeadline(time.Unix(1, 0))) }, os.ErrDeadlineExceeded},
		"reset": {func(t *testing.T, _ net.Conn, peer *net.TCPConn) {
			require.NoError(t, peer.SetLinger(0))
			peer.Close()
		}, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, peer := aheadPair(t)
			text := ""
			if name != "end" {
				text = (&net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: test.is}).Error()
			}
			if name == "reset" {
				text = (&net.OpError{
					Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError("read", test.is),
				}).Error()
			}
			test.end(t, c, peer)
			n, err := c.Read(make([]byte, 10))
			require.Zero(t, n)
			require.ErrorIs(t, err, test.is)
			require.ErrorContains(t, err, text)
			require.Nil(t, c.buffer)
		})
	}
}

// However much is expected, a connection passes on what comes, and still notices its end.
func TestFlowOfASlowAnswer(t *testing.T) {
	t.Parallel()
	c, peer := aheadPair(t)
	flow := new(Flow)
	c.flow.Store(flow)
	p := make([]byte, 4<<10)
	for i, expected := range []int64{1 << 40, minFlow, minFlow - 1, 1 << 40, 0, 1 << 40} {
		flow.Expect(expected)
		_, err := peer.Write([]byte{byte(i)}) // after the connection has read the byte before
		require.NoError(t, err)
		n, err := c.Read(p)
		require.NoError(t, err)
		require.Equal(t, []byte{byte(i)}, p[:n])
	}
	peer.Close()
	_, err := c.Read(p)
	require.Equal(t, io.EOF, err)
}

// The connection of a request knows its flow.
func TestFlowReachesTheConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 2*minFlow))
	}))
	t.Cleanup(server.Close)
	pool := NewPool(PoolOptions{})
	t.Cleanup(pool.Close)
	transport, err := pool.Transport(TransportOptions{})
	require.NoError(t, err)
	for range 3 {
		flow := new(Flow)
		flow.Expect(2 * minFlow)
		var of *Flow
		ctx := httptrace.WithClientTrace(WithFlow(t.Context(), flow), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			of = info.Conn.(*countedConn).ahead.flow.Load()
		}})
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		require.NoError(t, err)
		answer, err := transport.RoundTrip(request)
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, answer.Body)
		require.NoError(t, err)
		require.EqualValues(t, 2*minFlow, n)
		require.NoError(t, answer.Body.Close())
		require.Same(t, flow, of)
		flow.Expect(0)
	}
}
