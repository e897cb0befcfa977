package auth

import "encoding/hex"

// CheckProxyToken reports whether a token is the proof of a proxy that it has authenticated the user of a name: the HMAC
// of the name with the secret, by one of the algorithms, in hexadecimal digits. Without a secret there is no proof.
func CheckProxyToken(token, name, secret string, algorithms []string) bool {
	given, err := hex.DecodeString(token)
	return err == nil && isSigned(given, name, secret, "", algorithms)
}
