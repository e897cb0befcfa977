package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/config"
	"settee/pkg/kv"
)

// manager is a service manager's socket.
type manager struct {
	*testing.T
	path string
	conn *net.UnixConn
}

func newManager(t *testing.T) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "settee") //nolint:usetesting // t.TempDir has the name of the test, and the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &manager{T: t, path: filepath.Join(dir, "notify")}
	m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.conn.Close() })
	return m
}

// next returns the next message.
func (m *manager) next() string {
	m.Helper()
	require.NoError(m, m.conn.SetReadDeadline(time.Now().Add(limit)))
	buffer := make([]byte, 1024)
	n, err := m.conn.Read(buffer)
	require.NoError(m, err)
	return string(buffer[:n])
}

// drain returns the messages that are already there.
func (m *manager) drain() (all []string) {
	m.Helper()
	raw, err := m.conn.SyscallConn()
	require.NoError(m, err)
	require.NoError(m, raw.Read(func(fd uintptr) bool {
		buffer := make([]byte, 1024)
		for {
			n, _, err := syscall.Recvfrom(int(fd), buffer, syscall.MSG_DONTWAIT)
			if err != nil {
				return true
			}
			all = append(all, string(buffer[:n]))
		}
	}))
	return all
}

// A service manager learns that a node runs, that it works, and how long it may take to stop.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	for name, roles := range map[string]string{
		"both roles": "node_types/replication=true", "a frontend": "node_types/replication=false", "a replication node": "node_types/api_frontend=false",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newManager(t)
			node := begin(t, "settee is running", []string{"NOTIFY_SOCKET=" + m.path, "WATCHDOG_USEC=100000"},
				"serve", "--store", "mem:", "--set", "chttpd/port=0", "--set", roles, "--set", "settee/grace_period_sec=70")
			require.Equal(t, "READY=1", m.next())
			for range 3 {
				require.Equal(t, "WATCHDOG=1", m.next())
			}
			require.NoError(t, node.cmd.Process.Signal(syscall.SIGTERM))
			said := m.next()
			for said == "WATCHDOG=1" {
				said = m.next()
			}
			assert.Equal(t, "STOPPING=1\nEXTEND_TIMEOUT_USEC=80000000", said)
			<-node.read
			require.NoError(t, node.cmd.Wait())
		})
	}
}

// freezable is a store that can be frozen.
type freezable struct {
	kv.Database
	frozen chan chan struct{} // holds nothing, or the channel that is closed when the store thaws
	waits  chan struct{}      // receives a value for each check of the watchdog that finds the store frozen
}

func (f *freezable) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	select {
	case thawed := <-f.frozen:
		f.frozen <- thawed
		if _, is := ctx.Deadline(); is {
			f.waits <- struct{}{}
		}
		select {
		case <-thawed:
		case <-ctx.Done():
			return ctx.Err()
		}
	default:
	}
	return f.Database.Transact(ctx, fn)
}

// A node whose store is frozen sends no beats, and sends them again when the store answers.
func TestWatchdogOfAFrozenStore(t *testing.T) {
	m := newManager(t)
	t.Setenv("NOTIFY_SOCKET", m.path)
	cfg, _, err := config.Load(config.Options{Store: "mem:"})
	require.NoError(t, err)
	n := &node{cfg: cfg, log: zerolog.Nop()}
	require.NoError(t, n.openStore(t.Context()))
	defer func() { assert.NoError(t, n.db.Close()) }()
	store := &freezable{Database: n.db, frozen: make(chan chan struct{}, 1), waits: make(chan struct{}, 100)}
	n.db = store
	require.NoError(t, n.openKeys(t.Context()))
	require.NoError(t, n.openConfiguration(t.Context()))
	require.NoError(t, n.openJobs(t.Context()))
	defer n.layer.Close()

	ctx, end := context.WithCancel(t.Context())
	var beating sync.WaitGroup
	beating.Go(func() { n.beatWithin(ctx, 20*time.Millisecond) })
	require.Equal(t, "WATCHDOG=1", m.next())

	thawed := make(chan struct{})
	store.frozen <- thawed
	<-store.waits
	m.drain()
	for range 5 { // checks that time out, one after the other
		<-store.waits
	}
	assert.Empty(t, m.drain(), "the store was frozen")

	<-store.frozen
	close(thawed)
	require.Equal(t, "WATCHDOG=1", m.next())
	end()
	beating.Wait()
}
