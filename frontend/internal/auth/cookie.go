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

// CookieName is what the cookie of a session is called.
const CookieName = "AuthSession"

// maxCookie is how long the value of a cookie may be, in bytes: clients keep no more.
const maxCookie = 4096

// ErrCookie says that a cookie is none that any server has made.
var ErrCookie = errors.New("malformed AuthSession cookie")

// Cookie is a session as its client keeps it: the base64url of NAME:TIME:MAC, where the time
// is seconds since the epoch in hexadecimal digits, and the MAC is made of what stands before it,
// with the secret of the server and the salt of the account as the key. A session ends with the
// password.
type Cookie struct {
	Name   string
	Signed time.Time
	text   string // NAME:TIME
	mac    []byte
}

// SignCookie returns the value of a cookie. The algorithm is one of PRFs.
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

// ParseCookie reads the value of a cookie, of which nothing is to be believed before it is
// verified. The error is ErrCookie.
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

// Verify reports whether the cookie was signed with the secret and the salt, with any of the
// algorithms.
func (c Cookie) Verify(secret, salt string, algorithms []string) bool {
	if secret == "" {
		return false
	}
	verified := false
	for _, algorithm := range algorithms {
		if hmac.Equal(sign(c.text, secret, salt, algorithm), c.mac) {
			verified = true
		}
	}
	return verified
}

// Left is how long the cookie is good for yet, if that is timeout from when it was signed: not
// positive where it has expired.
func (c Cookie) Left(now time.Time, timeout time.Duration) time.Duration {
	// Of a time that is far from now the difference is cut, and as good.
	return timeout - now.Sub(c.Signed)
}
