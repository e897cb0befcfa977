package config

import (
	"cmp"
	"crypto/tls"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// terms splits an Erlang list of atoms, strings and tuples, with or without brackets and quotes, or one of OpenSSL's, whose
// items are separated by colons.
func terms(text string) []string {
	text = trimBlanks(text)
	if inner, ok := strings.CutPrefix(text, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok {
			text = inner
		}
	}
	list := regexp.MustCompile(`(?:\{[^{}]*\}|[^,:{}])+`).FindAllString(text, -1)
	for i, item := range list {
		item = trimBlanks(item)
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

// amongst accepts a list of names and returns the values of those that it knows, sorted and without duplicates. It ignores
// the others. No value is left of a list without any that it knows.
func amongst[T cmp.Ordered](want string, values map[string]T) kind[[]T] {
	return kind[[]T]{
		want: want,
		parse: func(text string) (list []T, ok bool) {
			for _, item := range terms(text) {
				if value, known := values[item]; known {
					list = append(list, value)
				}
			}
			slices.Sort(list)
			return slices.Compact(list), true
		},
		instead: func(text string) string {
			var unknown []string
			for _, item := range terms(text) {
				if _, known := values[item]; !known && item != "" {
					unknown = append(unknown, strconv.Quote(item))
				}
			}
			const most = 5
			more := ""
			if len(unknown) > most {
				unknown, more = unknown[:most], ", ..."
			}
			if len(unknown) == 0 {
				return ""
			}
			return "ignored, because it is not known or not secure: " + strings.Join(unknown, ", ") + more
		},
	}
}

// tlsVersions accepts versions of TLS. It ignores those that are not considered secure.
func tlsVersions() kind[[]uint16] {
	return amongst("a list of versions from 'tlsv1.2' and 'tlsv1.3', such as ['tlsv1.2', 'tlsv1.3']",
		map[string]uint16{"tlsv1.2": tls.VersionTLS12, "tlsv1.3": tls.VersionTLS13})
}

// tlsCiphers accepts ciphers, by OpenSSL's names or Go's. It ignores those that crypto/tls does not have or does not
// consider secure, and Erlang's tuples.
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
	return amongst("a list of ciphers from "+strings.Join(names, ", "), byName)
}

// opensslName returns OpenSSL's name of a cipher: ECDHE-RSA-AES128-GCM-SHA256 for
// TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256.
func opensslName(name string) string {
	if before, ok := strings.CutSuffix(name, "_CHACHA20_POLY1305_SHA256"); ok {
		name = before + "_CHACHA20_POLY1305"
	}
	return strings.NewReplacer("TLS_", "", "_WITH", "", "AES_", "AES", "_CBC", "", "_", "-").Replace(name)
}

// webOrigins accepts a list of origins of pages, * for all origins, or nothing. Pages of some applications have the origin
// file://.
func webOrigins() kind[[]string] {
	return list("a list of origins, separated by commas, such as https://app.example.com, http://localhost:8080; or *",
		entries, func(item string) (string, bool) {
			item = strings.ToLower(item)
			u, err := url.Parse(item)
			plain := err == nil && u.Scheme != "" && u.Host != "" && item == u.Scheme+"://"+u.Host
			return item, item == "*" || item == "file://" || plain
		})
}

// tokens accepts a list of header or method names, or nothing. inCase converts a name to the case
// that it is compared in.
func tokens(inCase func(string) string) kind[[]string] {
	return list("a list of names, separated by commas", entries, func(item string) (string, bool) {
		return inCase(item), httpToken.MatchString(item)
	})
}
