package outbound

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// aheadSize is how many bytes a connection reads at a time. net/http asks for readBuffer, because each connection has a buffer of
// that size for as long as it is open.
const aheadSize = 128 << 10

// aheadBuffers holds buffers of aheadSize bytes. A connection has one only while it has bytes that the reader has not asked
// for yet: connections that wait have none.
var aheadBuffers = sync.Pool{New: func() any { return new([aheadSize]byte) }}

// aheadConn is a connection that reads ahead what has come, and lets a large answer gather before it reads (see [Flow]). Its
// Read must not be called concurrently, which neither net/http nor crypto/tls does.
type aheadConn struct {
	net.Conn
	raw  syscall.RawConn
	flow atomic.Pointer[Flow] // of the latest request that has one

	buffer    *[aheadSize]byte // nil without unread bytes
	unread    []byte           // of buffer
	err       error            // of the last system call
	fill      func(fd uintptr) (done bool)
	patient   bool // fill waits for enough bytes
	gathering bool // the socket is readable only when it has enough bytes
}

// readAhead returns a connection that reads ahead, or nil if the system cannot.
func readAhead(conn net.Conn) *aheadConn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok || !canReadAhead {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	c := &aheadConn{Conn: conn, raw: raw}
	c.fill = c.tryFill
	return c
}

// Read implements io.Reader.
func (c *aheadConn) Read(p []byte) (int, error) {
	if c.buffer == nil && len(p) > 0 {
		if err := c.receive(); err != nil {
			return 0, err
		}
	}
	if c.buffer == nil {
		return c.Conn.Read(p)
	}
	n := copy(p, c.unread)
	if c.unread = c.unread[n:]; len(c.unread) == 0 {
		c.free()
	}
	return n, nil
}

// receive waits for bytes and reads them into a buffer. If it returns nil without a buffer, a plain read meets the end or
// the error.
func (c *aheadConn) receive() error {
	c.err = nil
	// RawConn.Read waits and calls fill again while that returns false.
	if c.patient = c.flow.Load().large(); c.patient {
		_ = c.SetReadDeadline(time.Now().Add(gatherTime))
		_ = c.raw.Read(c.fill)
		_ = c.SetReadDeadline(time.Time{})
		c.patient = false
	}
	if c.buffer == nil && c.err == nil {
		_ = c.raw.Read(c.fill)
	}
	return c.err
}

func (c *aheadConn) free() {
	aheadBuffers.Put(c.buffer)
	c.buffer, c.unread = nil, nil
}
