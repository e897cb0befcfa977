package ipv4in6_test

import (
	"fmt"
	"net/netip"

	"settee/pkg/ipv4in6"
)

// A translator (RFC 6052) makes an IPv4 address of this one.
func ExampleCarried() {
	fmt.Println(ipv4in6.Carried(netip.MustParseAddr("64:ff9b::a9fe:a9fe")))
	// Output:
	// [169.254.169.254]
}
