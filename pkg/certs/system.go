package certs

import "errors"

// ErrNoSystemCertificates says that the operating system has no trusted certificates.
var ErrNoSystemCertificates = errors.New("no certificate is in the operating system's files")
