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
		{"ssl/tls_versions=['tlsv1', 'tlsv1.2']", `"tlsv1" is not`, nil, nil},
		{"ssl/tls_versions=[]", `"" is not`, nil, nil},
		{"ssl/tls_versions=['tlsv1.2'", `"['tlsv1.2'" is not`, nil, nil},
		{"ssl/ciphers=[ECDHE-RSA-RC4-SHA]", `"ECDHE-RSA-RC4-SHA" is not`, nil, nil},
		{"ssl/enable=true", "[ssl] enable is true (--set), but [ssl] cert_file is not set", nil, nil},
		{"ssl/verify_ssl_certificates=true", "[ssl] cacert_file, which would say whose certificates count, is not set", nil, nil},
		{"ssl/fail_if_no_peer_cert=true", "only where [ssl] verify_ssl_certificates is true", nil, nil},
	} {
		cfg, _, err := config.Load(config.Options{Flags: []string{test.set}})
		if test.refused != "" {
			require.ErrorContains(t, err, test.refused, test.set)
			continue
		}
		require.NoError(t, err, test.set)
		require.Equal(t, test.versions, config.TLSVersions.Get(cfg), test.set)
		require.Equal(t, test.ciphers, config.TLSCiphers.Get(cfg), test.set)
		require.False(t, config.TLSAddress.Get(cfg).IsValid())
	}
}
