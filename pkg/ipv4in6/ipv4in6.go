// Package ipv4in6 finds the IPv4 addresses that IPv6 addresses carry. A translator, a relay or a
// tunnel sends packets for such an IPv6 address to the IPv4 address, so a rule that denies an
// IPv4 network must deny these too.
//
//	::ffff:0:0/96    mapped: the socket itself speaks IPv4 (RFC 4291, 2.5.5.2)
//	::/96            compatible (RFC 4291, 2.5.5.1)
//	::ffff:0:0:0/96  translated (RFC 2765, 2.1)
//	64:ff9b::/96     a translator's (RFC 6052)
//	64:ff9b:1::/48   a local translator's, with any division of the prefix (RFC 8215): all four
//	                 positions in RFC 6052, 2.2 for prefixes of 48, 56, 64 and 96 bits
//	2002::/16        6to4 (RFC 3056)
//	2001::/32        Teredo: of the server, and of the client, inverted (RFC 4380, 4)
//	*:0:5efe:*       ISATAP, below any prefix (RFC 5214, 6.1)
//
// A prefix that a site has chosen for a translator (RFC 6052) or a relay (RFC 5969) cannot be
// recognised.
package ipv4in6

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// form is one way to carry an IPv4 address.
type form struct {
	fixed    netip.Addr // the bits of the form's addresses where mask has ones
	mask     netip.Addr
	octets   [4]int // the indexes of the IPv4 address's octets
	inverted bool   // all bits of the IPv4 address
	// nonzero requires that the first octet is not 0. No host has such an address (RFC 1122,
	// 3.2.1.3), but the form shares its prefix with addresses of other forms, and with others
	// such as ::1, that have zeros there.
	nonzero bool
}

var forms = []form{
	in("::ffff:0:0/96", 12, 13, 14, 15),
	in("::/96", 12, 13, 14, 15).withNonzero(),
	in("::ffff:0:0:0/96", 12, 13, 14, 15),
	in("64:ff9b::/96", 12, 13, 14, 15),
	// Octet 8 should be 0 (RFC 6052, 2.2), but a translator may ignore it.
	in("64:ff9b:1::/48", 6, 7, 9, 10).withNonzero(),
	in("64:ff9b:1::/48", 7, 9, 10, 11).withNonzero(),
	in("64:ff9b:1::/48", 9, 10, 11, 12).withNonzero(),
	in("64:ff9b:1::/48", 12, 13, 14, 15),
	in("2002::/16", 2, 3, 4, 5),
	in("2001::/32", 4, 5, 6, 7),
	{fixed: netip.MustParseAddr("2001::"), mask: ones(32), octets: [4]int{12, 13, 14, 15}, inverted: true},
	// The bit that differs says whether the IPv4 address is globally unique.
	{fixed: netip.MustParseAddr("::5efe:0:0"), mask: netip.MustParseAddr("::fdff:ffff:0:0"), octets: [4]int{12, 13, 14, 15}, nonzero: true},
}

func in(prefix string, octets ...int) form {
	p := netip.MustParsePrefix(prefix)
	return form{fixed: p.Addr(), mask: ones(p.Bits()), octets: [4]int(octets)}
}

func (f form) withNonzero() form {
	f.nonzero = true
	return f
}

// ones returns the mask of a prefix length.
func ones(n int) netip.Addr {
	var b [16]byte
	for i := range n {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom16(b)
}

// Carried returns the IPv4 addresses that an IPv6 address carries, one for each form that
// matches, and none for an IPv4 address.
func Carried(addr netip.Addr) []netip.Addr {
	if !addr.Is6() {
		return nil
	}
	b := addr.As16()
	var all []netip.Addr
	for _, f := range forms {
		four, is := f.read(b)
		if is {
			all = append(all, four)
		}
	}
	return all
}

func (f form) read(b [16]byte) (netip.Addr, bool) {
	fixed, mask := f.fixed.As16(), f.mask.As16()
	for i := range b {
		if b[i]&mask[i] != fixed[i] {
			return netip.Addr{}, false
		}
	}
	var four [4]byte
	for i, at := range f.octets {
		if four[i] = b[at]; f.inverted {
			four[i] = ^four[i]
		}
	}
	return netip.AddrFrom4(four), !f.nonzero || four[0] != 0
}

// Pattern is the set of IPv6 addresses that equal Value where Mask has ones.
type Pattern struct{ Mask, Value netip.Addr }

// Prefix returns the pattern as a prefix, and whether it is one.
func (p Pattern) Prefix() (netip.Prefix, bool) {
	mask := p.Mask.As16()
	high, low := binary.BigEndian.Uint64(mask[:8]), binary.BigEndian.Uint64(mask[8:])
	n := bits.LeadingZeros64(^high)
	if n == 64 {
		n += bits.LeadingZeros64(^low)
	}
	return netip.PrefixFrom(p.Value, n), p.Mask == ones(n)
}

// Patterns returns patterns of all IPv6 addresses that carry an address of an IPv4 network, as
// [Carried] returns them, and none for an IPv6 network.
func Patterns(network netip.Prefix) []Pattern {
	if !network.Addr().Is4() {
		return nil
	}
	var all []Pattern
	for _, f := range forms {
		parts := []netip.Prefix{network.Masked()}
		if f.nonzero {
			parts = withoutZero(network.Masked())
		}
		for _, part := range parts {
			all = append(all, f.pattern(part))
		}
	}
	return all
}

func (f form) pattern(network netip.Prefix) Pattern {
	mask, value := f.mask.As16(), f.fixed.As16()
	net, four := ones(network.Bits()).As16(), network.Addr().As4()
	for i, at := range f.octets {
		if mask[at] |= net[i]; f.inverted {
			four[i] = ^four[i]
		}
		value[at] |= four[i] & net[i]
	}
	return Pattern{Mask: netip.AddrFrom16(mask), Value: netip.AddrFrom16(value)}
}

// withoutZero returns the parts of a network outside 0.0.0.0/8.
func withoutZero(network netip.Prefix) []netip.Prefix {
	const octet = 8
	if network.Addr().As4()[0] != 0 {
		return []netip.Prefix{network}
	}
	var parts []netip.Prefix
	for n := network.Bits() + 1; n <= octet; n++ {
		parts = append(parts, netip.PrefixFrom(netip.AddrFrom4([4]byte{1 << (octet - n)}), n))
	}
	return parts
}
