package auth_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/auth"
)

// keyring has a key of each kind.
type keyring struct {
	private map[string]any
	tokens  auth.Tokens
}

func newKeyring(t testing.TB) keyring {
	t.Helper()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	edPublic, edKey, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	k := keyring{private: map[string]any{"rsa": rsaKey, "ec": ecKey, "ed": edKey, "hmac": []byte("a secret")}}
	k.tokens = auth.Tokens{RolesName: "_couchdb.roles", Required: []auth.Claim{{Name: "exp"}}, Keys: map[string]any{
		"hmac:_default": []byte("a secret"), "rsa:_default": &rsaKey.PublicKey, "ec:_default": &ecKey.PublicKey, "ed:_default": edPublic,
	}}
	return k
}

func sign(t testing.TB, method jwt.SigningMethod, key any, header map[string]any, claims jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	for name, value := range header {
		token.Header[name] = value
	}
	text, err := token.SignedString(key)
	require.NoError(t, err)
	return text
}

var good = jwt.MapClaims{"sub": "ann", "exp": signed.Add(time.Hour).Unix(), "_couchdb.roles": []string{"staff", "_admin"}}

func TestToken(t *testing.T) {
	t.Parallel()
	k := newKeyring(t)
	for method, kind := range map[jwt.SigningMethod]string{
		jwt.SigningMethodHS256: "hmac", jwt.SigningMethodHS384: "hmac", jwt.SigningMethodHS512: "hmac",
		jwt.SigningMethodRS256: "rsa", jwt.SigningMethodRS384: "rsa", jwt.SigningMethodRS512: "rsa",
		jwt.SigningMethodES256: "ec", jwt.SigningMethodEdDSA: "ed",
	} {
		token := sign(t, method, k.private[kind], nil, good)
		user, err := k.tokens.Verify(token, signed)
		require.NoError(t, err, method.Alg())
		assert.Equal(t, auth.User{Name: "ann", Roles: []string{"staff", "_admin"}}, user)

		_, err = k.tokens.Verify(token, signed.Add(time.Hour))
		require.EqualError(t, err, "exp not in future")
		parts := strings.Split(token, ".")
		forged := parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"root","exp":9999999999}`)) + "." + parts[2]
		_, err = k.tokens.Verify(forged, signed)
		require.EqualError(t, err, "Bad signature in authentication token")
	}
}

func TestRefusedToken(t *testing.T) {
	t.Parallel()
	k := newKeyring(t)
	k.tokens.Required = []auth.Claim{{Name: "exp"}, {Name: "iss", Value: "me"}}
	with := func(changes jwt.MapClaims) jwt.MapClaims {
		claims := jwt.MapClaims{"iss": "me"}
		for name, value := range good {
			claims[name] = value
		}
		for name, value := range changes {
			if claims[name] = value; value == nil {
				delete(claims, name)
			}
		}
		return claims
	}
	hmac := func(header map[string]any, changes jwt.MapClaims) string {
		return sign(t, jwt.SigningMethodHS256, k.private["hmac"], header, with(changes))
	}
	none := jwt.NewWithClaims(jwt.SigningMethodNone, with(nil))
	unsigned, err := none.SignedString(jwt.UnsafeAllowNoneSignatureType)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(k.tokens.Keys["rsa:_default"])
	require.NoError(t, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	for reason, token := range map[string]string{
		"Malformed authentication token":        "a.b.c",
		"Malformed authentication token ":       "a.b",
		"Malformed authentication token  ":      strings.Repeat("a", 20_000) + ".b.c",
		"Invalid alg header parameter":          unsigned,
		"Unknown kid":                           hmac(map[string]any{"kid": "other"}, nil),
		"Unknown kid ":                          hmac(map[string]any{"kid": 1}, nil),
		"Invalid crit header parameter":         hmac(map[string]any{"crit": []string{"exp"}}, nil),
		"Missing exp claim":                     hmac(nil, jwt.MapClaims{"exp": nil}),
		"Invalid exp claim":                     hmac(nil, jwt.MapClaims{"exp": "tomorrow"}),
		"Invalid exp claim ":                    hmac(nil, jwt.MapClaims{"exp": 1e300}),
		"nbf not in past":                       hmac(nil, jwt.MapClaims{"nbf": signed.Add(time.Minute).Unix()}),
		"Missing iss claim":                     hmac(nil, jwt.MapClaims{"iss": nil}),
		"Invalid iss claim":                     hmac(nil, jwt.MapClaims{"iss": "you"}),
		"Invalid iss claim ":                    hmac(nil, jwt.MapClaims{"iss": []string{"me"}}),
		"Token missing sub claim.":              hmac(nil, jwt.MapClaims{"sub": nil}),
		"Token missing sub claim. ":             hmac(nil, jwt.MapClaims{"sub": 7}),
		"Malformed token":                       hmac(nil, jwt.MapClaims{"_couchdb.roles": []any{"a", 1}}),
		"Malformed token ":                      hmac(nil, jwt.MapClaims{"_couchdb.roles": true}),
		"Bad signature in authentication token": sign(t, jwt.SigningMethodHS256, []byte("another"), nil, with(nil)),
		// A public key is not a secret, whatever the header says.
		"Bad signature in authentication token ": sign(t, jwt.SigningMethodHS256, public, nil, with(nil)),
	} {
		_, err := k.tokens.Verify(token, signed)
		require.EqualError(t, err, strings.TrimRight(reason, " "), token)
	}
	user, err := k.tokens.Verify(hmac(nil, nil), signed)
	require.NoError(t, err)
	assert.Equal(t, "ann", user.Name)
}

// An algorithm of ECDSA has one curve (RFC 7518, section 3.4). The token's signature is valid for the key, and has the
// length that the algorithm asks for.
func TestTokenOfAnotherCurve(t *testing.T) {
	t.Parallel()
	k := newKeyring(t)
	text, err := jwt.NewWithClaims(jwt.SigningMethodES384, good).SigningString()
	require.NoError(t, err)
	sum := sha512.Sum384([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, k.private["ec"].(*ecdsa.PrivateKey), sum[:])
	require.NoError(t, err)
	signature := append(r.FillBytes(make([]byte, 48)), s.FillBytes(make([]byte, 48))...)
	_, err = k.tokens.Verify(text+"."+base64.RawURLEncoding.EncodeToString(signature), signed)
	require.EqualError(t, err, "Invalid alg header parameter")
}

func TestRoles(t *testing.T) {
	t.Parallel()
	k := newKeyring(t)
	k.tokens.Required = nil
	for _, test := range []struct {
		path  []string
		claim any
		want  []string
	}{
		{nil, "a, b,,c ", []string{"a", "b", "c"}},
		{nil, []string{}, nil},
		{[]string{"my.app", "roles"}, nil, []string{"deep"}},
		{[]string{"nowhere", "roles"}, nil, nil},
	} {
		k.tokens.RolesPath = test.path
		claims := jwt.MapClaims{"sub": "ann", "my.app": map[string]any{"roles": []string{"deep"}}}
		if test.claim != nil {
			claims["_couchdb.roles"] = test.claim
		}
		user, err := k.tokens.Verify(sign(t, jwt.SigningMethodHS256, k.private["hmac"], nil, claims), signed)
		require.NoError(t, err)
		assert.Equal(t, test.want, user.Roles, test.path)
	}
}

func TestParseClaims(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]auth.Claim{
		"":                       nil,
		"exp":                    {{Name: "exp"}},
		`exp, {iss, "a, b"},kid`: {{Name: "exp"}, {Name: "iss", Value: "a, b"}, {Name: "kid"}},
		` {  iss ,"x" } `:        {{Name: "iss", Value: "x"}},
	} {
		claims, ok := auth.ParseClaims(text)
		assert.True(t, ok, text)
		assert.Equal(t, want, claims, text)
	}
	for _, text := range []string{"EXP", "exp;iat", `{iss}`, `{iss, "x"`, `{iss, x}`, "exp,,iat"} {
		_, ok := auth.ParseClaims(text)
		assert.False(t, ok, text)
	}
}

func TestTokensDoNotPrintKeys(t *testing.T) {
	t.Parallel()
	tokens := auth.Tokens{Keys: map[string]any{"hmac:a": []byte("s3cret")}}
	text, err := json.Marshal(tokens)
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %s %q %d", tokens, &tokens, tokens, tokens, &tokens, tokens)+string(text), "s3cret")
}
