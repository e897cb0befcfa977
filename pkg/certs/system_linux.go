package certs

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The places where distributions of Linux have trusted certificates. They are those of crypto/x509, which reads them
// once in the life of a process.
const (
	systemBundles = "/etc/ssl/certs/ca-certificates.crt:" + // Debian
		"/etc/pki/tls/certs/ca-bundle.crt:" + // Fedora
		"/etc/ssl/ca-bundle.pem:" + // openSUSE
		"/etc/pki/tls/cacert.pem:" + // OpenELEC
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem:" + // CentOS 7
		"/etc/ssl/cert.pem" // Alpine
	systemFolders = "/etc/ssl/certs:/etc/pki/tls/certs"
)

// systemPlaces returns the files of which the first readable one counts, and the directories of which all count. The
// environment may name others, as for OpenSSL.
func systemPlaces() (bundles, folders []string) {
	bundles = strings.Split(systemBundles, ":")
	if file := os.Getenv("SSL_CERT_FILE"); file != "" {
		bundles = []string{file}
	}
	return bundles, strings.Split(cmp.Or(os.Getenv("SSL_CERT_DIR"), systemFolders), ":")
}

// system has the certificates that LoadSystem has read last: reading a few hundred takes about 10 ms.
var system struct {
	sync.Mutex        // held by a caller that reads
	files      *Files // set before last
	last       atomic.Pointer[System]
}

// LoadSystem returns the certificates that the operating system trusts, as they were read last in this process: the same
// pointer until their files change, which it notices as [Files] does. now is the present time.
func LoadSystem(now time.Time) *System {
	last := system.last.Load()
	if last != nil && !system.files.Changed(now) {
		return last
	}
	system.Lock()
	defer system.Unlock()
	if first := system.last.Load(); last == nil && first != nil {
		return first // another caller has read them meanwhile
	}
	bundles, folders := systemPlaces()
	if last == nil {
		system.files = Watch(append(bundles, folders...)...)
	}
	system.last.Store(readSystem(bundles, folders))
	return system.last.Load()
}

func readSystem(bundles, folders []string) *System {
	pool, found := x509.NewCertPool(), false
	add := func(path string) bool {
		data, err := os.ReadFile(path)
		found = err == nil && pool.AppendCertsFromPEM(data) || found
		return err == nil
	}
	for _, bundle := range bundles {
		if add(bundle) {
			break
		}
	}
	for _, folder := range folders {
		entries, _ := os.ReadDir(folder)
		for _, entry := range entries {
			if path := filepath.Join(folder, entry.Name()); !linksToSibling(path, entry) {
				add(path)
			}
		}
	}
	if !found {
		return &System{Pool: pool, Err: fmt.Errorf("%s: no certificate is in the operating system's files",
			strings.Join(slices.Concat(bundles, folders), ", "))}
	}
	return &System{Pool: pool}
}

// linksToSibling reports whether a file is a symbolic link to a file of the same directory, as those that are named by
// hashes: its certificates are read from the other file.
func linksToSibling(path string, entry os.DirEntry) bool {
	if entry.Type()&os.ModeSymlink == 0 {
		return false
	}
	target, err := os.Readlink(path)
	return err == nil && !strings.Contains(target, "/")
}
