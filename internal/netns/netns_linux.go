package netns

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

// Namespace is a network namespace. It ends with the test, and so do the processes in it.
type Namespace struct {
	*testing.T
	Name string
	file *os.File // keeps the namespace open; nil means the test's own
}

// Host returns the test's own namespace.
func Host(t *testing.T) *Namespace { return &Namespace{T: t, Name: "host"} }

// IsHost reports whether this is the test's own namespace.
func (n *Namespace) IsHost() bool { return n.file == nil }

// New makes a namespace with a loopback interface. The error says what the machine or the user
// lacks.
func New(t *testing.T, name string) (*Namespace, error) {
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("there is no %s (on Debian: apt-get install iproute2 nftables)", tool)
		}
	}
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
	n := &Namespace{t, name, file}
	n.Run("", "ip", "link", "set", "lo", "up")
	return n, nil
}

// onThread calls f on a new thread and ends the thread.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		f()
	}()
	<-done
}

// In calls f in the namespace. The sockets that f opens and the processes that it starts stay
// there.
func (n *Namespace) In(f func()) {
	n.Helper()
	if n.IsHost() {
		f()
		return
	}
	var err error
	onThread(func() {
		if err = unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err == nil {
			f()
		}
	})
	require.NoError(n, err)
}

// Path returns the path of the namespace for the command ip.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// Run runs a command in the namespace.
func (n *Namespace) Run(input string, name string, args ...string) string {
	n.Helper()
	cmd := exec.CommandContext(n.Context(), name, args...)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(n, n.Start(cmd))
	require.NoError(n, cmd.Wait(), "%s in %s: %s", cmd, n.Name, &out)
	return out.String()
}

// Start starts a command in the namespace.
func (n *Namespace) Start(cmd *exec.Cmd) (err error) {
	n.In(func() { err = cmd.Start() })
	return err
}

// Dial connects from the namespace to an IP address.
func (n *Namespace) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	n.In(func() { conn, err = new(net.Dialer).DialContext(ctx, network, address) })
	return conn, err
}

// Listen accepts TCP connections in the namespace at an address and calls serve for each, which
// must close it.
func (n *Namespace) Listen(address string, serve func(net.Conn)) {
	n.Helper()
	var listener net.Listener
	var err error
	n.In(func() { listener, err = new(net.ListenConfig).Listen(n.Context(), "tcp", address) })
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

// Relay forwards the connections to an address of the namespace.
func (n *Namespace) Relay(address string, dial func(context.Context) (net.Conn, error)) {
	n.Helper()
	n.Listen(address, func(from net.Conn) {
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
