package outbound

import "syscall"

// setLowWater sets how many bytes a socket needs to be readable. The end of the connection, and an error, always make it
// readable. It reports whether that worked.
func setLowWater(fd uintptr, n int) bool {
	return syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, n) == nil
}
