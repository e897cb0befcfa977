package budget

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// receivedListener listens for connections that know when their requests came.
type receivedListener struct{ net.Listener }

// Accept implements net.Listener.
func (l receivedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	raw, err := conn.(syscall.Conn).SyscallConn() //nolint:forcetypeassert // a TCP connection
	if err == nil {
		var refused error
		err = raw.Control(func(fd uintptr) { refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
		err = errors.Join(err, refused)
	}
	if err != nil {
		_ = conn.Close() // nothing was read from it
		return nil, err
	}
	return &receivedConn{Conn: conn, raw: raw}, nil
}

// receivedConn is a connection that knows when the kernel received what was read last. This process shares the processors with
// the nodes, so it may read it later.
type receivedConn struct {
	net.Conn
	raw  syscall.RawConn
	last atomic.Int64 // nanoseconds since the Unix epoch
}

// Read implements net.Conn.
func (c *receivedConn) Read(p []byte) (n int, err error) {
	var at unix.Timespec
	oob := make([]byte, unix.CmsgSpace(binary.Size(at)))
	var oobn int
	waited := c.raw.Read(func(fd uintptr) bool {
		n, oobn, _, _, err = unix.Recvmsg(int(fd), p, oob, unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case waited != nil:
		return 0, waited
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS {
			_, err = binary.Decode(m.Data, binary.NativeEndian, &at)
			c.last.Store(at.Nano())
		}
	}
	return n, err
}

type connKey struct{}

// withConn is the ConnContext of an http.Server.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// receivedAt returns when a request came, by its context. There must not be a next one on its connection yet.
func receivedAt(ctx context.Context) time.Time {
	return time.Unix(0, ctx.Value(connKey{}).(*receivedConn).last.Load()) //nolint:forcetypeassert // see withConn
}
