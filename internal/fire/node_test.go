//go:build fdb && fire

package fire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/netns"
	"settee/internal/servers"
)

// condition is what was done to a node.
type condition int

const (
	down condition = iota
	sound
	frozen
	cutOff
)

// node is a place in the cluster: a process of settee, and after its end the next one.
type node struct {
	*testing.T
	c       *cluster
	name    string
	args    []string
	environ []string
	address string // of a frontend
	space   *netns.Namespace
	logs    string // a directory with a file for each process

	started int // processes

	mu        sync.Mutex
	process   *servers.Process // the latest
	condition condition
	thawed    []thawed
}

// thawed is when a process was let go on.
type thawed struct {
	pid int
	at  time.Time
}

// in calls f where the node is.
func (n *node) in(f func()) {
	if n.space == nil {
		f()
		return
	}
	n.space.In(f)
}

// dial connects to the node.
func (n *node) dial(ctx context.Context) (conn net.Conn, err error) {
	n.in(func() { conn, err = new(net.Dialer).DialContext(ctx, "tcp", n.address) })
	return conn, err
}

// errExited says that a process has ended before it was at work.
var errExited = errors.New("a node has exited")

// start starts a process, and returns when it is at work. One that exits before, as nodes do that cannot open the store
// for some seconds, is started again, as what supervises a service does.
func (n *node) start() error {
	for deadline := time.Now().Add(limit); ; {
		if err := n.startOnce(); !errors.Is(err, errExited) || time.Now().After(deadline) {
			return err
		}
	}
}

func (n *node) startOnce() error {
	n.started++
	log := filepath.Join(n.logs, fmt.Sprintf("%s-%d.log", n.name, n.started))
	command := exec.Command(n.c.program, n.args...)
	command.Env = append(os.Environ(), n.environ...)
	var process *servers.Process
	var err error
	n.in(func() { process, err = servers.Run(command, log, "") })
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.process = process
	n.mu.Unlock()
	n.c.named.Store(process.PID(), fmt.Sprintf("%s-%d", n.name, n.started))
	if err := awaitLine(n.Context(), process, log, "settee is running"); err != nil {
		return err
	}
	n.become(sound)
	return nil
}

// awaitLine waits until a process has logged something.
func awaitLine(ctx context.Context, process *servers.Process, log, words string) error {
	for deadline := time.Now().Add(limit); ; {
		text, err := os.ReadFile(log)
		switch {
		case err != nil:
			return err
		case strings.Contains(string(text), words):
			return nil
		case process.Exited():
			return fmt.Errorf("%w: %s", errExited, text)
		case time.Now().After(deadline):
			return fmt.Errorf("a node does not start: %s", text)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// become notes what is done to the node, before it is done if it is bad.
func (n *node) become(condition condition) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.condition = condition
}

// now returns the latest process of the node, nil before the first, and whether it is sound.
func (n *node) now() (process *servers.Process, isSound bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process, n.condition == sound
}

// kill ends the process with SIGKILL.
func (n *node) kill() {
	n.become(down)
	process, _ := n.now()
	process.Kill()
}

// terminate asks the process to end, and waits until it has.
func (n *node) terminate() error {
	n.become(down)
	process, _ := n.now()
	if err := process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	for deadline := time.Now().Add(limit); !process.Exited(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not end", n.name)
		}
	}
	process.Kill() // whom it has left behind
	return nil
}

func (n *node) freeze() error {
	n.become(frozen)
	process, _ := n.now()
	return process.Signal(syscall.SIGSTOP)
}

func (n *node) thaw() error {
	process, _ := n.now()
	n.mu.Lock()
	n.thawed = append(n.thawed, thawed{process.PID(), time.Now()})
	n.mu.Unlock()
	err := process.Signal(syscall.SIGCONT)
	n.become(sound)
	return err
}

// cut cuts the node off from the store, by rules that mend takes away; without namespaces it freezes it.
func (n *node) cut() error {
	if n.space == nil {
		return n.freeze()
	}
	n.become(cutOff)
	n.space.Run(cutRules(n.c.fdb.Addresses()), "nft", "--file", "-")
	return nil
}

func (n *node) mend() error {
	if n.space == nil {
		return n.thaw()
	}
	n.space.Run("delete table inet cut\n", "nft", "--file", "-")
	n.become(sound)
	return nil
}

// cutRules drop what goes to addresses of this host, and what comes back.
func cutRules(addresses []string) string {
	var ports []string
	for _, address := range addresses {
		_, port, _ := strings.Cut(address, ":")
		ports = append(ports, port)
	}
	set := "{ " + strings.Join(ports, ", ") + " }"
	return "table inet cut {\n chain out {\n  type filter hook output priority 0;\n" +
		"  tcp dport " + set + " drop\n  tcp sport " + set + " drop\n }\n}\n"
}

// sinceThaw is how long before a process was let go on, if that was less than momentum.
func (c *cluster) sinceThaw(pid int, at time.Time) (since time.Duration, ok bool) {
	for _, n := range c.nodes {
		for _, t := range n.thawed {
			if since := at.Sub(t.at); t.pid == pid && since >= 0 && since < momentum {
				return since, true
			}
		}
	}
	return 0, false
}

// nameOf returns the name of a process, which its log has too.
func (c *cluster) nameOf(pid int) string {
	if name, ok := c.named.Load(pid); ok {
		return name.(string)
	}
	return "nobody"
}

// newNode makes a node with relays to all that it may reach, and starts it.
func (c *cluster) newNode(name, role string, sets ...string) *node {
	n := &node{T: c.T, c: c, name: name, logs: c.logs}
	if c.spaces {
		space, err := netns.New(c.T, name)
		require.NoError(c, err)
		n.space = space
		for _, address := range c.fdb.Addresses() {
			space.Relay(address, func(ctx context.Context) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", address)
			})
		}
	}
	store := url.URL{Scheme: "fdb", Path: c.fdb.ClusterFile, RawQuery: url.Values{"prefix": {prefix}}.Encode()}
	n.args = []string{"serve", "--store", store.String(), "--set", "log/level=debug", "--set", "chttpd_auth/iterations=10"}
	for _, set := range sets {
		n.args = append(n.args, "--set", set)
	}
	n.environ = []string{"COUCHDB_USER=" + adminName, "COUCHDB_PASSWORD=" + c.password,
		"COUCHDB_NODE_TYPE_API_FRONTEND=false", "COUCHDB_NODE_TYPE_REPLICATION=false", "COUCHDB_NODE_TYPE_" + role + "=true"}
	c.Cleanup(func() {
		if n.process != nil {
			n.process.Kill()
		}
	})
	return n
}
