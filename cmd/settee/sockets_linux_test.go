package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv/kvtest"
)

// socket is a TCP socket of a process.
type socket struct {
	local, remote netip.AddrPort
	listening     bool
}

// sockets returns the sockets of the process, as listed by the kernel.
func (p *process) sockets() (all []socket) {
	p.t.Helper()
	dir := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	links, err := filepath.Glob(dir + "fd/*")
	require.NoError(p.t, err)
	own := make(map[string]bool) // by inode
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil { // otherwise it was closed meanwhile
			own[to] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(dir + "net/" + table)
		require.NoError(p.t, err)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) < 10 || !own["socket:["+f[9]+"]"] {
				continue
			}
			all = append(all, socket{kernelAddress(p.t, f[1]), kernelAddress(p.t, f[2]), f[3] == "0A"})
		}
	}
	return all
}

// kernelAddress parses an address in the format of /proc: hexadecimal 32-bit words in the byte order of the machine, a
// colon, and the port.
func kernelAddress(t testing.TB, text string) netip.AddrPort {
	host, port, ok := strings.Cut(text, ":")
	require.True(t, ok, text)
	raw, err := hex.DecodeString(host)
	require.NoError(t, err)
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word) // these tests assume little-endian machines
	}
	addr, ok := netip.AddrFromSlice(raw)
	require.True(t, ok, text)
	n, err := strconv.ParseUint(port, 16, 16)
	require.NoError(t, err)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n))
}

// listeners returns the addresses that a process listens on.
func (p *process) listeners() (all []netip.AddrPort) {
	for _, s := range p.sockets() {
		if s.listening {
			all = append(all, s.local)
		}
	}
	return all
}

// goroutines ends the process, and returns the stacks of its goroutines.
func (p *process) goroutines() string {
	p.t.Helper()
	before := len(p.logged())
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGQUIT))
	<-p.read         // the process has ended
	_ = p.cmd.Wait() // it has crashed
	return p.logged()[before:]
}

func addressOf(t *testing.T, text string) netip.AddrPort {
	u, err := url.Parse(text)
	require.NoError(t, err)
	return netip.MustParseAddrPort(u.Host)
}

// A frontend has one listener, does not run jobs posted to it, and connects to no other host.
func TestRoleOfAFrontend(t *testing.T) {
	t.Parallel()
	peer, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer peer.Close()
	store := aStore(t)
	for _, test := range []struct {
		role string
		runs bool
	}{{"api_frontend", false}, {"api_frontend, replication", true}} {
		node := begin(t, "settee is running", []string{fmt.Sprint("COUCHDB_NODE_TYPE_REPLICATION=", test.runs)},
			"serve", "--store", store, "--set", "chttpd/port=0", "--set", "log/level=debug")
		require.Contains(t, node.logged(), `"roles":"`+test.role+`"`)
		require.Equal(t, []netip.AddrPort{addressOf(t, node.url)}, node.listeners())
		if !test.runs {
			status, answer := node.request(http.MethodPost, "_replicate",
				fmt.Sprintf(`{"source":"http://%[1]s/a","target":"http://%[1]s/b","continuous":true}`, peer.Addr()))
			require.Equal(t, http.StatusAccepted, status, answer)
			assert.Empty(t, strangers(t, node), "connections to others")
		} else {
			// The job that the frontend did not run reaches its source.
			conn, err := peer.Accept()
			require.NoError(t, err)
			require.NotEmpty(t, strangers(t, node))
			require.NoError(t, conn.Close())
		}
		_, text := node.request(http.MethodGet, "_node/_local/_prometheus", "")
		assert.Equal(t, test.runs, strings.Contains(text, "jobs_starts_total"))
		stacks := node.goroutines()
		require.Contains(t, stacks, "settee/fdbjobs/upkeep.Run(")
		// Only the scheduler has acceptors.
		for _, part := range []string{"settee/replicator/scheduler.", "settee/replicator/worker."} {
			assert.Equal(t, test.runs, strings.Contains(stacks, part), part)
		}
	}
}

// strangers returns a node's connections to hosts other than its clients and the store.
func strangers(t *testing.T, node *process) (all []socket) {
	t.Helper()
	for _, s := range node.sockets() {
		if !s.listening && s.local != addressOf(t, node.url) && !slices.Contains(storePorts(t), s.remote) {
			all = append(all, s)
		}
	}
	return all
}

// storePorts returns the addresses of the tests' FoundationDB, if there is one.
func storePorts(t *testing.T) (all []netip.AddrPort) {
	t.Helper()
	name := os.Getenv(kvtest.ClusterVariable)
	if name == "" {
		return nil
	}
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if _, addresses, ok := strings.Cut(lines.Text(), "@"); ok {
			for address := range strings.SplitSeq(addresses, ",") {
				all = append(all, netip.MustParseAddrPort(address))
			}
		}
	}
	return all
}

// A replication node listens on no address, or on loopback for its metrics only.
func TestRoleOfAReplicationNode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		sets []string
	}{
		{"as it is", nil},
		{"told to listen elsewhere", []string{"--set", "chttpd/bind_address=any", "--set", "chttpd/port=0"}},
		{"with metrics", []string{"--set", "prometheus/additional_port=true", "--set", "prometheus/port=0"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			node := begin(t, "settee is running", []string{"COUCHDB_NODE_TYPE_API_FRONTEND=false"},
				append([]string{"serve", "--store", aStore(t)}, test.sets...)...)
			var want []netip.AddrPort
			if test.name == "with metrics" {
				want = append(want, addressOf(t, node.metricsURL()))
				require.True(t, want[0].Addr().IsLoopback())
			}
			assert.Equal(t, want, node.listeners())
			stacks := node.goroutines()
			assert.Contains(t, stacks, "main.(*node).replicate")
			assert.NotContains(t, stacks, "settee/frontend.")
			assert.NotContains(t, stacks, "settee/fdbjobs/upkeep.")
		})
	}
}
