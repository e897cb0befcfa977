package web

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/config"
)

func TestPeerOf(t *testing.T) {
	t.Parallel()
	const connection = "127.0.0.1:4711"
	for _, test := range []struct {
		header string
		values []string
		peer   string
	}{
		{"", []string{"1.2.3.4"}, connection}, // no header is believed unless it is set
		{"X-Client", nil, connection},
		{"X-Client", []string{"1.2.3.4"}, "1.2.3.4:4711"},
		{"X-Client", []string{" 2001:DB8::1 "}, "[2001:db8::1]:4711"},
		{"X-Client", []string{"1.2.3.4, 5.6.7.8"}, connection},
		{"X-Client", []string{"1.2.3.4", "5.6.7.8"}, connection},
		{"X-Client", []string{"junk"}, connection},
		{"X-Client", []string{""}, connection},
	} {
		var sets []string
		if test.header != "" {
			sets = append(sets, "chttpd/peer_header="+test.header)
		}
		cfg, _, err := config.Load(config.Options{Flags: sets})
		require.NoError(t, err)
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = connection
		r.Header["X-Client"] = test.values
		assert.Equal(t, test.peer, peerOf(r, cfg), "%+v", test)
	}
}
