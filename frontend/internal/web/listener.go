package web

import (
	"errors"
	"net"
	"syscall"
)

// Listener returns a listener for a server of these connections. When the process or the machine has too many open files, a
// client could not connect, even to a node whose connections are all idle. So a connection makes room then, too.
func (c *Connections) Listener(inner net.Listener) net.Listener { return &listener{inner, c} }

type listener struct {
	net.Listener
	connections *Connections
}

// Accept implements net.Listener. If no connection can make room, it returns the error, after which net/http waits a little.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) || !l.connections.freeFile() {
			return conn, err
		}
	}
}

// freeFile closes a connection that has waited longest, and reports whether there was one whose file is free now.
func (c *Connections) freeFile() bool {
	var room room
	c.mu.Lock()
	c.makeRoom(&room) // a request that is told to end frees its file later
	c.mu.Unlock()
	room.make()
	return len(room.close) > 0
}
