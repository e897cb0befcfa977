package couch

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"settee/pkg/redact"
)

const (
	defaultMaxDepth = 3 // [replicator] ssl_certificate_max_depth
	// filesEvery is how often the files of certificates are looked at, at most.
	filesEvery = time.Second
	// maxReported bounds how many hosts are remembered whose certificates were complained of.
	maxReported = 1_000
)

// ErrCertificates says that the files which a TLSConfig names cannot be used, so that no connection is
// made. Such a request is not repeated.
var ErrCertificates = errors.New("this node's certificates cannot be used")

// TLSConfig is about certificates, those of servers and this client's own. The files are in the PEM
// format. They are read again when they change, within about a second of the next request, and the next
// connections use what is new; a file that has become unusable leaves in force what was read before.
type TLSConfig struct {
	// Insecure accepts any certificate, also one for another name. Whoever can get between this node and
	// a server can then read and change what is copied, and learns the credentials.
	Insecure bool
	// Report has PoolOptions.Warn told of the certificates that Insecure lets pass, once for each server.
	Report bool
	// CAFile has the certificates that are trusted. Empty: the operating system's.
	CAFile string
	// MaxDepth is how many intermediate certificates there may be between a server's and a trusted one.
	// One that has the same name as its issuer is not counted. As Erlang's ssl counts its depth.
	// Default: 3; negative: none.
	MaxDepth int
	// CertFile has the client's certificate, and intermediate ones behind it, and KeyFile its private
	// key. Empty KeyFile: that is in CertFile, too. KeyPassword is for a key that is encrypted. All empty:
	// the client has no certificate. A proxy is shown it, too, if it asks.
	CertFile, KeyFile string
	KeyPassword       string `json:"-"`
}

// String names the files.
func (c TLSConfig) String() string {
	return fmt.Sprintf("TLS: insecure %t, ca %q, cert %q, key %q", c.Insecure, c.CAFile, c.CertFile, c.KeyFile)
}

// Format writes String for every verb: the key's password is not printed.
func (c TLSConfig) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, c.String(), "couch.TLSConfig("+c.String()+")")
}

func (c TLSConfig) depth() int {
	switch {
	case c.MaxDepth == 0:
		return defaultMaxDepth
	case c.MaxDepth < 0:
		return 0
	}
	return c.MaxDepth
}

// trust is what was made of a TLSConfig and its files.
type trust struct {
	config  *tls.Config
	roots   *x509.CertPool // nil: the system's
	cfg     TLSConfig
	checked atomic.Int64 // when the files were looked at, in nanoseconds since the epoch
	seen    atomic.Pointer[stamps]

	mu       sync.Mutex
	reported map[string]struct{} // hosts
}

// stamps tell whether files have changed: those of the trusted certificates, of the client's and its key.
type stamps [3]stamp

type stamp struct {
	size     int64
	modified time.Time
}

func stampsOf(cfg TLSConfig) stamps {
	var all stamps
	for i, path := range []string{cfg.CAFile, cfg.CertFile, cfg.KeyFile} {
		if path == "" {
			continue
		}
		if info, err := os.Stat(path); err == nil {
			all[i] = stamp{info.Size(), info.ModTime()}
		}
	}
	return all
}

// loadTrust reads the files of a configuration.
func loadTrust(cfg TLSConfig) (*trust, error) {
	t := &trust{cfg: cfg, reported: make(map[string]struct{})}
	before := stampsOf(cfg) // what changes while it is read is read once more
	t.seen.Store(&before)
	t.config = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: cfg.Insecure, //nolint:gosec // whoever sets it was told what it means
	}
	if !cfg.Insecure {
		t.config.VerifyConnection = t.verify
	}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%w: trusted certificates: %w", ErrCertificates, err)
		}
		t.roots = x509.NewCertPool()
		if !t.roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: trusted certificates: %s has none", ErrCertificates, cfg.CAFile)
		}
		t.config.RootCAs = t.roots
	}
	if cfg.CertFile != "" {
		own, err := LoadCertificate(cfg.CertFile, cfg.KeyFile, cfg.KeyPassword)
		if err != nil {
			return nil, fmt.Errorf("%w: client certificate: %w", ErrCertificates, err)
		}
		// Whatever authorities the server says it knows: what it thinks of this one is in its alert.
		t.config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
	}
	return t, nil
}

// reload returns t while its files are what they were, and else what they have become. If that cannot
// be used, it returns t, and for each version of the files once an error.
func (t *trust) reload(cfg TLSConfig, now time.Time) (*trust, error) {
	if cfg.CAFile == "" && cfg.CertFile == "" {
		return t, nil
	}
	last := t.checked.Load()
	if now.UnixNano()-last < int64(filesEvery) || !t.checked.CompareAndSwap(last, now.UnixNano()) {
		return t, nil
	}
	found := stampsOf(cfg)
	if found == *t.seen.Load() {
		return t, nil
	}
	t.seen.Store(&found)
	next, err := loadTrust(cfg)
	if err != nil {
		return t, fmt.Errorf("files of certificates have changed, but those read before stay in use: %w", err)
	}
	return next, nil
}

// verify looks at what crypto/tls has found to be in order.
func (t *trust) verify(state tls.ConnectionState) error {
	return t.checkDepth(state.PeerCertificates, state.VerifiedChains)
}

// checkDepth returns an error if no chain is short enough. Each begins with the server's certificate and
// ends with a trusted one.
func (t *trust) checkDepth(sent []*x509.Certificate, chains [][]*x509.Certificate) error {
	least := -1
	for _, chain := range chains {
		if n := intermediates(chain); least < 0 || n < least {
			least = n
		}
	}
	if least <= t.cfg.depth() {
		return nil
	}
	return &tls.CertificateVerificationError{
		UnverifiedCertificates: sent,
		Err: fmt.Errorf("%d intermediate certificates, of which [replicator] ssl_certificate_max_depth allows %d",
			least, t.cfg.depth()),
	}
}

// intermediates counts the certificates between the first and the last of a chain that were not issued
// by somebody of the same name.
func intermediates(chain []*x509.Certificate) int {
	n := 0
	for i := 1; i < len(chain)-1; i++ {
		if !bytes.Equal(chain[i].RawSubject, chain[i].RawIssuer) {
			n++
		}
	}
	return n
}

// report tells of a server whose certificate would not pass if certificates were verified.
func (t *trust) report(host string, state tls.ConnectionState, warn func(error)) {
	if !t.cfg.Insecure || !t.cfg.Report || len(state.PeerCertificates) == 0 {
		return
	}
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	between := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		between.AddCert(c)
	}
	leaf := state.PeerCertificates[0]
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: t.roots, Intermediates: between, DNSName: name})
	if err == nil {
		err = t.checkDepth(state.PeerCertificates, chains)
	}
	if err == nil || !t.first(host) {
		return
	}
	warn(fmt.Errorf("the certificate of %s is not trustworthy, and is accepted because verify_ssl_certificates is false: %w", host, err))
}

// first reports whether a host was not asked for before.
func (t *trust) first(host string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.reported[host]; ok {
		return false
	}
	if len(t.reported) >= maxReported {
		clear(t.reported)
	}
	t.reported[host] = struct{}{}
	return true
}
