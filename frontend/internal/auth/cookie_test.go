package auth_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/auth"
)

var (
	signed     = time.Unix(0x69210A4F, 0)
	algorithms = []string{"sha256", "sha"}
)

func TestCookie(t *testing.T) {
	t.Parallel()
	for algorithm, want := range map[string]string{"sha256": "YWRtaW46NjkyMTBBNEY6JtaBkVw-aTekeTl1lnoIj0OZQN6RpKt82F3lGEymqAE", "sha": "YWRtaW46NjkyMTBBNEY6bXPa7D4yTtJhvo5aTDGPJ0SU_7A"} {
		value := auth.SignCookie("admin", signed, "secret", "salt", algorithm)
		assert.Equal(t, want, value)
		c, err := auth.ParseCookie(value)
		require.NoError(t, err)
		assert.Equal(t, "admin", c.Name)
		assert.Equal(t, signed, c.Signed)
		assert.True(t, c.Verify("secret", "salt", algorithms))
		assert.False(t, c.Verify("secret", "salt", []string{"sha512"}))
		assert.False(t, c.Verify("secret2", "salt", algorithms))
		assert.False(t, c.Verify("secret", "", algorithms), "of an account with another password")
		assert.Equal(t, 10*time.Minute, c.Left(signed, 10*time.Minute))
		assert.Equal(t, -time.Second, c.Left(signed.Add(601*time.Second), 10*time.Minute))
	}
	c, err := auth.ParseCookie(auth.SignCookie("admin", signed, "", "", "sha"))
	require.NoError(t, err)
	assert.False(t, c.Verify("", "", algorithms), "without a secret no session is valid")
}

// Any change of a cookie invalidates it.
func TestForgedCookie(t *testing.T) {
	t.Parallel()
	plain, err := base64.RawURLEncoding.DecodeString(auth.SignCookie("admin", signed, "secret", "salt", "sha256"))
	require.NoError(t, err)
	for i := range plain {
		forged := append([]byte(nil), plain...)
		forged[i] ^= 1
		c, err := auth.ParseCookie(base64.RawURLEncoding.EncodeToString(forged))
		if err == nil {
			assert.False(t, c.Verify("secret", "salt", algorithms), "byte %d", i)
		}
	}
	for _, bad := range []string{"", "!", "YWRtaW4", "YWRtaW46Ng", base64.RawURLEncoding.EncodeToString([]byte("a:x:m")), strings.Repeat("YTox", 2000)} {
		_, err := auth.ParseCookie(bad)
		require.ErrorIs(t, err, auth.ErrCookie, bad)
	}
}

func TestBasic(t *testing.T) {
	t.Parallel()
	encode := base64.StdEncoding.EncodeToString
	for header, want := range map[string][2]string{
		"Basic " + encode([]byte("foo:bar")):                     {"foo", "bar"},
		"basic " + encode([]byte("foo:b:ar")):                    {"foo", "b:ar"},
		"Basic  " + encode([]byte("ü:")):                         {"ü", ""},
		"Basic " + encode([]byte(":x")):                          {"", "x"},
		"Basic " + strings.TrimRight(encode([]byte("a:b")), "="): {"a", "b"},
	} {
		name, password, given, err := auth.ParseBasic(header)
		require.NoError(t, err, header)
		assert.True(t, given, header)
		assert.Equal(t, want, [2]string{name, password}, header)
	}
	for _, header := range []string{"", "Basic", "Bearer x.y.z", "Basic " + encode([]byte("foo")), "Basic " + encode([]byte("_:_"))} {
		_, _, given, err := auth.ParseBasic(header)
		require.NoError(t, err, header)
		assert.False(t, given, header)
	}
	for _, header := range []string{"Basic x", "Basic XX=", "Basic Zm9v!"} {
		_, _, _, err := auth.ParseBasic(header)
		require.ErrorIs(t, err, auth.ErrBasic, header)
	}
}
