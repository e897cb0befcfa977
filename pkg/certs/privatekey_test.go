package certs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// All keys in testdata/keys are the key of cert.pem, as openssl wrote it.
const keyPassword = "s3cr3t"

func TestEncryptedKeys(t *testing.T) {
	t.Parallel()
	keys, err := filepath.Glob("testdata/keys/*-*.pem")
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	for _, key := range keys {
		pair, err := Load("testdata/keys/cert.pem", key, keyPassword)
		if strings.Contains(key, "unsupported") {
			require.ErrorContains(t, err, key+": the private key is encrypted in a way that is not supported")
			continue
		}
		require.NoError(t, err, key) // the key belongs to the certificate
		require.Len(t, pair.Certificate, 1)
		for _, wrong := range []string{"", "wrong"} {
			_, err = Load("testdata/keys/cert.pem", key, wrong)
			require.ErrorContains(t, err, key)
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
		plain, err := decryptKey(data, password)
		require.True(t, err == nil || plain == nil)
	})
}
