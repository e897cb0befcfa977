package auth

import (
	"crypto/hmac"
	"encoding/hex"
)

// CheckProxyToken reports whether a token is the proof of a proxy that it has authenticated the user of a name: the HMAC
// of the name with the secret, by one of the algorithms, in hexadecimal digits. Without a secret there is no proof.
func CheckProxyToken(token, name, secret string, algorithms []string) bool {
	given, err := hex.DecodeString(token)
	if err != nil || secret == "" {
		return false
	}
	verified := false
	for _, algorithm := range algorithms {
		if hmac.Equal(sign(name, secret, "", algorithm), given) {
			verified = true
		}
	}
	return verified
}
