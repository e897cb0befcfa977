package auth_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/auth"
	"settee/internal/costtest"
)

// FuzzCookie asserts that no bytes panic or cost much, and that a cookie is valid only with the
// text that was signed.
func FuzzCookie(f *testing.F) {
	const secret = "a secret"
	algorithms := []string{"sha256", "sha"}
	made := auth.SignCookie("ann", signed, secret, "salt", "sha256")
	for _, seed := range []string{
		"", "=", "nonsense", made, made + "==", auth.SignCookie("", signed, secret, "salt", "sha"),
		auth.SignCookie("a:b", time.Unix(1<<62, 0), secret, "salt", "sha512"),
		base64.RawURLEncoding.EncodeToString([]byte("ann:-1:x")), base64.RawURLEncoding.EncodeToString([]byte("::")),
		strings.Repeat("A", 5000), strings.Repeat("=", 5000),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		var cookie auth.Cookie
		var err error
		var good bool
		costtest.Memory(8).Check(t, min(len(value), 4096), func() {
			if cookie, err = auth.ParseCookie(value); err == nil {
				good = cookie.Verify(secret, "salt", algorithms)
			}
		})
		if err != nil {
			require.ErrorIs(t, err, auth.ErrCookie)
			return
		}
		require.NotContains(t, cookie.Name, ":")
		_ = cookie.Left(signed, time.Hour)
		if !good {
			return
		}
		// A valid cookie is one that was signed, except for the spelling of the digits of its
		// time.
		plain, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(value, "="))
		require.NoError(t, err)
		made := slices.ContainsFunc(algorithms, func(algorithm string) bool {
			again, err := base64.RawURLEncoding.DecodeString(auth.SignCookie(cookie.Name, cookie.Signed, secret, "salt", algorithm))
			return err == nil && string(again) == string(plain)
		})
		require.True(t, made, "%q", value)
	})
}

// FuzzToken asserts that no text panics or costs much, and that a token is accepted only with a
// signature by its key.
func FuzzToken(f *testing.F) {
	keys := newKeyring(f)
	f.Add(sign(f, jwt.SigningMethodHS256, keys.private["hmac"], nil, good))
	f.Add(sign(f, jwt.SigningMethodHS512, keys.private["hmac"], map[string]any{"kid": "x"}, good))
	f.Add(sign(f, jwt.SigningMethodRS256, keys.private["rsa"], nil, good))
	f.Add(sign(f, jwt.SigningMethodES256, keys.private["ec"], nil, good))
	f.Add(sign(f, jwt.SigningMethodEdDSA, keys.private["ed"], nil, good))
	f.Add(sign(f, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, good))
	deep := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":` + strings.Repeat("[", 3000)))
	many := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","a":[` + strings.Repeat("[],", 3000) + `0]}`))
	for _, seed := range []string{"", ".", "..", "...", "a.b.c", "e30.e30.", deep + "..", many + ".e30.", many + "." + many + "." + deep, strings.Repeat(".", 20_000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var user auth.User
		var err error
		costtest.Memory(100).Check(t, min(len(text), 16<<10), func() { user, err = keys.tokens.Verify(text, signed) })
		if err != nil {
			var refused *auth.TokenError
			require.ErrorAs(t, err, &refused)
			return
		}
		require.NotEmpty(t, user.Name)
		// The library's own check, without this package's.
		_, err = jwt.Parse(text, func(token *jwt.Token) (any, error) {
			switch token.Method.(type) {
			case *jwt.SigningMethodHMAC:
				return keys.private["hmac"], nil
			case *jwt.SigningMethodRSA:
				return keys.tokens.Keys["rsa:_default"], nil
			case *jwt.SigningMethodECDSA:
				return keys.tokens.Keys["ec:_default"], nil
			case *jwt.SigningMethodEd25519:
				return keys.tokens.Keys["ed:_default"], nil
			}
			return nil, errors.New("no such key")
		}, jwt.WithoutClaimsValidation())
		require.NoError(t, err)
	})
}

// FuzzSignedToken asserts the same of headers and claims with a valid signature.
func FuzzSignedToken(f *testing.F) {
	tokens := auth.Tokens{
		Keys: map[string]any{"hmac:_default": []byte("a secret")}, RolesPath: []string{"a", "b.c"},
		Required: []auth.Claim{{Name: "typ", Value: "JWT"}, {Name: "exp"}},
	}
	for _, claims := range []string{
		`{"sub":"ann","exp":4102444800,"a":{"b.c":["staff"]}}`, `{"sub":"ann","exp":1e999999}`, `{"sub":"ann","exp":"7"}`,
		`{"sub":"ann","exp":` + strings.Repeat("9", 5000) + `}`, `{"sub":"ann","exp":4102444800.5,"nbf":-1}`, `{"sub":["ann"],"exp":4102444800}`,
		`{"sub":"ann","exp":4102444800,"a":[]}`, `{"sub":"ann","exp":4102444800,"a":{"b.c":"x,y"}}`, `{"sub":"ann","exp":4102444800,"a":{"b.c":[7]}}`,
		`null`, `[]`, `7`, ``, `{`, `{"sub":"ann","exp":4102444800}{}`,
	} {
		f.Add(`{"alg":"HS256","typ":"JWT"}`, claims)
	}
	for _, header := range []string{`{"alg":"HS256","typ":"JWT","crit":["x"]}`, `{"alg":"HS256","typ":{}}`, `{"alg":["HS256"]}`, `{"alg":"HS256","kid":7}`, `null`, ``} {
		f.Add(header, `{"sub":"ann","exp":4102444800}`)
	}
	f.Fuzz(func(t *testing.T, header, claims string) {
		text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
		mac := hmac.New(sha256.New, []byte("a secret"))
		_, _ = mac.Write([]byte(text)) // never fails
		text += "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
		var user auth.User
		var err error
		costtest.Memory(100).Check(t, min(len(text), 16<<10), func() { user, err = tokens.Verify(text, signed) })
		var refused *auth.TokenError
		if err != nil {
			require.ErrorAs(t, err, &refused)
			return
		}
		require.NotEmpty(t, user.Name)
		var read map[string]any
		require.NoError(t, json.NewDecoder(strings.NewReader(claims)).Decode(&read))
		require.Greater(t, read["exp"], float64(signed.Unix()))
	})
}

// FuzzBasic asserts that a header parses to what it encodes.
func FuzzBasic(f *testing.F) {
	for _, seed := range []string{
		"", "Basic", "Basic ", "basic YTpi", "BASIC  YTpi ", "Basic YTpiOmM=", "Basic YTpiOmM", "Basic !", "Basic Xzpf", "Bearer a.b.c", "Basic Og==",
		"Basic " + strings.Repeat("YTpi", 10_000), "Basic " + strings.Repeat("=", 10_000), "Basic YQ==",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		var name, password string
		var given bool
		var err error
		costtest.Memory(8).Check(t, len(header), func() { name, password, given, err = auth.ParseBasic(header) })
		if err != nil {
			require.ErrorIs(t, err, auth.ErrBasic)
		}
		if !given || err != nil {
			require.Empty(t, name+password)
			return
		}
		require.NotContains(t, name, ":")
		_, again, found := strings.Cut(header, " ")
		require.True(t, found)
		encoded := strings.NewReplacer(" ", "", "\r", "", "\n", "", "=", "").Replace(again)
		plain, err := base64.RawStdEncoding.DecodeString(encoded)
		require.NoError(t, err)
		require.Equal(t, name+":"+password, string(plain))
		token, given := auth.ParseBearer(header)
		require.False(t, given, token)
	})
}

// FuzzHash asserts that a hash in any document or value of [admins] is refused, or can be checked
// and stored, and that parsing does not compute the iterations that it claims.
func FuzzHash(f *testing.F) {
	for _, text := range slices.Sorted(maps.Values(admins)) {
		f.Add(text)
	}
	for _, seed := range []string{
		"", "password", "-pbkdf2-", "-hashed-,", "-pbkdf2:sha256-,,", "-pbkdf2:md5-00,salt,1",
		"-pbkdf2:sha256-120fb6cffcf8b32c43e7225256c4f837a86548c92ccc35480805987cb70be17b,salt,2147483648",
		"-pbkdf2:sha256-120fb6cffcf8b32c43e7225256c4f837a86548c92ccc35480805987cb70be17b,salt,99999999999999999999",
		`{"password_scheme":"simple","salt":"salt","password_sha":"c88e9c67041a74e0357befdff93f87dde0904214"}`,
		`{"password_scheme":"pbkdf2","salt":"salt","iterations":1000,"derived_key":"6e88be8bad7eae9d9e10aa061224034fed48d03f"}`,
		`{"password_scheme":"simple+pbkdf2","pbkdf2_prf":"sha","salt":"salt","iterations":2147483648,"derived_key":"6e88be8bad7eae9d9e10aa061224034fed48d03f"}`,
		`{"password_scheme":"pbkdf2","iterations":-1,"derived_key":""}`, `{"password_scheme":null,"salt":7,"password_sha":["x"]}`,
		`{"password_scheme":"pbkdf2","iterations":1e3,"salt":"` + strings.Repeat("s", 5000) + `"}`,
		`{"totp":{"key":"GEZDGNBVGY3TQOJQ","algorithm":"sha512","length":8}}`, `{"totp":{"key":"` + strings.Repeat("A", 5000) + `","length":2147483648}}`,
		strings.Repeat("[", 5000), `{"totp":` + strings.Repeat(`{"key":`, 2000), `{"a":1,"a":2}`, `null`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var fromConfig, fromDocument auth.Hash
		var hashed, inDocument bool
		var err error
		costtest.Memory(40).Check(t, len(text), func() {
			fromConfig, hashed, err = auth.ParseAdmin(text)
			var members map[string]json.RawMessage
			if json.Unmarshal([]byte(text), &members) != nil {
				return
			}
			fromDocument, inDocument = auth.ParseUser(members)
			if second, given := auth.ParseOneTime(members); given {
				second.Verify("000000", signed)
			}
		})
		if err != nil {
			require.ErrorIs(t, err, auth.ErrHash)
		}
		if hashed && err == nil {
			again, _, err := auth.ParseAdmin(fromConfig.String())
			require.NoError(t, err)
			require.Equal(t, fromConfig, again)
			checkHash(t, fromConfig)
		}
		if inDocument {
			text, err := json.Marshal(members(fromDocument))
			require.NoError(t, err)
			var read map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(text, &read))
			again, ok := auth.ParseUser(read)
			require.True(t, ok)
			require.Equal(t, fromDocument, again)
			checkHash(t, fromDocument)
		}
	})
}

func members(h auth.Hash) map[string]any {
	all := map[string]any{}
	for _, m := range h.Members() {
		all[m.Name] = m.Value
	}
	return all
}

// checkHash asserts that passwords can be checked with a hash, and that it can be renewed. The
// caller bounds the iterations.
func checkHash(t *testing.T, h auth.Hash) {
	t.Helper()
	require.NotEmpty(t, h.Key)
	require.GreaterOrEqual(t, h.Iterations, 0)
	h.Iterations = min(h.Iterations, 20)
	h.Verify("")
	renewed := h.Renew("password", "sha256", 5)
	require.False(t, renewed.IsWeaker("sha256", 5))
	require.Equal(t, renewed, h.Renew("password", "sha256", 5))
	require.True(t, renewed.Verify("password"))
	require.False(t, renewed.Verify("passwort"))
	if !h.HasStrongSalt() {
		return
	}
	again, hashed, err := auth.ParseAdmin(renewed.String())
	require.NoError(t, err)
	require.True(t, hashed)
	require.Equal(t, renewed, again)
}
