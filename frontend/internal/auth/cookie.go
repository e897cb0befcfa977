package auth

import (
	"bytes"
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"
)

// CookieName is the name of the session cookie.
const CookieName = "AuthSession"

// maxCookie is the most bytes of a cookie's value. Clients keep no larger ones.
const maxCookie = 4096

// ErrCookie is the error for a malformed cookie.
var ErrCookie = errors.New("malformed AuthSession cookie")

// Cookie is a session cookie: the base64url of NAME:TIME:MAC. TIME is in seconds since the epoch,
// as hexadecimal digits. The MAC is over NAME:TIME, and its key is the server's secret and the
// account's salt, so a session ends when the password changes.
type Cookie struct {
	Name   string
	Signed time.Time
	text   string // NAME:TIME
	mac    []byte
}

// SignCookie returns the value of a cookie. algorithm is one of PRFs.
func SignCookie(name string, now time.Time, secret, salt, algorithm string) string {
	text := name + ":" + strings.ToUpper(strconv.FormatInt(now.Unix(), 16))
	value := append([]byte(text+":"), sign(text, secret, salt, algorithm)...)
	return base64.RawURLEncoding.EncodeToString(value)
}

func sign(text, secret, salt, algorithm string) []byte {
	mac := hmac.New(hashFunction(algorithm), []byte(secret+salt))
	_, _ = mac.Write([]byte(text)) // never fails
	return mac.Sum(nil)
}

// isSigned reports whether one of the algorithms gives mac for a text. Without a secret it returns false.
func isSigned(mac []byte, text, secret, salt string, algorithms []string) bool {
	if secret == "" {
		return false
	}
	verified := false
	for _, algorithm := range algorithms {
		if hmac.Equal(sign(text, secret, salt, algorithm), mac) {
			verified = true
		}
	}
	return verified
}

// ParseCookie parses the value of a cookie, which must then be verified. The error is ErrCookie.
func ParseCookie(value string) (Cookie, error) {
	if len(value) > maxCookie {
		return Cookie{}, ErrCookie
	}
	plain, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(value, "="))
	if err != nil {
		return Cookie{}, ErrCookie
	}
	parts := bytes.SplitN(plain, []byte(":"), 3)
	if len(parts) != 3 {
		return Cookie{}, ErrCookie
	}
	seconds, err := strconv.ParseInt(string(parts[1]), 16, 64)
	if err != nil || seconds < 0 {
		return Cookie{}, ErrCookie
	}
	return Cookie{
		Name: string(parts[0]), Signed: time.Unix(seconds, 0),
		text: string(plain[:len(parts[0])+1+len(parts[1])]), mac: parts[2],
	}, nil
}

// Verify reports whether the cookie was signed with the secret and the salt, by one of the
// algorithms.
func (c Cookie) Verify(secret, salt string, algorithms []string) bool {
	return isSigned(c.mac, c.text, secret, salt, algorithms)
}

// Left returns how long the cookie is still valid if it is valid for timeout after it was signed.
// It is not positive if the cookie has expired.
func (c Cookie) Left(now time.Time, timeout time.Duration) time.Duration {
	// Sub saturates for a time far from now, which is good enough.
	return timeout - now.Sub(c.Signed)
}
