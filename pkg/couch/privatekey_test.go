package couch_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
)

// The keys in testdata/keys are all that of cert.pem, as openssl wrote them.
const keyPassword = "s3cr3t"

func TestEncryptedKeys(t *testing.T) {
	t.Parallel()
	trusted, err := os.ReadFile("testdata/keys/cert.pem")
	require.NoError(t, err)
	clients := x509.NewCertPool()
	require.True(t, clients.AppendCertsFromPEM(trusted))
	ca := issue(t, nil, "ca", authority)
	server := secured(t, issue(t, ca, "server"), func(c *tls.Config) {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, clients
	})
	roots := writeFile(t, "ca.pem", ca.certPEM())
	keys, err := filepath.Glob("testdata/keys/*-*.pem")
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	for _, key := range keys {
		cfg := couch.TLSConfig{CAFile: roots, CertFile: "testdata/keys/cert.pem", KeyFile: key, KeyPassword: keyPassword}
		err := connects(t, server, cfg)
		if strings.Contains(key, "unsupported") {
			require.ErrorIs(t, err, couch.ErrCertificates, key)
			require.ErrorContains(t, err, key+": the private key is encrypted in a way that is not supported")
			continue
		}
		require.NoError(t, err, key)
		for _, wrong := range []string{"", "wrong"} {
			cfg.KeyPassword = wrong
			err = connects(t, server, cfg)
			require.ErrorIs(t, err, couch.ErrCertificates, key)
			require.NotContains(t, err.Error(), keyPassword)
		}
	}
}

func FuzzDecryptKey(f *testing.F) {
	keys, err := filepath.Glob("testdata/keys/*.pem")
	require.NoError(f, err)
	for _, key := range keys {
		data, err := os.ReadFile(key)
		require.NoError(f, err)
		f.Add(data, keyPassword)
	}
	f.Fuzz(func(t *testing.T, data []byte, password string) {
		plain, err := couch.DecryptKey(data, password)
		require.True(t, err == nil || plain == nil)
	})
}
