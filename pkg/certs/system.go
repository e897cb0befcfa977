package certs

import (
	"crypto/x509"
	"errors"
)

// ErrNoSystemCertificates says that the operating system has no trusted certificates.
var ErrNoSystemCertificates = errors.New("no certificate is in the operating system's files")

// System has the certificates that the operating system trusts. It must not be changed.
type System struct {
	// Pool has the certificates. nil, except on Linux: crypto/tls asks the operating system.
	Pool *x509.CertPool
	// Err is ErrNoSystemCertificates if Pool is empty.
	Err error
}
