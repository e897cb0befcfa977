package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// certificate is a certificate with its key.
type certificate struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// issue creates a certificate for 127.0.0.1 that an issuer signs, or that is self-signed.
func issue(t *testing.T, serial int64, issuer *certificate) *certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "settee's tests"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: issuer == nil,
	}
	by := certificate{template, key}
	if issuer != nil {
		by = *issuer
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, by.Certificate, &key.PublicKey, by.key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(raw)
	require.NoError(t, err)
	return &certificate{parsed, key}
}

// write writes the certificate and the key as files.
func (c *certificate) write(t *testing.T, certFile, keyFile string) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(c.key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), 0o600))
}

func (c *certificate) forTLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: c.key}
}

// tlsAddress returns the address where a node accepts TLS connections.
func (p *process) tlsAddress() string {
	p.t.Helper()
	found := regexp.MustCompile(`"tls_url":"https://([^"]+)/"`).FindStringSubmatch(p.logged())
	require.Len(p.t, found, 2)
	return found[1]
}

// tlsNode starts a node with the certificate in the files.
func tlsNode(t *testing.T, certFile, keyFile string, sets ...string) *process {
	return serveNode(t, "mem:", append([]string{
		"ssl/enable=true", "ssl/port=0", "ssl/cert_file=" + certFile, "ssl/key_file=" + keyFile, "log/level=debug",
	}, sets...)...)
}

// handshake returns the state of a connection that both sides accept. With TLS 1.3 a node refuses a client's
// certificate after the handshake.
func handshake(address string, client *tls.Config) (tls.ConnectionState, error) {
	conn, err := tls.Dial("tcp", address, client)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	if conn.ConnectionState().NegotiatedProtocol != "h2" {
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	}
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	return conn.ConnectionState(), err
}

func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	first := issue(t, 1, nil)
	first.write(t, certFile, keyFile)
	trusted := x509.NewCertPool()
	trusted.AddCert(first.Certificate)
	node := tlsNode(t, certFile, keyFile)
	address := node.tlsAddress()

	for _, protocol := range []int{1, 2} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: protocol == 2}
		client := &http.Client{Transport: transport}
		answer, err := client.Get("https://" + address + "/_up")
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Equal(t, http.StatusOK, answer.StatusCode)
		assert.Equal(t, protocol, answer.ProtoMajor)
		assert.Equal(t, uint16(tls.VersionTLS13), answer.TLS.Version)

		r, err := http.NewRequest(http.MethodPut, "https://"+address+"/db"+string(rune('0'+protocol)), nil)
		require.NoError(t, err)
		r.SetBasicAuth(adminName, adminPassword)
		answer, err = client.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.True(t, strings.HasPrefix(answer.Header.Get("Location"), "https://"+address+"/db"), answer.Header)
		transport.CloseIdleConnections()
	}
	node.ask(http.StatusOK, http.MethodGet, "db2", "")

	//nolint:gosec // the test checks which old versions are refused
	_, err := handshake(address, &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	require.ErrorContains(t, err, "protocol version")
	node.says(`"level":"debug","reason":"http: TLS handshake error`)

	// New connections get a new certificate, and never an invalid one.
	issue(t, 2, nil).write(t, certFile, keyFile)
	shown := func() int64 {
		state, err := handshake(address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test accepts any certificate
		require.NoError(t, err)
		return state.PeerCertificates[0].SerialNumber.Int64()
	}
	require.Eventually(t, func() bool { return shown() == 2 }, limit, 20*time.Millisecond)
	require.NoError(t, os.WriteFile(keyFile, []byte("nothing"), 0o600))
	require.Eventually(t, func() bool {
		return shown() == 2 && strings.Contains(node.logged(), "those read before stay in use")
	}, limit, 20*time.Millisecond)
	assert.Zero(t, node.end(syscall.SIGTERM))
}

func TestTLSAsConfigured(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile, caFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")
	server, authority := issue(t, 1, nil), issue(t, 2, nil)
	server.write(t, certFile, keyFile)
	authority.write(t, caFile, filepath.Join(dir, "ca-key.pem"))
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate)
	known, stranger := issue(t, 3, authority).forTLS(), issue(t, 4, nil).forTLS()
	offer := func(certs ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: trusted, Certificates: certs, NextProtos: []string{"h2", "http/1.1"}}
	}

	node := tlsNode(t, certFile, keyFile, "ssl/tls_versions=['tlsv1.2']", `ssl/ciphers=["ECDHE-ECDSA-AES256-GCM-SHA384"]`)
	state, err := handshake(node.tlsAddress(), offer())
	require.NoError(t, err)
	assert.Equal(t, uint16(tls.VersionTLS12), state.Version)
	assert.Equal(t, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, state.CipherSuite)
	assert.Equal(t, "http/1.1", state.NegotiatedProtocol, "HTTP/2 needs another cipher")

	node = tlsNode(t, certFile, keyFile, "ssl/verify_ssl_certificates=true", "ssl/cacert_file="+caFile)
	for _, certs := range [][]tls.Certificate{nil, {known}} {
		_, err = handshake(node.tlsAddress(), offer(certs...))
		require.NoError(t, err)
	}
	given := offer()
	given.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &stranger, nil }
	_, err = handshake(node.tlsAddress(), given)
	require.ErrorContains(t, err, "unknown certificate authority")

	node = tlsNode(t, certFile, keyFile, "ssl/verify_ssl_certificates=true", "ssl/cacert_file="+caFile, "ssl/fail_if_no_peer_cert=true")
	_, err = handshake(node.tlsAddress(), offer(known))
	require.NoError(t, err)
	_, err = handshake(node.tlsAddress(), offer())
	require.ErrorContains(t, err, "certificate required")
}

func TestTLSThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	issue(t, 1, nil).write(t, certFile, keyFile)
	for name, test := range map[string]struct {
		sets []string
		says string
	}{
		"no certificate":                  {nil, "[ssl] cert_file is not set"},
		"none there":                      {[]string{"ssl/cert_file=/nowhere/cert.pem"}, "/nowhere/cert.pem"},
		"no key":                          {[]string{"ssl/cert_file=" + certFile}, "TLS for clients: the node's certificate"},
		"no authority":                    {[]string{"ssl/cert_file=" + certFile, "ssl/verify_ssl_certificates=true"}, "[ssl] cacert_file"},
		"without verify_ssl_certificates": {[]string{"ssl/cert_file=" + certFile, "ssl/fail_if_no_peer_cert=true"}, "[ssl] verify_ssl_certificates"},
		"authority not there":             {[]string{"ssl/cert_file=" + certFile, "ssl/key_file=" + keyFile, "ssl/verify_ssl_certificates=true", "ssl/cacert_file=/nowhere/ca.pem"}, "/nowhere/ca.pem"},
		"a version of old":                {[]string{"ssl/cert_file=" + certFile, "ssl/tls_versions=tlsv1.1"}, "[ssl] tls_versions (--set) is not a list of versions"},
		"a cipher of old":                 {[]string{"ssl/cert_file=" + certFile, `ssl/ciphers=["AES128-SHA"]`}, "[ssl] ciphers (--set) is not a list of ciphers"},
	} {
		args := []string{"serve", "--store", "mem:", "--set", "chttpd/port=0", "--set", "ssl/port=0", "--set", "ssl/enable=true",
			"--set", "admins/admin=relax"}
		for _, set := range test.sets {
			args = append(args, "--set", set)
		}
		_, errs, status := settee(t, args...)
		assert.Equal(t, exitFailed, status, name)
		assert.Contains(t, errs, test.says, name)
	}
}
