package config

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// ConnectTo is an entry of [replicator] connect_to: connections to Host and Port go to Target and
// TargetPort instead.
type ConnectTo struct {
	Host       string // a * in front stands for anything
	Port       int
	Target     string // a name, or an address without brackets
	TargetPort int
}

// connectTo is CouchDB's list of HOST:PORT:TARGET:TARGETPORT. CouchDB passes over entries that it cannot
// read; here they are refused, since connections would go where nobody wants them.
func connectTo() kind[[]ConnectTo] {
	parse := func(text string) (list []ConnectTo, wrong string) {
		for entry := range strings.SplitSeq(text, ",") {
			if entry = trimBlanks(entry); entry == "" {
				continue
			}
			c, ok := parseConnectTo(entry)
			if !ok {
				return nil, entry
			}
			list = append(list, c)
		}
		return list, ""
	}
	return kind[[]ConnectTo]{
		want: "a list of HOST:PORT:TARGET:TARGETPORT, separated by commas, such as *.example.com:443:[2001:db8::1]:8443",
		parse: func(text string) ([]ConnectTo, bool) {
			list, wrong := parse(text)
			return list, wrong == ""
		},
		wrong: func(text string) string {
			_, entry := parse(text)
			return entry
		},
	}
}

// An address as the target has brackets if it is IPv6; the host is a name or an IPv4 address, with a *
// at most in front.
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

// networks is a list of networks and addresses. The result is of networks.
func networks() kind[[]netip.Prefix] {
	parse := func(text string) (list []netip.Prefix, wrong string) {
		if text == "none" {
			return nil, ""
		}
		for entry := range strings.SplitSeq(text, ",") {
			if entry = trimBlanks(entry); entry == "" {
				continue
			}
			network, ok := parseNetwork(entry)
			if !ok {
				return nil, entry
			}
			list = append(list, network)
		}
		return list, ""
	}
	return kind[[]netip.Prefix]{
		want: "a list of networks and addresses, separated by commas, such as 10.0.0.0/8, fe80::/10, 192.0.2.1; or none",
		parse: func(text string) ([]netip.Prefix, bool) {
			list, wrong := parse(text)
			return list, wrong == ""
		},
		wrong: func(text string) string {
			_, entry := parse(text)
			return entry
		},
	}
}

// parseNetwork makes IPv4 networks of those that are written as IPv6, and a network of an address.
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

// SocketOptions are the options of sockets that are set; nil is for what is left alone.
type SocketOptions struct {
	KeepAlive, NoDelay        *bool
	SendBuffer, ReceiveBuffer *int // bytes
}

var (
	socketList   = regexp.MustCompile(`^\[\s*(?:\{[^{}]*\}(?:\s*,\s*\{[^{}]*\})*)?\s*\]$`)
	socketOption = regexp.MustCompile(`\{\s*([^{},\s]+)\s*,\s*([^{},\s]+)\s*\}`)
)

// socketOptions is CouchDB's list of Erlang's options. Its buffer and priority have no counterpart and no
// effect; others are refused.
func socketOptions() kind[SocketOptions] {
	return kind[SocketOptions]{
		want: "a list such as [{keepalive, true}, {nodelay, false}, {sndbuf, 262144}, {recbuf, 262144}]",
		parse: func(text string) (SocketOptions, bool) {
			var options SocketOptions
			if !socketList.MatchString(text) {
				return options, false
			}
			found := socketOption.FindAllStringSubmatch(text, -1)
			if len(found) != strings.Count(text, "{") {
				return options, false
			}
			for _, option := range found {
				if !options.set(option[1], option[2]) {
					return options, false
				}
			}
			return options, true
		},
	}
}

func (o *SocketOptions) set(name, value string) bool {
	flag, isFlag := map[string]bool{"true": true, "false": false}[value]
	size, err := strconv.ParseInt(value, 10, 32)
	isSize := err == nil && size > 0
	switch name {
	case "keepalive":
		o.KeepAlive = new(flag)
		return isFlag
	case "nodelay":
		o.NoDelay = new(flag)
		return isFlag
	case "sndbuf":
		o.SendBuffer = new(int(size))
		return isSize
	case "recbuf":
		o.ReceiveBuffer = new(int(size))
		return isSize
	case "buffer":
		return isSize
	case "priority":
		return err == nil && size >= 0
	}
	return false
}

// words is a list of words of small letters, separated by commas.
func words() kind[[]string] {
	word := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	return kind[[]string]{
		want: "a list of words in small letters, separated by commas",
		parse: func(text string) ([]string, bool) {
			var list []string
			for item := range strings.SplitSeq(text, ",") {
				if item = trimBlanks(item); !word.MatchString(item) {
					return nil, false
				}
				list = append(list, item)
			}
			return list, true
		},
	}
}

// filePath is the path of a file, or nothing. Whether the file is there is found out when it is read.
func filePath() kind[string] {
	return kind[string]{want: "the path of a file", parse: func(text string) (string, bool) { return text, true }}
}

// secretText is any text.
func secretText() kind[string] {
	return kind[string]{want: "a text", parse: func(text string) (string, bool) { return text, true }}
}
