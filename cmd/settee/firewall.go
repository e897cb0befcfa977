package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"settee/pkg/config"
	"settee/pkg/ipv4in6"
)

// resolverFile is where a host says which name servers it asks.
const resolverFile = "/etc/resolv.conf"

func newFirewall() *cobra.Command {
	var flags configFlags
	var in, out []string
	cmd := &cobra.Command{
		Use:   "firewall",
		Short: "Print nftables rules for a node, from its configuration",
		Long: "firewall prints nftables rules for the host, or the network namespace, of a node that is started\n" +
			"with the same flags and environment. They replace the table inet settee and touch no other. What they\n" +
			"do not name is dropped, whether it comes in or goes out:\n\n" +
			"  api_frontend  its ports are open, unless they listen on loopback; of other hosts it reaches the\n" +
			"                coordinators that the store's cluster file names\n" +
			"  replication   no port is open; it reaches the store, the name servers of " + resolverFile + " and, over\n" +
			"                TCP, every address outside [replicator] denied_networks\n\n" +
			"A cluster whose servers are not all coordinators, the port of ssh, a clock: --in and --out let more\n" +
			"through, as nft writes it.",
		Example: "  settee firewall --config /etc/settee/local.ini --in 'tcp dport 22' |\n    nft --file -",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := flags.load() // serve warns
			if err != nil {
				return err
			}
			for _, expression := range append(in, out...) {
				if strings.TrimSpace(expression) == "" || strings.ContainsAny(expression, "\n;#") {
					return usage(cmd, fmt.Errorf("%q is not an expression such as 'ip saddr 192.0.2.0/24 tcp dport 22'", expression))
				}
			}
			rules, err := newRules(cmd.Context(), cfg, resolverFile)
			if err != nil {
				return err
			}
			rules.MoreIn, rules.MoreOut = in, out
			return rules.print(cmd.OutOrStdout())
		},
	}
	flags.register(cmd)
	cmd.Flags().StringArrayVar(&in, "in", nil, "what else may come in, as an nft expression; may be given several times")
	cmd.Flags().StringArrayVar(&out, "out", nil, "what else may go out, as an nft expression; may be given several times")
	return cmd
}

// rules are what goes into ruleset.
type rules struct {
	Roles     config.Roles
	Listeners []netip.AddrPort // that others can reach
	Store     []netip.AddrPort // the coordinators; none where the store is this host's
	Resolvers []netip.Addr     // the name servers that are asked, if any has to be
	Denied    []netip.Prefix   // none contains another
	Masked    []masked         // what is denied beside them
	MoreIn    []string
	MoreOut   []string
}

// newRules makes the rules of a node.
func newRules(ctx context.Context, cfg *config.Config, resolvers string) (*rules, error) {
	r := &rules{Roles: cfg.Roles()}
	if r.Roles.APIFrontend {
		for _, e := range entrances(cfg) {
			if e.address.Port() == 0 {
				return nil, errors.New("a port is 0, which takes any that is free: the rules need its number")
			}
			if !e.address.Addr().IsLoopback() {
				r.Listeners = append(r.Listeners, e.address)
			}
		}
	}
	byName, err := r.findStore(ctx, config.Store.Get(cfg))
	if err != nil {
		return nil, err
	}
	if r.Roles.Replication {
		r.Denied, r.Masked = spelledOut(config.DeniedNetworks.Get(cfg))
	}
	if r.Roles.Replication || byName {
		if r.Resolvers, err = readResolvers(resolvers); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// findStore finds the coordinators of a store that is a FoundationDB cluster, and reports
// whether any of them is known by a name.
func (r *rules) findStore(ctx context.Context, store string) (byName bool, err error) {
	u, err := url.Parse(store)
	if err != nil || u.Scheme != "fdb" {
		return false, err
	}
	if u.Path == "" {
		return false, fmt.Errorf("%v names no cluster file, from which the rules are made", config.Store)
	}
	text, err := os.ReadFile(u.Path)
	if err != nil {
		return false, fmt.Errorf("reading the cluster file: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		_, coordinators, found := strings.Cut(line, "@")
		if !found {
			continue
		}
		for coordinator := range strings.SplitSeq(coordinators, ",") {
			coordinator = strings.TrimSuffix(strings.TrimSpace(coordinator), ":tls")
			if address, err := netip.ParseAddrPort(coordinator); err == nil {
				r.Store = append(r.Store, address)
				continue
			}
			byName = true
			if err := r.resolveCoordinator(ctx, coordinator); err != nil {
				return false, fmt.Errorf("coordinator %q of %s: %w", coordinator, u.Path, err)
			}
		}
	}
	if len(r.Store) == 0 {
		return false, fmt.Errorf("%s names no coordinator", u.Path)
	}
	return byName, nil
}

func (r *rules) resolveCoordinator(ctx context.Context, coordinator string) error {
	host, portText, err := net.SplitHostPort(coordinator)
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return err
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for _, address := range found {
		r.Store = append(r.Store, netip.AddrPortFrom(address.Unmap(), uint16(port)))
	}
	return err
}

// readResolvers returns the name servers of a resolv.conf that are other hosts.
func readResolvers(path string) ([]netip.Addr, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading which name servers are asked: %w", err)
	}
	var all []netip.Addr
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if address, err := netip.ParseAddr(fields[1]); err == nil && !address.IsLoopback() {
			all = append(all, address.Unmap().WithZone(""))
		}
	}
	return all, nil
}

// masked is IPv6 addresses that have one of some values where a mask has ones.
type masked struct {
	Mask   netip.Addr
	Values []netip.Addr
}

// spelledOut returns networks with the IPv6 addresses that carry one of their IPv4 addresses: those that are
// networks, too, and the others.
func spelledOut(networks []netip.Prefix) ([]netip.Prefix, []masked) {
	var all []netip.Prefix
	others := map[netip.Addr][]netip.Addr{} // values by mask
	for _, network := range outermost(networks) {
		all = append(all, network)
		for _, pattern := range ipv4in6.Patterns(network) {
			if prefix, is := pattern.Prefix(); is {
				all = append(all, prefix)
			} else {
				others[pattern.Mask] = append(others[pattern.Mask], pattern.Value)
			}
		}
	}
	var rest []masked
	for _, mask := range slices.SortedFunc(maps.Keys(others), netip.Addr.Compare) {
		slices.SortFunc(others[mask], netip.Addr.Compare)
		rest = append(rest, masked{mask, slices.Compact(others[mask])})
	}
	return outermost(all), rest
}

// outermost returns networks in order, without those that are part of another one: nft refuses a set that has such.
func outermost(networks []netip.Prefix) []netip.Prefix {
	byWidth := slices.SortedStableFunc(slices.Values(networks), func(a, b netip.Prefix) int { return cmp.Compare(a.Bits(), b.Bits()) })
	var outer []netip.Prefix
	for _, network := range byWidth {
		if !slices.ContainsFunc(outer, func(wide netip.Prefix) bool { return wide.Contains(network.Addr()) }) {
			outer = append(outer, network)
		}
	}
	slices.SortFunc(outer, netip.Prefix.Compare)
	return outer
}

// The names in icmpv6 are what IPv6 cannot do without on a network: neighbours and routers
// find one another by them.
var ruleset = template.Must(template.New("ruleset").Funcs(template.FuncMap{
	"to": func(a netip.Addr) string {
		switch {
		case a.IsUnspecified() && a.Is6():
			return "" // of both kinds
		case a.IsUnspecified():
			return "meta nfproto ipv4 "
		case a.Is4():
			return "ip daddr " + a.String() + " "
		}
		return "ip6 daddr " + a.WithZone("").String() + " "
	},
	"of": func(version int, networks []netip.Prefix) string {
		var all []string
		for _, network := range networks {
			if network.Addr().Is4() == (version == 4) {
				all = append(all, network.String())
			}
		}
		return strings.Join(all, ", ")
	},
	"list": func(addresses []netip.Addr) string {
		var all []string
		for _, address := range addresses {
			all = append(all, address.String())
		}
		return strings.Join(all, ", ")
	},
}).Parse(`# For a settee node with the roles {{.Roles}}. Load it with: nft --file
table inet settee
delete table inet settee
table inet settee {
	chain input {
		type filter hook input priority filter; policy drop;
		ct state established,related accept
		iif lo accept
		icmpv6 type { nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, mld-listener-query } accept
{{- range .Listeners}}
		{{to .Addr}}tcp dport {{.Port}} accept
{{- end}}
{{- range .MoreIn}}
		{{.}} accept
{{- end}}
	}

	chain output {
		type filter hook output priority filter; policy drop;
		ct state established,related accept
		oif lo accept
		icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert, mld-listener-report, mld2-listener-report } accept
{{- if .Store}}
		# The store's coordinators.
{{- end}}
{{- range .Store}}
		{{to .Addr}}tcp dport {{.Port}} accept
{{- end}}
{{- if .Resolvers}}
		# The name servers.
{{- end}}
{{- range .Resolvers}}
		{{to .}}meta l4proto { tcp, udp } th dport 53 accept
{{- end}}
{{- range .MoreOut}}
		{{.}} accept
{{- end}}
{{- if .Roles.Replication}}
		# Endpoints, but none in [replicator] denied_networks.
{{- with of 4 .Denied}}
		ip daddr { {{.}} } reject
{{- end}}
{{- with of 6 .Denied}}
		ip6 daddr { {{.}} } reject
{{- end}}
{{- range .Masked}}
		ip6 daddr & {{.Mask}} { {{list .Values}} } reject
{{- end}}
		meta l4proto tcp accept
{{- if not .Resolvers}}
		# This host's own name server.
		udp dport 53 accept
{{- end}}
{{- end}}
		reject
	}
}
`))

func (r *rules) print(out io.Writer) error { return ruleset.Execute(out, r) }
