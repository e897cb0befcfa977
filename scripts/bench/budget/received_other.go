//go:build !linux

package budget

import (
	"net"
	"time"
)

// reader returns a function that reads from a connection, and returns when it was read.
func reader(conn net.Conn) (func([]byte) (int, time.Time, error), error) {
	return func(p []byte) (int, time.Time, error) {
		n, err := conn.Read(p)
		return n, time.Now(), err
	}, nil
}
