package outbound_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/outbound"
)

// resolver is a resolver whose name server is the test.
func resolver(t testing.TB, addresses func(name string) []string) *net.Resolver {
	t.Helper()
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		serving.Go(func() {
			defer server.Close()
			for {
				answer, err := answerDNS(server, addresses)
				if err != nil {
					return
				}
				if _, err := server.Write(answer); err != nil {
					return
				}
			}
		})
		return client, nil
	}}
}

// answerDNS reads one question, as over TCP, and makes its answer (RFC 1035).
func answerDNS(r io.Reader, addresses func(string) []string) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	query := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(r, query); err != nil {
		return nil, err
	}
	const header = 12
	name, at := "", header
	for query[at] != 0 {
		n := int(query[at])
		name += string(query[at+1:at+1+n]) + "."
		at += 1 + n
	}
	kind := binary.BigEndian.Uint16(query[at+1:])
	var records []byte
	count := uint16(0)
	all := addresses(name)
	for _, text := range all {
		addr := netip.MustParseAddr(text)
		if addr.Is4() != (kind == 1) || addr.Is6() != (kind == 28) {
			continue
		}
		count++
		records = append(records, 0xc0, header) // the name of the question
		records = binary.BigEndian.AppendUint16(records, kind)
		records = append(records, 0, 1, 0, 0, 0, 0) // Internet, not to be kept
		records = binary.BigEndian.AppendUint16(records, uint16(addr.BitLen()/8))
		records = append(records, addr.AsSlice()...)
	}
	code := byte(0)
	if len(all) == 0 {
		code = 3 // no such name
	}
	answer := append([]byte{query[0], query[1], 0x84, 0x80 | code, 0, 1, byte(count >> 8), byte(count), 0, 0, 0, 0}, query[header:at+5]...)
	answer = append(answer, records...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...), nil
}

func deny(networks ...string) func(*outbound.PoolConfig) {
	return func(c *outbound.PoolConfig) {
		for _, network := range networks {
			c.Denied = append(c.Denied, netip.MustParsePrefix(network))
		}
	}
}

// refusedAsDenied checks that a request is refused for good.
func refusedAsDenied(t *testing.T, c client, words string) {
	t.Helper()
	_, err := c.get(t.Context())
	require.True(t, outbound.Final(err))
	require.ErrorIs(t, err, outbound.ErrDenied)
	require.ErrorContains(t, err, words)
	require.ErrorContains(t, err, "[replicator] denied_networks")
}

func TestDeniedNetworks(t *testing.T) {
	t.Parallel()
	pool, settings := newPool(t, outbound.PoolOptions{}, deny("169.254.0.0/16", "fe80::/10", "127.0.0.0/8"))
	for url, words := range map[string]string{
		"http://169.254.169.254/latest":            "connecting to 169.254.169.254:80: 169.254.169.254 is in 169.254.0.0/16: denied by",
		"https://169.254.169.254/latest":           "169.254.169.254 is in 169.254.0.0/16",
		"http://[::ffff:169.254.169.254]/db":       "169.254.169.254 is in 169.254.0.0/16",
		"http://[64:ff9b::a9fe:a9fe]/db":           "64:ff9b::a9fe:a9fe is in 169.254.0.0/16",
		"http://[2002:a9fe:a9fe::1]/db":            "2002:a9fe:a9fe::1 is in 169.254.0.0/16",
		"http://[64:ff9b:1::a9fe:a9fe]/db":         "64:ff9b:1::a9fe:a9fe is in 169.254.0.0/16",
		"http://[64:ff9b:1:a9fe:a9:fe00::]/db":     "is in 169.254.0.0/16", // a translator's prefix of 48 bits
		"http://[64:ff9b:1:7a9:fe:a9fe:1234:0]/db": "is in 169.254.0.0/16", // of 56
		"http://[64:ff9b:1:7:a9:fea9:fe00:0]/db":   "is in 169.254.0.0/16", // of 64
		"http://[::169.254.169.254]/db":            "::a9fe:a9fe is in 169.254.0.0/16",
		"http://[::ffff:0:169.254.169.254]/db":     "::ffff:0:a9fe:a9fe is in 169.254.0.0/16",
		"http://[2001:0:a9fe:a9fe::1]/db":          "is in 169.254.0.0/16", // Teredo's server
		"http://[2001::5601:5601]/db":              "is in 169.254.0.0/16", // and its client
		"http://[2001:db8::5efe:a9fe:a9fe]/db":     "is in 169.254.0.0/16", // ISATAP
		"http://0.0.0.0:1/db":                      "0.0.0.0 is in 127.0.0.0/8",
		"http://[::]:1/db":                         ":: is in 127.0.0.0/8",
		"http://localhost:1/db":                    "in 127.0.0.0/8",
	} {
		refusedAsDenied(t, through(t, pool, url, outbound.TransportOptions{}), words)
	}
	settings.edit(func(c *outbound.PoolConfig) {
		c.ConnectTo = []outbound.ConnectTo{{Host: "couch.example", Port: 80, Target: "fe80::1%lo", TargetPort: 80}}
	})
	refusedAsDenied(t, through(t, pool, "http://couch.example/db", outbound.TransportOptions{}), "fe80::1%lo is in fe80::/10")

	server := newCounted(t, sayHello)
	db := through(t, pool, server.URL+"/db", outbound.TransportOptions{})
	refusedAsDenied(t, db, "127.0.0.1 is in 127.0.0.0/8")
	require.Zero(t, server.opened.Load())

	// A connection that was allowed is not used any more when it is not.
	settings.edit(func(c *outbound.PoolConfig) { c.Denied = nil })
	_, err := db.get(t.Context())
	require.NoError(t, err)
	settings.edit(deny("127.0.0.0/8"))
	refusedAsDenied(t, db, "127.0.0.1 is in 127.0.0.0/8")
	require.EqualValues(t, 1, server.opened.Load())
}

// A name that has another address each time it is asked for gets nowhere: it is the address that counts
// that is dialled.
func TestDeniedNetworksAndNames(t *testing.T) {
	t.Parallel()
	server := newCounted(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		sayHello(w, r)
	})
	var asked atomic.Int32
	names := resolver(t, func(name string) []string {
		switch {
		case name == "both.example.":
			return []string{"169.254.169.254", "127.0.0.1"}
		case name == "six.example.":
			return []string{"fd00:ec2::254"}
		case asked.Add(1) <= 2: // for IPv4 and for IPv6
			return []string{"127.0.0.1"}
		}
		return []string{"169.254.169.254"}
	})
	pool, _ := newPool(t, outbound.PoolOptions{Resolver: names}, deny("169.254.0.0/16", "fd00:ec2::254/128"))
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	db := through(t, pool, "http://rebinds.example:"+port+"/db", outbound.TransportOptions{})
	_, err = db.get(t.Context())
	require.NoError(t, err)
	refusedAsDenied(t, db, "connecting to rebinds.example:"+port+": 169.254.169.254 is in 169.254.0.0/16")
	refusedAsDenied(t, through(t, pool, "http://six.example/db", outbound.TransportOptions{}), "fd00:ec2::254 is in fd00:ec2::254/128")
	// A name with an address that is allowed leads there.
	_, err = through(t, pool, "http://both.example:"+port+"/db", outbound.TransportOptions{}).get(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, server.opened.Load())
}

func TestDeniedNetworksAndProxies(t *testing.T) {
	t.Parallel()
	proxy := newHTTPProxy(t, nil)
	pool, settings := newPool(t, outbound.PoolOptions{}, deny("169.254.0.0/16"))
	for _, host := range []string{"169.254.169.254", "169.254.43518", "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "169.254.169.254.", "169.254.169.254..", "[::ffff:169.254.169.254]"} {
		for _, scheme := range []string{"http", "https"} {
			db := through(t, pool, scheme+"://"+host+"/db", outbound.TransportOptions{Proxy: proxy.url()})
			refusedAsDenied(t, db, "169.254.169.254 is in 169.254.0.0/16")
		}
	}
	require.Zero(t, proxy.served.Load())
	for _, host := range []string{"169.254.169.254.example", "192.0.2.1", "a.1"} {
		_, err := through(t, pool, "http://"+host+"/db", outbound.TransportOptions{Proxy: proxy.url()}).get(t.Context())
		require.NotErrorIs(t, err, outbound.ErrDenied, host)
	}

	settings.edit(deny("127.0.0.0/8"))
	db := through(t, pool, "http://couch.example/db", outbound.TransportOptions{Proxy: proxy.url()})
	refusedAsDenied(t, db, "proxy "+proxy.name()+": connecting to it: 127.0.0.1 is in 127.0.0.0/8")
}

func TestHostsForProxies(t *testing.T) {
	t.Parallel()
	denied := []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("127.0.0.0/8")}
	for _, host := range []string{
		"169.254.169.254", "169.254.169.254.", "169.254.169.254..", "169.254.169.254......", "169.254.43518", "169.16689662",
		"2852039166", "2852039166..", "0xA9FEA9FE", "0XA9.0xfe.0251.254", "025177524776", "127.1", "0", "::ffff:169.254.169.254",
		// Numbers that overflow, and what only resembles an address.
		"7147006462", "7147006462.", "0x1A9FEA9FE", "425.510.425.510", "169.254.99999", "99999999999999999999999", "1.2.3.4.5", "0x", "0x.1",
		"169..1.1", "089.1.1.1", "..", "",
		"１６９.２５４.169.254", "169。254。169。254",
	} {
		require.ErrorIs(t, outbound.CheckHost(denied, host), outbound.ErrDenied, host)
		require.NoError(t, outbound.CheckHost(nil, host), host)
	}
	for _, host := range []string{"169.254.169.254.example", "192.0.2.1", "192.0.2.1.", "3221225985", "a.1", "couch.example..", "0xg", "::2", "bücher.example"} {
		require.NoError(t, outbound.CheckHost(denied, host), host)
	}
}

// FuzzHostsForProxies checks that no form of a number that keeps the lowest bits of a denied address is let through.
func FuzzHostsForProxies(f *testing.F) {
	f.Add(uint64(0x1a9fea9fe), uint8(0), uint8(2))
	f.Add(uint64(0xa9fea9fe), uint8(2), uint8(0))
	f.Add(uint64(0xa9fea9fe)|1<<63, uint8(1), uint8(1))
	denied := []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")}
	f.Fuzz(func(t *testing.T, n uint64, form, dots uint8) {
		n = n&^0xffff0000 | 0xa9fe0000
		host := fmt.Sprintf([]string{"%d", "%#o", "%#x", "%#X"}[form%4], n) + strings.Repeat(".", int(dots))
		require.ErrorIs(t, outbound.CheckHost(denied, host), outbound.ErrDenied, host)
	})
}
