package config_test

import (
	"crypto/tls"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/config"
)

func TestTLSSettings(t *testing.T) {
	t.Parallel()
	both, none := []uint16{tls.VersionTLS12, tls.VersionTLS13}, []uint16(nil)
	for _, test := range []struct {
		set, refused      string
		versions, ciphers []uint16
	}{
		{"ssl/port=1", "", both, none},
		{"ssl/tls_versions=['tlsv1.3','tlsv1.2', 'tlsv1.3']", "", both, none},
		{"ssl/tls_versions=tlsv1.3", "", both[1:], none},
		{`ssl/ciphers=["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"]`, "", both,
			[]uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}},
		{"ssl/ciphers=ECDHE-ECDSA-CHACHA20-POLY1305,ECDHE-ECDSA-AES256-SHA", "", both,
			[]uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256}},
		{"ssl/ciphers=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "", both, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}},
		{"ssl/tls_versions=['tlsv1', 'tlsv1.2']", "", both[:1], none},
		{"ssl/tls_versions=tlsv1", `[ssl] tls_versions (--set) is not a list of versions`, none, none},
		{"ssl/tls_versions=[]", `[ssl] tls_versions (--set) is not`, none, none},
		{"ssl/tls_versions=['tlsv1.2'", `[ssl] tls_versions (--set) is not`, none, none},
		{"ssl/ciphers=ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-RC4-SHA:AES128-SHA", "", both, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}},
		{"ssl/ciphers=[{ecdhe_rsa, aes_128_gcm, aead, sha256}]", `[ssl] ciphers (--set) is not a list of ciphers`, both, none},
		{"ssl/ciphers=[ECDHE-RSA-RC4-SHA]", `[ssl] ciphers (--set) is not`, both, none},
		{"ssl/cert_file=", "[ssl] enable is true (--set), but [ssl] cert_file is not set", both, none},
		{"ssl/verify_ssl_certificates=true", "[ssl] cacert_file is not set", both, none},
		{"ssl/fail_if_no_peer_cert=true", "only if [ssl] verify_ssl_certificates is true", both, none},
	} {
		cfg, _, err := config.Load(config.Options{Flags: []string{"ssl/enable=true", "ssl/cert_file=x", test.set}})
		if test.set == "ssl/cert_file=" {
			cfg, _, err = config.Load(config.Options{Flags: []string{"ssl/enable=true"}})
		}
		if test.refused != "" {
			require.ErrorContains(t, err, test.refused, test.set)
			if test.set == "ssl/cert_file=" {
				continue
			}
			cfg, _, err = config.Load(config.Options{Flags: []string{test.set}}) // TLS is off
		}
		require.NoError(t, err, test.set)
		require.Equal(t, test.versions, config.TLSVersions.Get(cfg), test.set)
		require.Equal(t, test.ciphers, config.TLSCiphers.Get(cfg), test.set)
		require.False(t, config.TLSAddress.Get(cfg).IsValid())
	}
}

func TestCORSSettings(t *testing.T) {
	t.Parallel()
	cfg, _, err := config.Load(config.Options{Flags: []string{
		"cors/origins=https://App.example.com, http://localhost:8080,http://[::1]:1", "cors/headers=X-One, etag", "cors/methods=get",
	}})
	require.NoError(t, err)
	require.Equal(t, []string{"https://app.example.com", "http://localhost:8080", "http://[::1]:1"}, config.CORSOrigins.Get(cfg))
	require.Equal(t, []string{"x-one", "etag"}, config.CORSHeaders.Get(cfg))
	require.Equal(t, []string{"GET"}, config.CORSMethods.Get(cfg))
	require.Empty(t, config.CORSExposedHeaders.Get(cfg))
	for set, says := range map[string]string{
		"cors/origins=app.example.com":           `"app.example.com" is not`,
		"cors/origins=https://a.example/":        `"https://a.example/" is not`,
		"cors/origins=https://u@a.example":       `is refused`,
		"cors/origins=https://a.example, null":   `"null" is not`,
		"cors/headers=etag, x y":                 `"x y" is not`,
		"cors/methods=GET, PUT, {}":              `"{}" is not`,
		"cors/max_age=soon":                      "a whole number of seconds",
		"cors/exposed_headers=etag\r\nx-evil: 1": "is refused",
	} {
		_, _, err := config.Load(config.Options{Flags: []string{set}})
		require.ErrorContains(t, err, says, set)
	}
	cfg, warnings, err := config.Load(config.Options{Flags: []string{"cors/origins=file://, https://a.example, ", "cors/methods=GET,"}})
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, []string{"file://", "https://a.example"}, config.CORSOrigins.Get(cfg))
	require.Equal(t, []string{"GET"}, config.CORSMethods.Get(cfg))
}
