//go:build unix

package outbound

import (
	"net"
	"os"
	"syscall"
)

const canReadAhead = true

// tryFill reads what has come into a buffer. It returns false if nothing has.
func (c *aheadConn) tryFill(fd uintptr) bool {
	if c.patient && !c.gathering {
		c.gathering = setLowWater(fd, gatherSize)
	}
	for {
		c.buffer = aheadBuffers.Get().(*[aheadSize]byte)
		n, err := syscall.Read(int(fd), c.buffer[:])
		if n > 0 {
			c.unread = c.buffer[:n]
			return true
		}
		c.free()
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN && c.gathering && !c.patient:
			c.gathering = false
			setLowWater(fd, 1)
		case err == syscall.EAGAIN:
			return false
		case err == nil:
			return true // a plain read meets the end again
		default:
			// What a net.TCPConn says.
			c.err = &net.OpError{
				Op: "read", Net: c.RemoteAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(),
				Err: os.NewSyscallError("read", err),
			}
			return true
		}
	}
}
