//go:build unix && !linux

package outbound

// setLowWater does nothing. Systems differ in what the option SO_RCVLOWAT means for polling.
func setLowWater(uintptr, int) bool { return false }
