package certs

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// SystemFiles returns the files and directories with the certificates that the operating system trusts, for Watch. Some
// of them may not exist.
func SystemFiles() []string {
	bundles, folders := systemPlaces()
	return append(bundles, folders...)
}

// system has the pool that LoadSystemPool read last. Reading a few hundred certificates takes about 10 ms, and each
// couch.Database without connections of others has its own pool.
var system struct {
	sync.Mutex
	files *Files // as of before the reading; nil: nothing was read
	pool  *x509.CertPool
}

// LoadSystemPool returns the certificates that the operating system trusts. They are read again if their files have
// changed. It fails with ErrNoSystemCertificates if there are none. The caller must not change the pool.
func LoadSystemPool() (*x509.CertPool, error) {
	files := Watch(SystemFiles()...)
	system.Lock()
	defer system.Unlock()
	if system.files == nil || !system.files.equal(files) {
		pool, err := readSystemPool()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(files.paths, ", "), err)
		}
		system.files, system.pool = files, pool
	}
	return system.pool, nil
}

func readSystemPool() (*x509.CertPool, error) {
	pool, found := x509.NewCertPool(), false
	add := func(path string) bool {
		data, err := os.ReadFile(path)
		found = err == nil && pool.AppendCertsFromPEM(data) || found
		return err == nil
	}
	bundles, folders := systemPlaces()
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
		return nil, ErrNoSystemCertificates
	}
	return pool, nil
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
