package ipv4in6_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/ipv4in6"
)

func TestCarried(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"::ffff:192.0.2.33":   {"192.0.2.33"},
		"::192.0.2.33":        {"192.0.2.33"},
		"::ffff:0:192.0.2.33": {"192.0.2.33"},
		"64:ff9b::192.0.2.33": {"192.0.2.33"},
		"2002:c000:221::1":    {"192.0.2.33"},
		// RFC 6052, 2.4 with the prefix of RFC 8215.
		"64:ff9b:1:c000:2:2100::":              {"192.0.2.33", "2.33.0.0"}, // /48
		"64:ff9b:1:c0:0:221::":                 {"192.0.2.33"},             // /56
		"64:ff9b:1:0:c0:2:2100:0":              {"192.0.2.33", "33.0.0.0"}, // /64
		"64:ff9b:1:fffe::192.0.2.33":           {"255.254.0.0", "254.0.0.0", "192.0.2.33"},
		"64:ff9b:1:c000:ff02:2100::":           {"192.0.2.33", "2.33.0.0"},      // octet 8 is not 0
		"2001:0:4136:e378:8000:63bf:3fff:fdd2": {"65.54.227.120", "192.0.2.45"}, // Teredo
		"2001:db8::5efe:192.0.2.33":            {"192.0.2.33"},
		"fe80::200:5efe:192.0.2.33":            {"192.0.2.33"},
		// None, or none that a host can have.
		"::": nil, "::1": nil, "2001:db8::1": nil, "2001:db8::100:5efe:c000:221": nil, "64:ff9b:2::c000:221": nil,
		"192.0.2.33": nil, "::1:ffff:0:c000:221": nil, "64:ff9b:0:1::c000:221": nil,
	} {
		var got []string
		for _, addr := range ipv4in6.Carried(netip.MustParseAddr(text)) {
			if addr.As4()[0] != 0 {
				got = append(got, addr.String())
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		require.Equal(t, want, got, text)
	}
}

// matchesPattern reports whether an address equals the pattern's value where its mask has ones.
func matchesPattern(p ipv4in6.Pattern, addr netip.Addr) bool {
	b, mask, value := addr.As16(), p.Mask.As16(), p.Value.As16()
	for i := range b {
		if b[i]&mask[i] != value[i] {
			return false
		}
	}
	return true
}

// Carried and Patterns agree.
func TestPatternsAgreeWithCarried(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(1, 2))
	beginnings := []string{
		"::", "::ffff:0:0", "::ffff:0:0:0", "64:ff9b::", "64:ff9b:1::", "2002::", "2001::", "2001:db8::5efe:0:0", "2001:db8::200:5efe:0:0", "2001:db8::",
	}
	found := 0
	for range 30_000 {
		var four [4]byte
		for i := range four {
			some, fewer := byte(dice.Uint32()), byte(dice.Uint32())
			four[i] = some & fewer & -byte(dice.IntN(2))
		}
		network := netip.PrefixFrom(netip.AddrFrom4(four), dice.IntN(33)).Masked()
		b := netip.MustParseAddr(beginnings[dice.IntN(len(beginnings))]).As16()
		// The other octets are in the network, near it, or anything.
		for i := 2; i < len(b); i++ {
			if dice.IntN(3) == 0 {
				b[i] |= byte(dice.Uint32())
			}
		}
		if at := dice.IntN(16); at+4 <= len(b) {
			copy(b[at:], four[:])
		}
		addr := netip.AddrFrom16(b)
		carries := slices.ContainsFunc(ipv4in6.Carried(addr), network.Contains)
		matches := slices.ContainsFunc(ipv4in6.Patterns(network), func(p ipv4in6.Pattern) bool {
			prefix, is := p.Prefix()
			if is && matchesPattern(p, addr) != prefix.Contains(addr) {
				t.Errorf("%v is in only one of %v and %v", addr, p, prefix)
			}
			return matchesPattern(p, addr)
		})
		if carries != matches {
			t.Errorf("%v carries an address of %v: %v, matches: %v", addr, network, carries, matches)
		}
		if carries {
			found++
		}
	}
	require.Greater(t, found, 1_000)
	require.Empty(t, ipv4in6.Patterns(netip.MustParsePrefix("fe80::/10")))
}
