// Package ipv4in6 knows the IPv6 addresses that carry an IPv4 address: a translator, a relay or a tunnel on
// the way takes what is sent to them there. Whoever denies an IPv4 network denies these with it.
//
//	::ffff:0:0/96    mapped: the socket itself speaks IPv4 (RFC 4291, 2.5.5.2)
//	::/96            compatible (RFC 4291, 2.5.5.1)
//	::ffff:0:0:0/96  translated (RFC 2765, 2.1)
//	64:ff9b::/96     a translator's (RFC 6052)
//	64:ff9b:1::/48   a translator's of the site, which divides the prefix as it likes (RFC 8215): all four
//	                 places that RFC 6052, 2.2 has for prefixes of 48, 56, 64 and 96 bits
//	2002::/16        6to4 (RFC 3056)
//	2001::/32        Teredo: of the server, and of the client behind it, inverted (RFC 4380, 4)
//	*:0:5efe:*       ISATAP, below any prefix (RFC 5214, 6.1)
//
// A prefix that a site has chosen itself for a translator (RFC 6052) or a relay (RFC 5969) cannot be told from
// others.
package ipv4in6

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// form is one way to carry an IPv4 address.
type form struct {
	fixed    netip.Addr // what addresses of the form have where mask has ones
	mask     netip.Addr
	octets   [4]int // where the octets of the IPv4 address are
	inverted bool   // all of its bits are
	// some says that the first octet is not 0. No host has such an address (RFC 1122, 3.2.1.3), but the form shares
	// its prefix with addresses that have zeros there and are of other forms, or, as ::1, of none.
	some bool
}

var forms = []form{
	in("::ffff:0:0/96", 12, 13, 14, 15),
	in("::/96", 12, 13, 14, 15).other(),
	in("::ffff:0:0:0/96", 12, 13, 14, 15),
	in("64:ff9b::/96", 12, 13, 14, 15),
	// Octet 8 is to be 0 (RFC 6052, 2.2). A translator need not look at it.
	in("64:ff9b:1::/48", 6, 7, 9, 10).other(),
	in("64:ff9b:1::/48", 7, 9, 10, 11).other(),
	in("64:ff9b:1::/48", 9, 10, 11, 12).other(),
	in("64:ff9b:1::/48", 12, 13, 14, 15),
	in("2002::/16", 2, 3, 4, 5),
	in("2001::/32", 4, 5, 6, 7),
	{fixed: netip.MustParseAddr("2001::"), mask: ones(32), octets: [4]int{12, 13, 14, 15}, inverted: true},
	// The bit that differs says whether the IPv4 address is one of its own in the world.
	{fixed: netip.MustParseAddr("::5efe:0:0"), mask: netip.MustParseAddr("::fdff:ffff:0:0"), octets: [4]int{12, 13, 14, 15}, some: true},
}

func in(prefix string, octets ...int) form {
	p := netip.MustParsePrefix(prefix)
	return form{fixed: p.Addr(), mask: ones(p.Bits()), octets: [4]int(octets)}
}

func (f form) other() form {
	f.some = true
	return f
}

// ones is the mask of a prefix.
func ones(n int) netip.Addr {
	var b [16]byte
	for i := range n {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom16(b)
}

// Carried returns the IPv4 addresses that an IPv6 address carries, each form's once. It returns none for an IPv4
// address.
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
	return netip.AddrFrom4(four), !f.some || four[0] != 0
}

// Pattern is a set of IPv6 addresses: those that are Value where Mask has ones.
type Pattern struct{ Mask, Value netip.Addr }

// Prefix returns the pattern as a prefix, if it is one.
func (p Pattern) Prefix() (netip.Prefix, bool) {
	mask := p.Mask.As16()
	high, low := binary.BigEndian.Uint64(mask[:8]), binary.BigEndian.Uint64(mask[8:])
	n := bits.LeadingZeros64(^high)
	if n == 64 {
		n += bits.LeadingZeros64(^low)
	}
	return netip.PrefixFrom(p.Value, n), p.Mask == ones(n)
}

// Contains reports whether an address is of the pattern.
func (p Pattern) Contains(addr netip.Addr) bool {
	b, mask, value := addr.As16(), p.Mask.As16(), p.Value.As16()
	for i := range b {
		if b[i]&mask[i] != value[i] {
			return false
		}
	}
	return true
}

// Patterns returns the IPv6 addresses that carry one of an IPv4 network: those of which [Carried] returns one.
// It returns none for an IPv6 network.
func Patterns(network netip.Prefix) []Pattern {
	if !network.Addr().Is4() {
		return nil
	}
	var all []Pattern
	for _, f := range forms {
		parts := []netip.Prefix{network.Masked()}
		if f.some {
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

// withoutZero returns the parts of a network that are outside 0.0.0.0/8.
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
