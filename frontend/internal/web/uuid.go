package web

import (
	"crypto/rand"
	"encoding/hex"
)

// NewUUID returns 32 random hexadecimal digits.
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
