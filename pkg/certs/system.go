package certs

import "crypto/x509"

// System has the certificates that the operating system trusts. It must not be changed.
type System struct {
	// Pool has the certificates. nil, except on Linux: crypto/tls asks the operating system.
	Pool *x509.CertPool
	// Err is not nil if there are none: then Pool is empty.
	Err error
}
