package networks

import "net/netip"

// Of returns the network of an address, with or without a port: an IPv4 address itself, and the
// /64 of an IPv6 address, because one client has all of that. It returns any other text as it is.
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
