// Package certs reads TLS certificates and private keys from PEM files, and notices when the files change.
//
// It serves both ends of a connection and opens none: the frontend's TLS server and the client of pkg/outbound
// use it, so that the server does not import a client.
package certs

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Load reads a certificate and its private key. certFile has the certificate, and after it the intermediate
// certificates; keyFile has the key, and if it is empty the key is in certFile too. keyPassword decrypts an
// encrypted key. An error names the file that is at fault, and none contains the password.
func Load(certFile, keyFile, keyPassword string) (*tls.Certificate, error) {
	certificates, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	if err := checkCertificates(certificates); err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	path := cmp.Or(keyFile, certFile)
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if key, err = decryptKey(key, keyPassword); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(blocks(key, "PRIVATE KEY")) == 0 {
		return nil, fmt.Errorf("%s: it has no private key in PEM", path)
	}
	pair, err := tls.X509KeyPair(certificates, key)
	if err != nil {
		return nil, fmt.Errorf("%s, the private key of %s: %w", path, certFile, err)
	}
	return &pair, nil
}

// checkCertificates returns an error if PEM data has no certificate, or one that cannot be parsed.
func checkCertificates(data []byte) error {
	all := blocks(data, "CERTIFICATE")
	if len(all) == 0 {
		return errNoCertificate
	}
	for _, der := range all {
		if _, err := x509.ParseCertificate(der); err != nil {
			return err
		}
	}
	return nil
}

var errNoCertificate = errors.New("it has no certificate in PEM")

// blocks returns the contents of the blocks of PEM data whose types end with suffix.
func blocks(data []byte, suffix string) (all [][]byte) {
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return all
		}
		if strings.HasSuffix(block.Type, suffix) {
			all = append(all, block.Bytes)
		}
		data = rest
	}
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
		return nil, fmt.Errorf("%s: %w", file, errNoCertificate)
	}
	return pool, nil
}
