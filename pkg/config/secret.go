package config

import (
	"strings"

	"settee/pkg/redact"
)

// masked replaces a secret in everything that is printed.
const masked = "****"

// show returns a setting's text for printing. It masks a secret, and the user name and password
// of a URL.
func show(n name, text string) string {
	if secret(n) && text != "" {
		return masked
	}
	return redact.Whole(text, masked)
}

// secret reports whether a setting's value must not be shown. It knows CouchDB's secrets, and
// recognises others by words in the key. It may mask too much.
func secret(n name) bool {
	n, _ = current(n)
	switch n.section {
	case "admins", "jwt_keys", "replicator.watches":
		return true
	}
	switch n {
	// Booleans, the name of a header, rules, and a URL without a user.
	case IBMTokenURL.def.name(), CORSCredentials.def.name(), ProxyUseSecret.def.name(), ProxyToken.def.name(), PasswordRules.def.name():
		return false
	}
	key := strings.ToLower(n.key)
	for _, word := range []string{"password", "passwd", "secret", "token", "credential"} {
		if strings.Contains(key, word) {
			return true
		}
	}
	return false
}
