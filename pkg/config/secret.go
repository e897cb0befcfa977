package config

import (
	"strings"

	"settee/pkg/redact"
)

// masked stands for a secret in everything that is printed.
const masked = "****"

// show returns a setting's text as it may be printed: a secret becomes masked, if there is
// one, and so does what stands before the host in a URL.
func show(n name, text string) string {
	if secret(n) && text != "" {
		return masked
	}
	return redact.Whole(text, masked)
}

// secret says whether nobody is to see a setting's value. It knows the settings of
// CouchDB that are, and takes those of unknown sections by their names: a value too
// many masked does no harm.
func secret(n name) bool {
	if n.section == "admins" || n.section == "jwt_keys" {
		return true
	}
	if n == CORSCredentials.def.name() { // whether there may be some
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
