package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// apart is the environment variable that makes this test run in a process of its own, which is unusable for others.
const apart = "SETTEE_TEST_APART"

func TestOutboundIsRefused(t *testing.T) {
	t.Parallel()
	if os.Getenv(apart) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestOutboundIsRefused$", "-test.v")
		cmd.Env = append(os.Environ(), apart+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestOutboundIsRefused")
		return
	}
	peer := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was not refused") }))
	defer peer.Close()
	secure := httptest.NewTLSServer(peer.Config.Handler)
	defer secure.Close()
	refuseOutbound()

	get := func(client *http.Client, url string) error {
		answer, err := client.Get(url)
		if err == nil {
			_ = answer.Body.Close()
		}
		return err
	}
	transport, ok := http.DefaultTransport.(*http.Transport)
	require.True(t, ok)
	_, port, err := net.SplitHostPort(peer.Listener.Addr().String())
	require.NoError(t, err)
	for name, attempt := range map[string]func() error{
		"default client":    func() error { return get(http.DefaultClient, peer.URL) },
		"over TLS":          func() error { return get(http.DefaultClient, secure.URL) },
		"client of its own": func() error { return get(&http.Client{}, peer.URL) },
		"clone of the default transport": func() error {
			return get(&http.Client{Transport: transport.Clone()}, peer.URL)
		},
	} {
		require.ErrorIs(t, attempt(), errNoOutbound, name)
	}
	// net gives the reason of the resolver's failure only as text.
	for name, attempt := range map[string]func() error{
		"name":   func() error { _, err := net.LookupHost("couch.example.org"); return err },
		"record": func() error { _, err := net.LookupTXT("couch.example.org"); return err },
		"dialer": func() error { _, err := net.Dial("tcp", net.JoinHostPort("couch.example.org", port)); return err },
		"transport of its own": func() error {
			return get(&http.Client{Transport: &http.Transport{}}, "http://couch.example.org:"+port)
		},
		"dialer with a context": func() error {
			_, err := new(net.Dialer).DialContext(context.Background(), "tcp", "couch.example.org:"+port)
			return err
		},
	} {
		assert.ErrorContains(t, attempt(), errNoOutbound.Error(), name)
	}
}
