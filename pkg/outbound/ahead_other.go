//go:build !unix

package outbound

const canReadAhead = false

func (c *aheadConn) tryFill(uintptr) bool { return true }
