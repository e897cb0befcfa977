package main

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
)

// relayed returns a relay to an HTTP server that echoes bodies, and a client of the relay.
func relayed(t *testing.T, trip time.Duration, resets int) (*relay, func(body string) (string, error)) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(server.Close)
	r, err := startRelay(context.Background(), server.Listener.Addr().String(), trip, resets)
	require.NoError(t, err)
	t.Cleanup(r.close)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return r, func(body string) (string, error) {
		answer, err := client.Post("http://"+r.address(), "text/plain", strings.NewReader(body))
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
	_, post := relayed(t, trip, 0)
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

func TestRelayResets(t *testing.T) {
	t.Parallel()
	r, post := relayed(t, 0, 3)
	for n := 1; n <= 9; n++ {
		answer, err := post("body")
		if n%3 == 0 {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "body", answer)
	}
	require.EqualValues(t, 3, r.reset.Load())
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
	r, err := startRelay(context.Background(), listener.Addr().String(), time.Millisecond, 0)
	require.NoError(t, err)
	defer r.close()
	conn, err := net.Dial("tcp", r.address())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("all\n"))
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "got all\n", line)
}
