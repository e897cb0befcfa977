package servers_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/servers"
)

// relayed returns a client of a relay to an HTTP server that echoes bodies.
func relayed(t *testing.T, trip time.Duration) func(body string) (string, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(server.Close)
	r, err := servers.StartRelay(context.Background(), server.Listener.Addr().String(), trip)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return func(body string) (string, error) {
		answer, err := client.Post("http://"+r.Address(), "text/plain", strings.NewReader(body))
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return string(text), err
	}
}

// A new connection takes two round trips, one of them for its handshake. Everything passes unchanged.
func TestRelayDelays(t *testing.T) {
	t.Parallel()
	const trip = 50 * time.Millisecond
	post := relayed(t, trip)
	long := strings.Repeat("text ", 1<<20)
	for round, body := range []string{"short", long} {
		began := time.Now()
		answer, err := post(body)
		require.NoError(t, err)
		require.True(t, answer == body)
		least := trip
		if round == 0 {
			least = 2 * trip
		}
		require.GreaterOrEqual(t, time.Since(began), least)
	}
}

// The end of one direction is passed on, and the other continues.
func TestRelayHalfClose(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		all, _ := io.ReadAll(conn) // the test sees what was read
		_, _ = conn.Write(append([]byte("got "), all...))
	}()
	r, err := servers.StartRelay(context.Background(), listener.Addr().String(), time.Millisecond)
	require.NoError(t, err)
	defer r.Close()
	conn, err := net.Dial("tcp", r.Address())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("all\n"))
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "got all\n", line)
}
