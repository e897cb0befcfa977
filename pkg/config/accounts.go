package config

import (
	"encoding/base64"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
)

// Hashed reports whether a value of [admins] is a password hash in CouchDB's form.
func Hashed(text string) bool {
	for _, prefix := range []string{"-pbkdf2-", "-pbkdf2:", "-hashed-"} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

// oneOf accepts one of some words, in any case.
func oneOf(allowed ...string) kind[string] {
	return kind[string]{
		want: "one of " + strings.Join(allowed, ", "),
		parse: func(text string) (string, bool) {
			text = strings.ToLower(text)
			for _, word := range allowed {
				if text == word {
					return word, true
				}
			}
			return "", false
		},
	}
}

var handlerName = regexp.MustCompile(`^\s*\{\s*(?:chttpd|couch_httpd)_auth\s*,\s*(cookie|default|jwt|proxy)_authentication_handler\s*\}\s*(?:,|$)`)

// handlers accepts CouchDB's list of authentication handlers: cookie, default (basic
// authentication), jwt and proxy.
func handlers() kind[[]string] {
	return kind[[]string]{
		want: "a list of {chttpd_auth, NAME_authentication_handler}, where NAME is cookie, default, jwt or proxy",
		parse: func(text string) (list []string, ok bool) {
			for text != "" {
				m := handlerName.FindStringSubmatch(text)
				if m == nil {
					return nil, false
				}
				list = append(list, m[1])
				text = text[len(m[0]):]
			}
			return list, len(list) > 0
		},
	}
}

// httpToken matches the name of a header or a method (RFC 9110, section 5.6.2).
var httpToken = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// headerName accepts the name of a header.
func headerName() kind[string] {
	return kind[string]{
		want:  "the name of a header",
		parse: func(text string) (string, bool) { return text, httpToken.MatchString(text) },
	}
}

var claimList = regexp.MustCompile(`^(?:\s*(?:[a-z]+|\{\s*[a-z]+\s*,\s*"[^"]+"\s*\})\s*(?:,|$))*$`)

// claims accepts CouchDB's list of claims.
func claims() kind[string] {
	return kind[string]{
		want:  `a list of claims such as exp, {iss, "a name"}`,
		parse: func(text string) (string, bool) { return text, claimList.MatchString(text) },
	}
}

// tokenKey accepts a key of JSON web tokens. Its name begins with its kind.
func tokenKey(name string) kind[any] {
	pem := func(text string) []byte { return []byte(strings.ReplaceAll(text, `\n`, "\n")) }
	switch name[:strings.Index(name, ":")+1] {
	case "hmac:":
		return kind[any]{want: "a secret in base64", parse: func(text string) (any, bool) {
			key, err := base64.StdEncoding.DecodeString(text)
			return key, err == nil && len(key) > 0
		}}
	case "rsa:":
		return publicKey("an RSA", func(text string) (any, error) { return jwt.ParseRSAPublicKeyFromPEM(pem(text)) })
	case "ec:":
		return publicKey("an elliptic curve", func(text string) (any, error) { return jwt.ParseECPublicKeyFromPEM(pem(text)) })
	case "ed:":
		return publicKey("an Ed25519", func(text string) (any, error) { return jwt.ParseEdPublicKeyFromPEM(pem(text)) })
	}
	return kind[any]{want: "named hmac:ID, rsa:ID, ec:ID or ed:ID", parse: func(string) (any, bool) { return nil, false }}
}

func publicKey(of string, parse func(text string) (any, error)) kind[any] {
	return kind[any]{want: of + ` public key as PEM, with \n for line ends`, parse: func(text string) (any, bool) {
		key, err := parse(text)
		return key, err == nil
	}}
}

// someText accepts any text that is not empty.
func someText(want string) kind[string] {
	return kind[string]{want: want, parse: func(text string) (string, bool) { return text, text != "" }}
}

// maxDisplayName is the most bytes of a name that pages show.
const maxDisplayName = 100

// displayName accepts a short text without control characters.
func displayName() kind[string] {
	return kind[string]{
		want: "a text of at most 100 bytes without control characters",
		parse: func(text string) (string, bool) {
			return text, len(text) <= maxDisplayName && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
		},
	}
}
