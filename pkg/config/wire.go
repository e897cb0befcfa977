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

// addressOrNone accepts what ipAddress accepts, or nothing.
func addressOrNone() kind[netip.Addr] {
	address := ipAddress()
	return kind[netip.Addr]{want: address.want, parse: func(text string) (netip.Addr, bool) {
		if text == "" {
			return netip.Addr{}, true
		}
		return address.parse(text)
	}}
}

// terms splits an Erlang list of atoms and strings, with or without brackets and quotes.
func terms(text string) []string {
	text = trimBlanks(text)
	if inner, ok := strings.CutPrefix(text, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok {
			text = inner
		}
	}
	list := items(text)
	for i, item := range list {
		for _, quote := range []string{`'`, `"`} {
			if inner, ok := strings.CutPrefix(item, quote); ok {
				if inner, ok = strings.CutSuffix(inner, quote); ok {
					item = inner
				}
			}
		}
		list[i] = item
	}
	return list
}

// eachOf accepts a list of names and returns their values, sorted and without duplicates.
func eachOf[T cmp.Ordered](want string, values map[string]T) kind[[]T] {
	each := list(want, terms, func(item string) (T, bool) {
		value, ok := values[item]
		return value, ok
	})
	parse := each.parse
	each.parse = func(text string) ([]T, bool) {
		list, ok := parse(text)
		slices.Sort(list)
		return slices.Compact(list), ok
	}
	return each
}

// tlsVersions accepts the versions of TLS that are considered secure.
func tlsVersions() kind[[]uint16] {
	return eachOf("a list of versions from 'tlsv1.2' and 'tlsv1.3', such as ['tlsv1.2', 'tlsv1.3']",
		map[string]uint16{"tlsv1.2": tls.VersionTLS12, "tlsv1.3": tls.VersionTLS13})
}

// tlsCiphers accepts the ciphers that crypto/tls considers secure, by OpenSSL's names or Go's.
// Ciphers of TLS 1.3 are accepted too.
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
	ciphers := eachOf("a list of ciphers from "+strings.Join(names, ", "), byName)
	parse := ciphers.parse
	ciphers.parse = func(text string) ([]uint16, bool) {
		if text == "" {
			return nil, true
		}
		return parse(text)
	}
	return ciphers
}

// opensslName returns OpenSSL's name of a cipher: ECDHE-RSA-AES128-GCM-SHA256 for
// TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256.
func opensslName(name string) string {
	if before, ok := strings.CutSuffix(name, "_CHACHA20_POLY1305_SHA256"); ok {
		name = before + "_CHACHA20_POLY1305"
	}
	return strings.NewReplacer("TLS_", "", "_WITH", "", "AES_", "AES", "_CBC", "", "_", "-").Replace(name)
}

// webOrigins accepts a list of origins of pages, * for all of them, or nothing.
func webOrigins() kind[[]string] {
	return list("a list of origins, separated by commas, such as https://app.example.com, http://localhost:8080; or *",
		itemsOrNone, func(item string) (string, bool) {
			item = strings.ToLower(item)
			u, err := url.Parse(item)
			plain := err == nil && u.Scheme != "" && u.Host != "" && item == u.Scheme+"://"+u.Host
			return item, item == "*" || plain
		})
}

// tokens accepts a list of header or method names, or nothing. inCase converts a name to the case
// that it is compared in.
func tokens(inCase func(string) string) kind[[]string] {
	token := regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$") // RFC 9110, section 5.6.2
	return list("a list of names, separated by commas", itemsOrNone, func(item string) (string, bool) {
		return inCase(item), token.MatchString(item)
	})
}
