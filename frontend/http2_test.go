package frontend_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend"
	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
	"settee/replicator"
)

// overHTTP2 serves n's handler once more, by HTTP/2, and returns a client.
func overHTTP2(t *testing.T, n *node) *http.Client {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)

	server := frontend.NewServer(n.handler) // that of n has begun to serve without TLS
	server.TLSConfig = &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}},
	}
	listener := webtest.ListenPipe()
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	transport := &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.Dial(ctx) },
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the pipe has nobody else at its end
		ForceAttemptHTTP2: true,
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return &http.Client{Transport: webtest.AsAdmin{RoundTripper: transport}}
}

// A request that is not finished delays no other, and shutting down does not wait for it.
func TestBodyThatDoesNotComeOverHTTP2(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe())
		client := overHTTP2(t, n)
		body, never := io.Pipe()
		defer never.Close()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://a/_replicate", body)
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		began := time.Now()
		slow := make(chan webtest.Answer, 1)
		go func() {
			response, err := client.Do(r)
			if err != nil {
				slow <- webtest.Answer{Body: err.Error()}
				return
			}
			defer response.Body.Close()
			text, _ := io.ReadAll(response.Body)
			slow <- webtest.Answer{Status: response.StatusCode, Header: response.Header, Body: string(text)}
		}()
		synctest.Wait()
		response, err := client.Get("https://a/_up")
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, 2, response.ProtoMajor)
		require.Equal(t, http.StatusOK, response.StatusCode)

		webtest.Refused(t, <-slow, http.StatusRequestTimeout, "timeout", "the request body was not received within 1m0s")
		require.Equal(t, time.Minute, time.Since(began))
	})
}

func TestReplicateWaitsForHoursOverHTTP2(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe())
		client := overHTTP2(t, n)
		type result struct {
			status int
			err    error
		}
		waiting := make(chan result, 1)
		go func() {
			response, err := client.Post("https://a/_replicate", "application/json", strings.NewReader(definition("")))
			if err != nil {
				waiting <- result{err: err}
				return
			}
			waiting <- result{response.StatusCode, response.Body.Close()}
		}()
		run := n.accept()
		require.NoError(t, run.Crash(t.Context(), time.Now().Add(5*time.Hour), 1, replicator.TextFault("", "busy")))
		n.complete(n.accept(), `{"ok":true}`)
		require.Equal(t, result{http.StatusOK, nil}, <-waiting)
	})
}
