package config_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/config"
	"settee/pkg/sockopt"
)

// replicator loads a configuration with one setting of [replicator].
func replicator(key, text string) (*config.Config, error) {
	cfg, _, err := new(config.Config).With(config.OriginFile, config.Layer{{Section: "replicator", Key: key, Text: text}})
	return cfg, err
}

func TestConnectTo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]config.ConnectTo{
		"*.example.com:443:proxy.internal:8443": {{"*.example.com", 443, "proxy.internal", 8443}},
		"api.example.com:443:127.0.0.1:443 , *:80:[2001:db8::1]:81,": {
			{"api.example.com", 443, "127.0.0.1", 443}, {"*", 80, "2001:db8::1", 81},
		},
	} {
		cfg, err := replicator("connect_to", text)
		require.NoError(t, err, text)
		require.Equal(t, want, config.ConnectToOverrides.Get(cfg), text)
	}
	require.Empty(t, config.ConnectToOverrides.Get(new(config.Config)))

	for _, entry := range []string{
		"example.com", "example.com:443:b", "a.example.com:https:b:1", "a:0:b:1", "a:1:b:0", "a:65536:b:1", "a:1:b:70000",
		":1:b:2", "a:1::2", "[::1]:1:b:2", "a:1:::1:2", "a:1:[b]:2", "a:1:[127.0.0.1]:2", "sub.*.example.com:1:b:2",
		"example.*:1:b:2", "**:1:b:2", "a b:1:c:2", "http://a:1:b:2", "a:1:b:2:3",
	} {
		_, err := replicator("connect_to", "good.example:1:b:2, "+entry)
		require.ErrorContains(t, err, "HOST:PORT:TARGET:TARGETPORT", entry)
		require.ErrorContains(t, err, `; "`+entry+`" is not`)
		require.NotContains(t, strings.SplitN(err.Error(), "; ", 2)[1], "good")
	}
}

func TestDeniedNetworks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10.0.0.0/8":                          "10.0.0.0/8",
		"10.1.2.3/8":                          "10.0.0.0/8",
		"192.0.2.1 ,, fe80::/10,2001:db8::":   "192.0.2.1/32 fe80::/10 2001:db8::/128",
		"::ffff:10.0.0.0/104, ::ffff:1.2.3.4": "10.0.0.0/8 1.2.3.4/32",
		"none":                                "",
	} {
		cfg, err := replicator("denied_networks", text)
		require.NoError(t, err, text)
		list := []string{}
		for _, network := range config.DeniedNetworks.Get(cfg) {
			list = append(list, network.String())
		}
		require.Equal(t, want, strings.Join(list, " "), text)
	}
	for _, entry := range []string{"10.0.0.0/33", "10.0.0", "localhost", "fe80::1%eth0", "::ffff:0:0/95", "none"} {
		_, err := replicator("denied_networks", "127.0.0.1,"+entry)
		require.ErrorContains(t, err, `; "`+entry+`" is not`)
	}
	denied := func(addr string) bool {
		for _, network := range config.DeniedNetworks.Get(new(config.Config)) {
			if network.Contains(netip.MustParseAddr(addr)) {
				return true
			}
		}
		return false
	}
	for _, addr := range []string{"169.254.169.254", "169.254.170.2", "fe80::1", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200"} {
		require.True(t, denied(addr), addr)
	}
	private, err := replicator("denied_networks", "private, 192.0.2.1")
	require.NoError(t, err)
	everything := denied
	denied = func(addr string) bool {
		return slices.ContainsFunc(config.DeniedNetworks.Get(private), func(n netip.Prefix) bool { return n.Contains(netip.MustParseAddr(addr)) })
	}
	for _, addr := range []string{
		"0.0.0.0", "::", "127.0.0.1", "127.9.9.9", "::1", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "192.0.2.1",
		"169.254.169.254", "169.254.170.2", "fe80::1", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fc00::1", "100.100.100.200", "192.0.0.192", "168.63.129.16",
	} {
		require.True(t, denied(addr), addr)
	}
	for _, addr := range []string{"8.8.8.8", "172.32.0.1", "172.15.255.255", "192.169.0.1", "100.128.0.1", "2001:db8::1", "2600::1"} {
		require.False(t, denied(addr), addr)
	}
	denied = everything
	for _, addr := range []string{"127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "100.64.0.1", "fd00::1", "8.8.8.8"} {
		require.False(t, denied(addr), addr)
	}
}

func TestSocketOptions(t *testing.T) {
	t.Parallel()
	cfg, err := replicator("socket_options", "[ {keepalive,false},{nodelay, true} , {sndbuf, 1000}, {recbuf,2000}, {priority, 0}, {buffer, 5} ]")
	require.NoError(t, err)
	require.Equal(t, sockopt.Options{
		KeepAlive: new(false), NoDelay: new(true), SendBuffer: new(1000), ReceiveBuffer: new(2000),
	}, config.SocketOptionDefaults.Get(cfg))
	require.Equal(t, sockopt.Options{KeepAlive: new(true), NoDelay: new(true)}, config.SocketOptionDefaults.Get(new(config.Config)))

	for _, text := range []string{"true", "[{keepalive, yes}]", "[{linger, 1}]"} {
		_, err := replicator("socket_options", text)
		require.ErrorContains(t, err, "it must be a list such as", text)
	}
	for _, text := range []string{"Keepalive", "keepalive,,nodelay", "keep alive"} {
		_, err := replicator("valid_socket_options", text)
		require.ErrorContains(t, err, "words in small letters", text)
	}
}

// Errors and the effective configuration do not show a secret.
func TestKeyPasswordIsMasked(t *testing.T) {
	t.Parallel()
	cfg, err := replicator("password", "s3cr3t")
	require.NoError(t, err)
	require.Equal(t, "s3cr3t", config.KeyPassword.Get(cfg))
	var out strings.Builder
	require.NoError(t, cfg.WriteINI(&out))
	require.NotContains(t, out.String(), "s3cr3t")
	require.Contains(t, out.String(), "\n; password = **** ; file\n")
}
