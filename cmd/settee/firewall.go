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

// resolverFile is the file that lists the name servers of the host.
const resolverFile = "/etc/resolv.conf"

func newFirewall() *cobra.Command {
	var flags configFlags
	var in, out []string
	cmd := &cobra.Command{
		Use:   "firewall",
		Short: "Print nftables rules for a node, from its configuration",
		Long: "firewall prints nftables rules for the host, or the network namespace, of a node that is started\n" +
			"with the same flags and environment. They replace the table inet settee and change no other table.\n\n" +
			"A unit of the packages reads /etc/settee/*.ini and /etc/settee/local.d/*.ini, settee-frontend.service and\n" +
			"settee-replication.service set a role, and all read the variables of /etc/settee/local.env. With other\n" +
			"files or another role the rules cut the node off from its store.\n\n" +
			"The rules drop all traffic, incoming and outgoing, except:\n\n" +
			"  api_frontend  incoming: its ports, unless they listen on loopback; outgoing: the coordinators in the\n" +
			"                store's cluster file\n" +
			"  replication   incoming: nothing; outgoing: the store, the name servers of " + resolverFile + " and,\n" +
			"                over TCP, every address outside [replicator] denied_networks\n\n" +
			"--in and --out allow more, with expressions of nft: for servers of the cluster that are not\n" +
			"coordinators, for ssh, or for a time server.",
		Example: "  COUCHDB_NODE_TYPE_REPLICATION=false settee firewall " + unitFlags + " --in 'tcp dport 22' |\n    nft --file -\n" +
			"  COUCHDB_NODE_TYPE_API_FRONTEND=false settee firewall " + unitFlags + " --in 'tcp dport 22' |\n    nft --file -",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := flags.load() // serve prints the warnings
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
	cmd.Flags().StringArrayVar(&in, "in", nil, "an nft expression for other incoming traffic to allow; may be repeated")
	cmd.Flags().StringArrayVar(&out, "out", nil, "an nft expression for other outgoing traffic to allow; may be repeated")
	return cmd
}

// rules are the values of the template ruleset.
type rules struct {
	Roles     config.Roles
	Listeners []netip.AddrPort // that other hosts can reach
	Store     []netip.AddrPort // the coordinators; none if the store is on this host
	Resolvers []netip.Addr     // the name servers, if the node resolves names
	Denied    []netip.Prefix   // no prefix contains another
	Masked    []masked         // denied addresses that Denied does not contain
	MoreIn    []string
	MoreOut   []string
}

// newRules returns the rules of a node.
func newRules(ctx context.Context, cfg *config.Config, resolvers string) (*rules, error) {
	r := &rules{Roles: cfg.Roles()}
	if r.Roles.APIFrontend {
		for _, e := range entrances(cfg) {
			if e.address.Port() == 0 {
				return nil, errors.New("a port is 0, which means any free port: the rules need its number")
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

// findStore sets Store to the coordinators of a store on FoundationDB, and reports whether the
// cluster file has a coordinator by name.
func (r *rules) findStore(ctx context.Context, store string) (byName bool, err error) {
	u, err := url.Parse(store)
	if err != nil || u.Scheme != "fdb" {
		return false, err
	}
	if u.Path == "" {
		return false, fmt.Errorf("%v names no cluster file: the rules need one to find the coordinators", config.Store)
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

// readResolvers returns the name servers in the file that are not on this host.
func readResolvers(path string) ([]netip.Addr, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the list of name servers: %w", err)
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

// masked are the IPv6 addresses that have one of the values in the bits that are set in the mask.
type masked struct {
	Mask   netip.Addr
	Values []netip.Addr
}

// spelledOut returns the networks, and the IPv6 addresses that embed one of their IPv4 addresses, as networks if
// possible, otherwise as masked values.
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

// outermost returns the networks in order, without those inside another one, because nft refuses overlapping networks.
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

// ruleset allows the ICMPv6 messages that every IPv6 network needs to find neighbours and routers.
var ruleset = template.Must(template.New("ruleset").Funcs(template.FuncMap{
	"to": func(a netip.Addr) string {
		switch {
		case a.IsUnspecified() && a.Is6():
			return "" // IPv4 and IPv6
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
