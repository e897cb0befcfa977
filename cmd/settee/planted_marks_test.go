package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// marks are secrets planted wherever there can be one, and searched for wherever there must be none.
type marks struct {
	mu     sync.Mutex
	fields []string
}

// plant returns a secret for a field.
func (m *marks) plant(field string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fields = append(m.fields, field)
	return fmt.Sprintf("SECRET-%s-%d", field, len(m.fields))
}

// all returns the fields, and their secrets.
func (m *marks) all() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	secrets := map[string]string{}
	for i, field := range m.fields {
		secrets[field] = fmt.Sprintf("SECRET-%s-%d", field, i+1)
	}
	return secrets
}

// in returns the fields whose secrets a text contains.
func (m *marks) in(text string) (found []string) {
	lower := strings.ToLower(text)
	if !spelled(text, lower, "SECRET-") { // with which all begin
		return nil
	}
	for field, secret := range m.all() {
		if spelled(text, lower, secret) {
			found = append(found, field)
		}
	}
	slices.Sort(found)
	return found
}

// spelled reports whether a text contains a secret: as it is, in any case, in base64 at any offset, in hexadecimal, and as fmt
// prints bytes.
func spelled(text, lower, secret string) bool {
	decimal := strings.Trim(fmt.Sprint([]byte(secret)), "[]")
	for _, s := range []string{strings.ToLower(secret), hex.EncodeToString([]byte(secret)), decimal} {
		if strings.Contains(lower, s) {
			return true
		}
	}
	return slices.ContainsFunc(inBase64(secret), func(s string) bool { return strings.Contains(text, s) })
}

// inBase64 returns the base64 forms of a text at any position in another text.
func inBase64(text string) (out []string) {
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for shift := range 3 {
			coded := encoding.EncodeToString([]byte(strings.Repeat("x", shift) + text))
			begin := (shift*8 + 5) / 6 // the first character that depends on text alone
			out = append(out, coded[begin:len(coded)-2])
		}
	}
	return out
}

func TestMarksAreFound(t *testing.T) {
	t.Parallel()
	var m marks
	secret := m.plant("field")
	for _, text := range []string{
		secret, strings.ToLower(secret), base64.StdEncoding.EncodeToString([]byte("user:" + secret)), base64.URLEncoding.EncodeToString([]byte("a" + secret + "bc")),
		base64.StdEncoding.EncodeToString([]byte("ab" + secret)), fmt.Sprintf("%x", secret), fmt.Sprintf("%v", []byte("x"+secret)), url.QueryEscape(secret),
	} {
		require.Equal(t, []string{"field"}, m.in("around "+text+" it"), text)
	}
	require.Empty(t, m.in("SECRET-other-1 "+base64.StdEncoding.EncodeToString([]byte("user:SECRET"))))
}
