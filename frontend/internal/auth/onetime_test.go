package auth_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/auth"
)

func oneTime(t *testing.T, totp string) (auth.OneTime, bool) {
	t.Helper()
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(`{"totp":`+totp+`}`), &members))
	return auth.ParseOneTime(members)
}

// RFC 6238, appendix B.
func TestOneTime(t *testing.T) {
	t.Parallel()
	const (
		sha1   = `{"key":"GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ","length":8}`
		sha256 = `{"key":"GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZA====","algorithm":"sha256","length":8}`
		sha512 = `{"key":"GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNA","algorithm":"sha512","length":8}`
	)
	for _, test := range []struct {
		totp     string
		at       int64
		password string
	}{
		{sha1, 59, "94287082"}, {sha1, 1111111109, "07081804"}, {sha1, 1234567890, "89005924"}, {sha1, 20000000000, "65353130"},
		{sha256, 59, "46119246"}, {sha256, 1111111109, "68084774"}, {sha256, 20000000000, "77737706"},
		{sha512, 59, "90693936"}, {sha512, 1111111109, "25091201"}, {sha512, 20000000000, "47863826"},
		{`{"key":"GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"}`, 59, "287082"},
		{`{"key":"GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ","length":7}`, 59, "4287082"},
	} {
		o, given := oneTime(t, test.totp)
		require.True(t, given)
		for shift, want := range map[int64]bool{-60: false, -30: true, 0: true, 30: true, 60: false} {
			step, right := o.Verify(test.password, time.Unix(test.at+shift, 0))
			assert.Equal(t, want, right, "%s at %d", test.password, test.at+shift)
			if right {
				assert.Equal(t, test.at/30, step)
			}
		}
		for _, wrong := range []string{"", "0", test.password + "0", test.password[1:], "00000000"} {
			_, right := o.Verify(wrong, time.Unix(test.at, 0))
			assert.False(t, right)
		}
	}
}

func TestMalformedOneTime(t *testing.T) {
	t.Parallel()
	for _, totp := range []string{
		`null`, `7`, `{}`, `[]`, `{"key":""}`, `{"key":null}`, `{"key":"1"}`, `{"key":"GE","length":5}`, `{"key":"GE","length":9}`,
		`{"key":"GE","length":"6"}`, `{"key":"GE","algorithm":"md5"}`, `{"key":"GE","algorithm":null}`, `{"key":"====="}`,
	} {
		o, given := oneTime(t, totp)
		assert.True(t, given, totp)
		for _, password := range []string{"", "000000"} {
			_, right := o.Verify(password, time.Unix(59, 0))
			assert.False(t, right, totp)
		}
	}
	_, given := auth.ParseOneTime(nil)
	assert.False(t, given)
}
