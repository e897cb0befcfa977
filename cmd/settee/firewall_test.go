package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/config"
)

func TestFirewallRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	cluster := "settee/store=fdb://" + write("fdb.cluster", "# one of three\nsettee:abc@10.0.3.1:4500,10.0.3.2:4500:tls,[2001:db8::3]:4501\n")
	byName := "settee/store=fdb://" + write("names.cluster", "settee:abc@localhost:4500\n")
	resolvers := write("resolv.conf", "search example.org\nnameserver 169.254.169.253\nnameserver 127.0.0.53\nnameserver 2001:db8::53\n")
	const frontend, replication = "node_types/replication=false", "node_types/api_frontend=false"
	for name, test := range map[string]struct {
		sets, in, out []string // the optional lines of the chains
	}{
		"frontend": {[]string{frontend, cluster, "chttpd/bind_address=any"}, []string{"tcp dport 5984 accept"}, []string{
			"ip daddr 10.0.3.1 tcp dport 4500 accept", "ip daddr 10.0.3.2 tcp dport 4500 accept",
			"ip6 daddr 2001:db8::3 tcp dport 4501 accept",
		}},
		"one address": {[]string{frontend, "chttpd/bind_address=192.0.2.1", "chttpd/port=80"},
			[]string{"ip daddr 192.0.2.1 tcp dport 80 accept"}, nil},
		"TLS for others": {[]string{frontend, "ssl/enable=true", "ssl/cert_file=a.pem", "ssl/bind_address=any"}, []string{"tcp dport 6984 accept"}, nil},
		"IPv4 alone":     {[]string{frontend, "chttpd/bind_address=0.0.0.0"}, []string{"meta nfproto ipv4 tcp dport 5984 accept"}, nil},
		"loopback":       {[]string{frontend, "chttpd/bind_address=127.0.0.2"}, nil, nil},
		"replication": {[]string{replication, "chttpd/bind_address=any", "replicator/denied_networks=10.1.0.0/16, 10.0.0.0/8, fd00::/8, fd00::1"}, nil, []string{
			"ip daddr 169.254.169.253 meta l4proto { tcp, udp } th dport 53 accept",
			"ip6 daddr 2001:db8::53 meta l4proto { tcp, udp } th dport 53 accept",
			"ip daddr { 10.0.0.0/8 } reject",
			"ip6 daddr { ::a00:0/104, ::ffff:10.0.0.0/104, ::ffff:0:a00:0/104, 64:ff9b::a00:0/104, 64:ff9b:1:a00::/56, 2001:0:a00::/40, " +
				"2002:a00::/24, fd00::/8 } reject",
			"ip6 daddr & ::fdff:ffff:ff00:0 { ::5efe:a00:0 } reject",
			"ip6 daddr & ffff:ffff::ff00:0 { 2001::f500:0 } reject",
			"ip6 daddr & ffff:ffff:ffff::ff00:0 { 64:ff9b:1::a00:0 } reject",
			"ip6 daddr & ffff:ffff:ffff:0:ff:: { 64:ff9b:1:0:a:: } reject",
			"ip6 daddr & ffff:ffff:ffff:ff:: { 64:ff9b:1:a:: } reject",
			"meta l4proto tcp accept",
		}},
		"names of coordinators": {[]string{frontend, byName}, nil, []string{
			"ip daddr 127.0.0.1 tcp dport 4500 accept",
			"ip daddr 169.254.169.253 meta l4proto { tcp, udp } th dport 53 accept",
			"ip6 daddr 2001:db8::53 meta l4proto { tcp, udp } th dport 53 accept",
		}},
	} {
		cfg, _, err := config.Load(config.Options{Flags: test.sets})
		require.NoError(t, err)
		r, err := newRules(t.Context(), cfg, resolvers)
		require.NoError(t, err)
		var text strings.Builder
		require.NoError(t, r.print(&text))
		in, out, _ := strings.Cut(text.String(), "chain output")
		for part, want := range map[string][]string{in: test.in, out: test.out} {
			require.Contains(t, part, "policy drop;")
			var got []string
			for line := range strings.Lines(part) {
				line = strings.TrimSpace(line)
				usual := line == "reject" || strings.Contains(line, "ct state") || strings.Contains(line, "if lo") ||
					strings.Contains(line, "icmpv6") || strings.HasPrefix(line, "#") || line == "ip6 daddr ::1 tcp dport 4500 accept"
				if !usual && (strings.HasSuffix(line, "accept") || strings.HasSuffix(line, "reject")) {
					got = append(got, line)
				}
			}
			assert.Equal(t, want, got, name)
		}
	}
}

// Without a name server on another host, only this host's own resolver asks.
func TestFirewallRulesWithAResolverOfTheHost(t *testing.T) {
	t.Parallel()
	cfg, _, err := config.Load(config.Options{Flags: []string{"replicator/denied_networks=none"}})
	require.NoError(t, err)
	r, err := newRules(t.Context(), cfg, filepath.Join(t.TempDir(), "none"))
	require.NoError(t, err)
	r.MoreIn, r.MoreOut = []string{"tcp dport { 22, 80 }"}, []string{"udp dport 123"}
	var text strings.Builder
	require.NoError(t, r.print(&text))
	assert.Contains(t, text.String(), "\t\tudp dport 53 accept\n")
	assert.Contains(t, text.String(), "\t\ttcp dport { 22, 80 } accept\n\t}\n\n\tchain output")
	assert.Contains(t, text.String(), "\t\tudp dport 123 accept\n")
	assert.NotContains(t, text.String(), "daddr")
}

func TestFirewallRefuses(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for name, test := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"any port":              {[]string{"--set", "chttpd/port=0"}, exitFailed, "a port is 0"},
		"no such file":          {[]string{"--store", "fdb:///nowhere/fdb.cluster"}, exitFailed, "reading the cluster file"},
		"no file":               {[]string{"--store", "fdb:?prefix=a"}, exitFailed, "[settee] store names no cluster file"},
		"nothing in the file":   {[]string{"--store", "fdb://" + empty}, exitFailed, "names no coordinator"},
		"two expressions":       {[]string{"--in", "tcp dport 22; accept"}, exitUsage, "is not an expression"},
		"no expression":         {[]string{"--out", " "}, exitUsage, "is not an expression"},
		"no such configuration": {[]string{"--config", "/nowhere/local.ini"}, exitFailed, "local.ini"},
	} {
		out, errs, status := settee(t, append([]string{"firewall"}, test.args...)...)
		assert.Equal(t, test.status, status, name)
		assert.Contains(t, errs, test.says, name)
		assert.Empty(t, out, name)
	}
}

// Examples that read the files of a package read all files that its units read, in their order, and the rules of the
// firewall are for the role of one of the units. Rules made from other files cut the node off from its store.
func TestExamplesReadTheFilesOfTheUnits(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../scripts/packages/unit.service")
	require.NoError(t, err)
	_, flags, found := strings.Cut(string(unit), "\nExecStart=/usr/bin/settee serve ")
	require.True(t, found)
	flags, _, _ = strings.Cut(flags, "\n")
	count := 0
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		for line := range strings.Lines(strings.ReplaceAll(cmd.Example, "|\n", "|")) {
			if strings.Contains(line, "--config /etc/settee") {
				count++
				assert.Contains(t, line, flags, cmd.CommandPath())
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(newRoot())
	require.Positive(t, count)
	build, err := os.ReadFile("../../scripts/packages/build")
	require.NoError(t, err)
	roles := regexp.MustCompile(`COUCHDB_NODE_TYPE_\w+=false`)
	assert.ElementsMatch(t, roles.FindAllString(string(build), -1), roles.FindAllString(newFirewall().Example, -1))
}
