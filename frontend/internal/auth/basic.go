package auth

import (
	"encoding/base64"
	"errors"
	"strings"
)

// ErrBasic is the error for a malformed header of basic authentication.
var ErrBasic = errors.New("Authorization header has invalid base64 value") //nolint:staticcheck // CouchDB's text

// ParseBasic parses a header of basic authentication. given is false for any other header, and
// for the name _ with the password _, with which CouchDB's clients log out. The error is
// ErrBasic.
func ParseBasic(header string) (name, password string, given bool, err error) {
	encoded, ok := cutScheme(header, "Basic")
	if !ok {
		return "", "", false, nil
	}
	plain, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		if plain, err = base64.RawStdEncoding.DecodeString(encoded); err != nil {
			return "", "", false, ErrBasic
		}
	}
	name, password, given = strings.Cut(string(plain), ":")
	if !given || name == "_" && password == "_" {
		return "", "", false, nil
	}
	return name, password, true, nil
}

// cutScheme returns the part of a header after the name of a scheme, in any case.
func cutScheme(header, scheme string) (string, bool) {
	name, rest, found := strings.Cut(header, " ")
	if !found || !strings.EqualFold(name, scheme) {
		return "", false
	}
	return strings.Trim(rest, " "), true
}
