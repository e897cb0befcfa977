// Package certs reads TLS certificates and private keys from PEM files, and notices when the files change.
//
// It serves both ends of a connection and opens none: the frontend's TLS server and the client of pkg/outbound
// use it, so that the server does not import a client.
package certs

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"
)

// Load reads a certificate and its private key. certFile has the certificate, and after it the intermediate
// certificates; keyFile has the key, and if it is empty the key is in certFile too. keyPassword decrypts an
// encrypted key. No error contains the password.
func Load(certFile, keyFile, keyPassword string) (*tls.Certificate, error) {
	certificates, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	path := cmp.Or(keyFile, certFile)
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if key, err = decryptKey(key, keyPassword); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	pair, err := tls.X509KeyPair(certificates, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &pair, nil
}

// NotAfter returns when the first certificate of a chain ends: the certificate itself or an intermediate one.
func NotAfter(c *tls.Certificate) (time.Time, error) {
	var first time.Time
	for _, raw := range c.Certificate {
		parsed, err := x509.ParseCertificate(raw)
		if err != nil {
			return time.Time{}, err
		}
		if first.IsZero() || parsed.NotAfter.Before(first) {
			first = parsed.NotAfter
		}
	}
	return first, nil
}

// LoadPool reads certificates that are trusted. It fails if the file has none.
func LoadPool(file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s has none", file)
	}
	return pool, nil
}
