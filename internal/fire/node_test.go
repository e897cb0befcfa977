//go:build fdb && fire

package fire

import (
	"context"
	"errors"
	"fmt"
	"net"
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

// node is a slot in the cluster for one process of settee at a time.
type node struct {
	*testing.T
	c       *cluster
	name    string
	program string // the path of its settee; it may change between two processes
	args    []string
	environ []string
	address string           // for a frontend
	space   *netns.Namespace // its own, or the test's
	logs    string           // a directory with a file for each process

	started int // number of processes started

	mu             sync.Mutex
	process        *servers.Process // the latest
	healthy        bool             // the process is running, and neither frozen nor cut off
	unhealthySince time.Time        // when it last became unhealthy
	thawed         []thawed
}

// thawed is when a process was thawed.
type thawed struct {
	pid int
	at  time.Time
}

// errExited is the error for a process that exits before it is ready.
var errExited = errors.New("a node has exited")

// start starts a process, and returns when it is ready. It restarts a process that exits before
// that, as a supervisor does; nodes exit if they cannot open the store for some seconds.
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
	command := exec.Command(n.program, n.args...)
	command.Env = append(os.Environ(), n.environ...)
	var process *servers.Process
	var err error
	n.space.In(func() { process, err = servers.Run(command, log, "") })
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
	n.setHealthy(true)
	return nil
}

// awaitLine waits until a process has logged some words.
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

// setHealthy records whether the process is healthy. It is called before any fault and after its
// end.
func (n *node) setHealthy(healthy bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.healthy && !healthy {
		n.unhealthySince = time.Now()
	}
	n.healthy = healthy
}

// lastFault returns when the latest process of the node became unhealthy.
func (n *node) lastFault() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unhealthySince
}

// now returns the latest process of the node, nil before the first, and whether it is healthy.
func (n *node) now() (process *servers.Process, healthy bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process, n.healthy
}

// kill ends the process with SIGKILL.
func (n *node) kill() {
	n.setHealthy(false)
	process, _ := n.now()
	process.Kill()
}

// terminate sends SIGTERM to the process, and waits until it has ended.
func (n *node) terminate() error {
	if err := n.tellToStop(); err != nil {
		return err
	}
	return n.awaitStop()
}

func (n *node) tellToStop() error {
	n.setHealthy(false)
	process, _ := n.now()
	return process.Signal(syscall.SIGTERM)
}

// awaitStop waits until the process has ended.
func (n *node) awaitStop() error {
	process, _ := n.now()
	for deadline := time.Now().Add(limit); !process.Exited(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not end", n.name)
		}
	}
	process.Kill() // ends its children
	return nil
}

func (n *node) freeze() error {
	n.setHealthy(false)
	process, _ := n.now()
	return process.Signal(syscall.SIGSTOP)
}

func (n *node) thaw() error {
	err := n.wake()
	n.setHealthy(true)
	return err
}

// wake lets a frozen process continue, and notes when.
func (n *node) wake() error {
	process, _ := n.now()
	n.mu.Lock()
	n.thawed = append(n.thawed, thawed{process.PID(), time.Now()})
	n.mu.Unlock()
	return process.Signal(syscall.SIGCONT)
}

// cut cuts the node off from the store by firewall rules, which mend removes. Without namespaces
// it freezes the node.
func (n *node) cut() error {
	if n.space.IsHost() {
		return n.freeze()
	}
	n.setHealthy(false)
	n.space.Run(cutRules(n.c.fdb.Addresses()), "nft", "--file", "-")
	return nil
}

func (n *node) mend() error {
	if n.space.IsHost() {
		return n.thaw()
	}
	n.space.Run("delete table inet cut\n", "nft", "--file", "-")
	n.setHealthy(true)
	return nil
}

// cutRules returns rules that drop packets to and from addresses of this host.
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

// sinceThaw returns the time since a process was thawed, if that was less than momentum.
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

// nameOf returns the name of a process, which is also that of its log.
func (c *cluster) nameOf(pid int) string {
	if name, ok := c.named.Load(pid); ok {
		return name.(string)
	}
	return "no node"
}

// newNode makes a node with relays to everything that it may reach, and starts it.
func (c *cluster) newNode(name, role string, sets ...string) *node {
	n := &node{T: c.T, c: c, name: name, program: c.program, logs: c.logs, space: c.host}
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
	n.args = []string{"serve", "--store", c.storeURL(), "--set", "log/level=debug", "--set", "chttpd_auth/iterations=10"}
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
