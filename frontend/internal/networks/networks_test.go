package networks_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/networks"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"192.0.2.1:5984":              "192.0.2.1",
		"192.0.2.1":                   "192.0.2.1",
		"[::ffff:192.0.2.1]:5984":     "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:5984": "2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::":         "2001:db8:1:2::/64",
		"[fe80::1:2%eth0]:5984":       "fe80::/64",
		"2001:db8:1:3::":              "2001:db8:1:3::/64",
		"pipe":                        "pipe",
		"":                            "",
	} {
		require.Equal(t, want, networks.Of(address), address)
	}
}
