package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// An error names the file that is at fault.
func TestFileAtFault(t *testing.T) {
	t.Parallel()
	const cert = "testdata/keys/cert.pem"
	const key = "testdata/keys/pbes2-aes256-sha256.pem"
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	junk := file("junk.pem", "junk")
	broken := file("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	another, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(another)
	require.NoError(t, err)
	other := file("other.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	for _, test := range []struct{ cert, key, want string }{
		{junk, key, junk + ": it has no certificate in PEM"},
		{key, key, key + ": it has no certificate in PEM"},
		{broken, key, broken + ": x509: "},
		{cert, junk, junk + ": it has no private key in PEM"},
		{cert, cert, cert + ": it has no private key in PEM"},
		{cert, "", cert + ": it has no private key in PEM"},
		{"nowhere.pem", key, "nowhere.pem"},
		{cert, "nowhere.pem", "nowhere.pem"},
		{cert, other, other + ", the private key of " + cert + ": "},
	} {
		_, err := Load(test.cert, test.key, keyPassword)
		require.ErrorContains(t, err, test.want)
	}
	_, err = LoadPool(junk)
	require.ErrorContains(t, err, junk+": it has no certificate in PEM")
}
