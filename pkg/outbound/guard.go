package outbound

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"settee/pkg/ipv4in6"
)

// ErrDenied says that the address is in one of the networks of PoolConfig.Denied. It goes with a [*ConnectError].
var ErrDenied = errors.New("denied by [replicator] denied_networks")

// checkAddress returns ErrDenied, with the address and the network, if connections to addr are denied.
func checkAddress(denied []netip.Prefix, addr netip.Addr) error {
	for _, reached := range reaches(addr) {
		for _, network := range denied {
			if network.Contains(reached) {
				return fmt.Errorf("%s is in %s: %w", addr, network, ErrDenied)
			}
		}
	}
	return nil
}

// reaches returns the addresses where a connection to addr may end. An IPv6 address can carry an IPv4 address that a
// translator or a tunnel on the way connects to. The unspecified address is this machine.
func reaches(addr netip.Addr) []netip.Addr {
	addr = addr.Unmap().WithZone("") // no prefix contains an address with a zone
	all := append([]netip.Addr{addr}, ipv4in6.Carried(addr)...)
	if addr.IsUnspecified() {
		all = append(all, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	}
	return all
}

// checkHost returns ErrDenied, with the reason, if a proxy that is told to connect to host may reach a denied network.
// host is the host of a URL. A name is the proxy's to resolve. Programs disagree about numbers that are no address,
// such as 7147006462, of which some keep the lowest 32 bits: they are refused if any network is denied.
func checkHost(denied []netip.Prefix, host string) error {
	if len(denied) == 0 {
		return nil
	}
	if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		host = ascii // what net/http sends: it has full-width digits and dots in their usual form
	}
	host = strings.TrimRight(host, ".")
	if addr, ok := literalAddress(host); ok {
		return checkAddress(denied, addr)
	}
	if host == "" || onlyNumbers(host) {
		return fmt.Errorf("the host %.100q looks like an address and is none: %w", host, ErrDenied)
	}
	return nil
}

// onlyNumbers reports whether a host consists of dots and of numbers of any size, or of what resembles numbers.
func onlyNumbers(host string) bool {
	for part := range strings.SplitSeq(strings.ToLower(host), ".") {
		digits, set := part, "0123456789"
		if hex, found := strings.CutPrefix(part, "0x"); found {
			digits, set = hex, "0123456789abcdef"
		}
		if strings.Trim(digits, set) != "" {
			return false
		}
	}
	return true
}

// literalAddress parses a host without dots at its end. It returns false for a name. A proxy may read addresses as the
// C library does: 127.1, 0x7f000001 and 2130706433 are 127.0.0.1.
func literalAddress(host string) (netip.Addr, bool) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr, true
	}
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var all uint64
	for i, part := range parts {
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (5 - len(parts)) // the last one fills what is left
		}
		n, ok := cNumber(part, bits)
		if !ok {
			return netip.Addr{}, false
		}
		all = all<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(all >> 24), byte(all >> 16), byte(all >> 8), byte(all)}), true
}

// cNumber reads a number as C writes it: decimal, octal with a 0 in front, or hexadecimal with 0x.
func cNumber(text string, bits int) (uint64, bool) {
	base := 10
	switch {
	case strings.HasPrefix(text, "0x"), strings.HasPrefix(text, "0X"):
		base, text = 16, text[2:]
	case len(text) > 1 && text[0] == '0':
		base = 8
	}
	n, err := strconv.ParseUint(text, base, bits)
	return n, err == nil
}
