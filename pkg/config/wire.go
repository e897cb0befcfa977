package config

import (
	"cmp"
	"crypto/tls"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// addressOrNone is an IP address, CouchDB's word for all of them, or nothing.
func addressOrNone() kind[netip.Addr] {
	address := ipAddress()
	return kind[netip.Addr]{want: address.want, parse: func(text string) (netip.Addr, bool) {
		if text == "" {
			return netip.Addr{}, true
		}
		return address.parse(text)
	}}
}

// terms reads an Erlang list of atoms and strings, or the same without brackets and quotes.
func terms(text string) []string {
	text = trimBlanks(text)
	if inner, ok := strings.CutPrefix(text, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok {
			text = inner
		}
	}
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		item = trimBlanks(item)
		for _, quote := range []string{`'`, `"`} {
			if inner, ok := strings.CutPrefix(item, quote); ok {
				if inner, ok = strings.CutSuffix(inner, quote); ok {
					item = inner
				}
			}
		}
		list = append(list, item)
	}
	return list
}

// eachOf is a list of values by their names, sorted, each once.
func eachOf[T cmp.Ordered](want string, values map[string]T) kind[[]T] {
	parse := func(text string) (list []T, wrong string) {
		for _, item := range terms(text) {
			value, ok := values[item]
			if !ok {
				return nil, item
			}
			list = append(list, value)
		}
		slices.Sort(list)
		return slices.Compact(list), ""
	}
	return kind[[]T]{
		want: want,
		parse: func(text string) ([]T, bool) {
			list, _ := parse(text)
			return list, list != nil
		},
		wrong: func(text string) string {
			_, item := parse(text)
			return item
		},
	}
}

// tlsVersions are those that are not broken.
func tlsVersions() kind[[]uint16] {
	return eachOf("a list of versions from 'tlsv1.2' and 'tlsv1.3', such as ['tlsv1.2', 'tlsv1.3']",
		map[string]uint16{"tlsv1.2": tls.VersionTLS12, "tlsv1.3": tls.VersionTLS13})
}

// tlsCiphers are the ciphers of TLS 1.2 that crypto/tls holds for safe, by OpenSSL's names,
// and by their own. Those of TLS 1.3 may be among them.
func tlsCiphers() kind[[]uint16] {
	byName := make(map[string]uint16)
	var names []string
	for _, suite := range tls.CipherSuites() {
		byName[suite.Name] = suite.ID
		if suite.SupportedVersions[0] < tls.VersionTLS13 {
			name := opensslName(suite.Name)
			byName[name] = suite.ID
			names = append(names, name)
		}
	}
	slices.Sort(names)
	list := eachOf("a list of ciphers from "+strings.Join(names, ", "), byName)
	parse := list.parse
	list.parse = func(text string) ([]uint16, bool) {
		if text == "" {
			return nil, true
		}
		return parse(text)
	}
	return list
}

// opensslName makes ECDHE-RSA-AES128-GCM-SHA256 of TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256.
func opensslName(name string) string {
	if before, ok := strings.CutSuffix(name, "_CHACHA20_POLY1305_SHA256"); ok {
		name = before + "_CHACHA20_POLY1305"
	}
	return strings.NewReplacer("TLS_", "", "_WITH", "", "AES_", "AES", "_CBC", "", "_", "-").Replace(name)
}

// webOrigins is a list of origins of pages, or * for all of them; or nothing.
func webOrigins() kind[[]string] {
	return listOf("a list of origins, separated by commas, such as https://app.example.com, http://localhost:8080; or *",
		func(item string) (string, bool) {
			item = strings.ToLower(item)
			u, err := url.Parse(item)
			plain := err == nil && u.Scheme != "" && u.Host != "" && item == u.Scheme+"://"+u.Host
			return item, item == "*" || plain
		})
}

// tokens is a list of names of headers or methods, in the case that they are compared in;
// or nothing.
func tokens(inCase func(string) string) kind[[]string] {
	token := regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$") // RFC 9110, section 5.6.2
	return listOf("a list of names, separated by commas", func(item string) (string, bool) {
		return inCase(item), token.MatchString(item)
	})
}

// listOf is a list separated by commas, each item as one returns it; or nothing.
func listOf(want string, one func(item string) (string, bool)) kind[[]string] {
	parse := func(text string) (list []string, wrong string, ok bool) {
		if text == "" {
			return nil, "", true
		}
		for item := range strings.SplitSeq(text, ",") {
			value, ok := one(trimBlanks(item))
			if !ok {
				return nil, trimBlanks(item), false
			}
			list = append(list, value)
		}
		return list, "", true
	}
	return kind[[]string]{
		want: want,
		parse: func(text string) ([]string, bool) {
			list, _, ok := parse(text)
			return list, ok
		},
		wrong: func(text string) string {
			_, item, _ := parse(text)
			return item
		},
	}
}
