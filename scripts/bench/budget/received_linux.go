package budget

import (
	"encoding/binary"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reader returns a function that reads from a connection, and returns when the kernel received what was read. This process shares
// the processors with the nodes, so it may read it later.
func reader(conn net.Conn) (func([]byte) (int, time.Time, error), error) {
	raw, err := conn.(syscall.Conn).SyscallConn() //nolint:forcetypeassert // a TCP connection
	if err != nil {
		return nil, err
	}
	controlled := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	if controlled != nil {
		return nil, controlled
	}
	var at unix.Timespec
	oob := make([]byte, unix.CmsgSpace(binary.Size(at)))
	return func(p []byte) (int, time.Time, error) {
		var n, oobn int
		var failed error
		waited := raw.Read(func(fd uintptr) bool {
			for {
				n, oobn, _, _, failed = unix.Recvmsg(int(fd), p, oob, unix.MSG_DONTWAIT)
				if failed != unix.EINTR {
					return failed != unix.EAGAIN
				}
			}
		})
		switch {
		case waited != nil:
			return 0, time.Time{}, waited
		case failed != nil:
			return 0, time.Time{}, failed
		case n == 0:
			return 0, time.Time{}, io.EOF
		}
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return n, time.Time{}, err
		}
		for _, m := range messages {
			if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS {
				if _, err := binary.Decode(m.Data, binary.NativeEndian, &at); err != nil {
					return n, time.Time{}, err
				}
			}
		}
		return n, time.Unix(at.Unix()), nil
	}, err
}
