package config_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/config"
)

// A key of JSON web tokens must be of the kind that its name begins with.
func TestTokenKeys(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	edKey, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	keys := map[string]any{"rsa": &rsaKey.PublicKey, "ec": &ecKey.PublicKey, "ed": edKey, "hmac": []byte("secret")}
	texts := map[string]string{"hmac": "c2VjcmV0"}
	for _, kind := range []string{"rsa", "ec", "ed"} {
		der, err := x509.MarshalPKIXPublicKey(keys[kind])
		require.NoError(t, err)
		block := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
		texts[kind] = strings.ReplaceAll(string(block), "\n", `\n`)
	}

	wants := map[string]string{"rsa": "an RSA public key", "ec": "an elliptic curve public key", "ed": "an Ed25519", "hmac": "a secret in base64"}
	for name, want := range wants {
		for of, text := range texts {
			cfg, _, err := config.Load(config.Options{Flags: []string{"jwt_keys/" + name + ":a=" + text}})
			if of == name {
				require.NoError(t, err)
				require.Equal(t, map[string]any{name + ":a": keys[name]}, config.TokenKeys.Get(cfg))
				continue
			}
			require.ErrorContains(t, err, "[jwt_keys] "+name+":a (--set): \"****\" is refused: it must be "+want)
			require.NotContains(t, err.Error(), text)
		}
	}
	for _, name := range []string{"dsa:a", "hmac", "a"} {
		_, _, err := config.Load(config.Options{Flags: []string{"jwt_keys/" + name + "=c2VjcmV0"}})
		require.ErrorContains(t, err, name+" (--set): \"****\" is refused: it must be named hmac:ID, rsa:ID, ec:ID or ed:ID")
	}
}
