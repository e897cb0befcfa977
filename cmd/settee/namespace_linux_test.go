package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// namespace is a network namespace: a host of its own, as far as the network goes. It is
// gone with the test, and what was started in it.
type namespace struct {
	*testing.T
	name string
	file *os.File // keeps it
}

// newNamespace makes a namespace whose loopback works. The error is the system's.
func newNamespace(t *testing.T, name string) (*namespace, error) {
	var file *os.File
	var err error
	onThread(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			file, err = os.Open("/proc/thread-self/ns/net")
		}
	})
	if err != nil {
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	t.Cleanup(func() { _ = file.Close() })
	n := &namespace{t, name, file}
	n.run("", "ip", "link", "set", "lo", "up")
	return n, nil
}

// onThread calls f on a thread that is used for nothing else, and ends with it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good
		f()
	}()
	<-done
}

// in calls f in the namespace. The sockets that f makes, and the processes that it starts,
// stay there.
func (n *namespace) in(f func()) {
	n.Helper()
	var err error
	onThread(func() {
		if err = unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err == nil {
			f()
		}
	})
	require.NoError(n, err)
}

// path is the namespace for ip.
func (n *namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// run runs a command in the namespace.
func (n *namespace) run(input string, name string, args ...string) string {
	n.Helper()
	cmd := exec.CommandContext(n.Context(), name, args...)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(n, n.start(cmd))
	require.NoError(n, cmd.Wait(), "%s in %s: %s", cmd, n.name, &out)
	return out.String()
}

// start starts a command in the namespace.
func (n *namespace) start(cmd *exec.Cmd) (err error) {
	n.in(func() { err = cmd.Start() })
	return err
}

// dial connects from the namespace to an address, not to a name.
func (n *namespace) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	n.in(func() { conn, err = new(net.Dialer).DialContext(ctx, network, address) })
	return conn, err
}

// listen accepts connections in the namespace, on all addresses or on one, and gives each
// to serve, which closes it.
func (n *namespace) listen(address string, serve func(net.Conn)) {
	n.Helper()
	var listener net.Listener
	var err error
	n.in(func() { listener, err = new(net.ListenConfig).Listen(n.Context(), "tcp", address) })
	require.NoError(n, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(conn) })
		}
	})
	n.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
}

// relay passes the connections that come to an address of the namespace on.
func (n *namespace) relay(address string, dial func(context.Context) (net.Conn, error)) {
	n.Helper()
	n.listen(address, func(from net.Conn) {
		defer from.Close()
		to, err := dial(n.Context())
		if err != nil {
			return
		}
		defer to.Close()
		var copying sync.WaitGroup
		for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
			copying.Go(func() {
				_, _ = io.Copy(pair[1], pair[0])
				// Both ends hang up when one does: these are HTTP's connections.
				_ = from.Close()
				_ = to.Close()
			})
		}
		// The test's context ends before it cleans up.
		hangUp := context.AfterFunc(n.Context(), func() {
			_ = from.Close()
			_ = to.Close()
		})
		defer hangUp()
		copying.Wait()
	})
}

// network is four hosts on a switch, each of which reaches all the others. The switch is
// the store's. Each has an IPv4 and an IPv6 address, and one that is link-local.
type network struct {
	store, outside, frontend, replication *namespace
}

// addresses of the hosts of a network.
var (
	storeHost       = host{"10.84.0.1", "fd84::1", "169.254.84.1"}
	outsideHost     = host{"10.84.0.2", "fd84::2", "169.254.84.2"}
	frontendHost    = host{"10.84.0.3", "fd84::3", "169.254.84.3"}
	replicationHost = host{"10.84.0.4", "fd84::4", "169.254.84.4"}
)

type host struct{ four, six, local string }

// newNetwork makes a network, or says what it lacks for that.
func newNetwork(t *testing.T) (n *network, lacks string) {
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, "there is no " + tool + " (on Debian: apt-get install iproute2 nftables)"
		}
	}
	n = new(network)
	for _, of := range []struct {
		to   **namespace
		name string
		host host
	}{
		{&n.store, "store", storeHost}, {&n.outside, "outside", outsideHost},
		{&n.frontend, "frontend", frontendHost}, {&n.replication, "replication", replicationHost},
	} {
		space, err := newNamespace(t, of.name)
		if err != nil {
			return nil, err.Error()
		}
		*of.to = space
		if of.name == "store" {
			space.run("", "ip", "link", "add", "eth0", "type", "bridge")
		} else {
			space.run("", "ip", "link", "add", "eth0", "type", "veth", "peer", "name", of.name, "netns", n.store.path())
			n.store.run("", "ip", "link", "set", of.name, "master", "eth0", "up")
		}
		space.run("", "ip", "link", "set", "eth0", "up")
		space.run("", "ip", "address", "add", of.host.four+"/24", "dev", "eth0")
		space.run("", "ip", "address", "add", of.host.local+"/16", "dev", "eth0")
		space.run("", "ip", "address", "add", of.host.six+"/64", "dev", "eth0", "nodad")
	}
	return n, ""
}
