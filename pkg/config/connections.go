package config

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"settee/pkg/sockopt"
)

// ConnectTo is an entry of [replicator] connect_to: connections to Host and Port go to Target and
// TargetPort instead.
type ConnectTo struct {
	Host       string // may begin with the wildcard *
	Port       int
	Target     string // a name, or an address without brackets
	TargetPort int
}

// connectTo accepts CouchDB's list of HOST:PORT:TARGET:TARGETPORT. CouchDB ignores invalid
// entries. Here they are errors, because connections would go to the wrong host.
func connectTo() kind[[]ConnectTo] {
	return list("a list of HOST:PORT:TARGET:TARGETPORT, separated by commas, such as *.example.com:443:[2001:db8::1]:8443",
		entries, parseConnectTo)
}

// HOST is a name or an IPv4 address and may begin with *. An IPv6 address as TARGET has brackets.
var connectToEntry = regexp.MustCompile(`^(\*?[^:\[\]*\s]*):(\d{1,5}):([^:\[\]\s]+|\[[^\[\]\s]+\]):(\d{1,5})$`)

func parseConnectTo(entry string) (ConnectTo, bool) {
	m := connectToEntry.FindStringSubmatch(entry)
	if m == nil || m[1] == "" {
		return ConnectTo{}, false
	}
	target, isAddress := strings.CutPrefix(m[3], "[")
	if isAddress {
		target = strings.TrimSuffix(target, "]")
		if addr, err := netip.ParseAddr(target); err != nil || !addr.Is6() {
			return ConnectTo{}, false
		}
	}
	port, portOK := parsePort(m[2])
	targetPort, targetOK := parsePort(m[4])
	return ConnectTo{m[1], port, target, targetPort}, portOK && targetOK
}

func parsePort(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err == nil && n > 0
}

// networks accepts a list of networks and addresses, and returns networks.
func networks() kind[[]netip.Prefix] {
	return list("a list of networks and addresses, separated by commas, such as 10.0.0.0/8, fe80::/10, 192.0.2.1, private; or none",
		func(text string) (networks []string) {
			if text == "none" {
				return nil
			}
			for _, entry := range entries(text) {
				if entry == "private" {
					networks = append(networks, privateNetworks...)
				} else {
					networks = append(networks, entry)
				}
			}
			return networks
		}, parseNetwork)
}

// privateNetworks are what private stands for: all networks that are not of the Internet as a whole (the registries of
// special addresses, RFC 6890), among them loopback ones and those of the default, and the address at which Azure manages
// machines.
var privateNetworks = []string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4", "::", "::1", "fc00::/7", "fe80::/10",
	"fec0::/10", "ff00::/8",
}

// parseNetwork returns the network of an address or a network. IPv4 networks in IPv6 form become
// IPv4 networks.
func parseNetwork(text string) (netip.Prefix, bool) {
	network, err := netip.ParsePrefix(text)
	if err != nil {
		addr, err := netip.ParseAddr(text)
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), err == nil && addr.Zone() == ""
	}
	if addr := network.Addr(); addr.Is4In6() {
		if network.Bits() < 96 {
			return netip.Prefix{}, false
		}
		network = netip.PrefixFrom(addr.Unmap(), network.Bits()-96)
	}
	return network.Masked(), true
}

// socketOptions is CouchDB's list of Erlang's options.
func socketOptions() kind[sockopt.Options] {
	return kind[sockopt.Options]{
		want: "a list such as [{keepalive, true}, {nodelay, false}, {sndbuf, 262144}, {recbuf, 262144}]",
		parse: func(text string) (sockopt.Options, bool) {
			options, err := sockopt.ParseKnown(text)
			return options, err == nil
		},
	}
}

// words is a list of words of small letters, separated by commas.
func words() kind[[]string] {
	word := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	return list("a list of words in small letters, separated by commas", items, func(item string) (string, bool) {
		return item, word.MatchString(item)
	})
}

// filePath accepts the path of a file, or nothing. The file is checked when it is read.
func filePath() kind[string] {
	return kind[string]{want: "the path of a file", parse: func(text string) (string, bool) { return text, true }}
}

// secretText accepts any text.
func secretText() kind[string] {
	return kind[string]{want: "a text", parse: func(text string) (string, bool) { return text, true }}
}
