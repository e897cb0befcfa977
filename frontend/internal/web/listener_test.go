package web

import (
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"settee/pkg/config"
)

type defaults struct{}

func (defaults) Current() *config.Config { return new(config.Config) }

// fullListener accepts a connection when the test has closed enough of the earlier ones.
type fullListener struct {
	net.Listener
	open *int
}

func (l fullListener) Accept() (net.Conn, error) {
	if *l.open > 2 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	*l.open++
	return &countedConn{open: l.open}, nil
}

type countedConn struct {
	net.Conn
	open *int
}

func (c *countedConn) Close() error {
	*c.open--
	return nil
}

func (c *countedConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// TestFullProcess: when the process has too many open files, an idle connection makes room for a new one. Without one the
// server gets the error.
func TestFullProcess(t *testing.T) {
	t.Parallel()
	c := NewConnections(defaults{}, DefaultMemory, 0, zerolog.Nop())
	open := 0
	listener := c.Listener(fullListener{open: &open})
	for range 10 {
		conn, err := listener.Accept()
		require.NoError(t, err)
		c.accept(t.Context(), conn)
		require.LessOrEqual(t, open, 3)
	}
	require.Equal(t, 3, c.Usage().Open)
	for conn := range c.open {
		conn.(*countedConn).open = new(int) // closing it frees nothing
		c.forget(c.open[conn])
	}
	_, err := listener.Accept()
	require.ErrorIs(t, err, syscall.EMFILE)
}

// TestFilesBoundConnections: the open files that are left for clients bound their connections.
func TestFilesBoundConnections(t *testing.T) {
	t.Parallel()
	for files, want := range map[int]int{0: 4096, 20: 20, 1 << 20: 4096} {
		require.Equal(t, want, NewConnections(defaults{}, DefaultMemory, files, zerolog.Nop()).maxConnections())
	}
}
