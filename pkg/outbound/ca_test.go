package outbound_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// issued is a certificate with its key, and the chain up to where it is trusted.
type issued struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	issuer *issued // nil for a root
}

// issue makes a certificate, for servers at 127.0.0.1 and couch.example and for clients, or for another
// authority. Without an issuer it issues itself.
func issue(t testing.TB, issuer *issued, name string, edit ...func(*x509.Certificate)) *issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"couch.example"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, e := range edit {
		e(template)
	}
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &issued{cert, key, issuer}
}

func authority(c *x509.Certificate) {
	c.IsCA, c.BasicConstraintsValid = true, true
	c.KeyUsage = x509.KeyUsageCertSign
	c.IPAddresses, c.DNSNames, c.ExtKeyUsage = nil, nil, nil
}

func expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
}

// pair is what a server or a client presents: the certificate and those between it and the root.
func (i *issued) pair() tls.Certificate {
	pair := tls.Certificate{PrivateKey: i.key}
	for at := i; at != nil && (at.issuer != nil || at == i); at = at.issuer {
		pair.Certificate = append(pair.Certificate, at.cert.Raw)
	}
	return pair
}

func (i *issued) certPEM() []byte {
	var all []byte
	for _, der := range i.pair().Certificate {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return all
}

func (i *issued) keyPEM(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(i.key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func (i *issued) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(i.cert)
	return pool
}

// writeFile writes a file and returns its path. A file that is written again is newer.
func writeFile(t testing.TB, path string, data []byte) string {
	t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(t.TempDir(), path)
	}
	at := time.Now()
	if info, err := os.Stat(path); err == nil {
		at = info.ModTime().Add(time.Second)
	}
	require.NoError(t, os.WriteFile(path, data, 0o600))
	require.NoError(t, os.Chtimes(path, at, at))
	return path
}
