package networks

import "net/netip"

// Of returns what stands for the network of an address, with or without a port: the address
// itself, and of IPv6 the /64 that it is in, because one client has all of that. What is no
// address is returned as it is.
func Of(address string) string {
	if port, err := netip.ParseAddrPort(address); err == nil {
		address = port.Addr().String()
	}
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if prefix, err := addr.Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return addr.String()
}
