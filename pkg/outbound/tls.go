package outbound

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"settee/pkg/certs"
	"settee/pkg/redact"
)

const (
	defaultMaxDepth = 3 // [replicator] ssl_certificate_max_depth
	// maxReported bounds the hosts that are remembered because their certificates were reported.
	maxReported = 1_000
)

// ErrCertificates says that the files of a TLSConfig cannot be used, so that no connection with TLS is made.
var ErrCertificates = errors.New("this node's certificates cannot be used")

// TLSConfig says which certificates of servers are trusted, and has this client's own. The files are in PEM format.
// They are read again when they change, within about a second of the next request, and the next connections use
// them. If a changed file cannot be used, or the files of a changed configuration, what was read before stays in use. On
// Linux, this also holds for the operating system's files.
type TLSConfig struct {
	// Insecure accepts any certificate, even one for another name. An attacker between this node and a server
	// can then read and change the data, and learns the credentials.
	Insecure bool
	// Report calls PoolOptions.Warn for certificates that only Insecure accepts, once for each server.
	Report bool
	// CAFile has the certificates that are trusted. Empty: the operating system's.
	CAFile string
	// MaxDepth is how many intermediate certificates there may be between a server's and a trusted one, counted
	// as Erlang's ssl counts its depth: a certificate with the same name as its issuer does not count.
	// Default: 3.
	MaxDepth *int
	// CertFile has the client's certificate, and after it the intermediate ones, and KeyFile its private key. If
	// KeyFile is empty, the key is in CertFile too. KeyPassword decrypts an encrypted key. All empty: the client
	// has no certificate. Proxies that ask for a certificate get it too.
	CertFile, KeyFile string
	KeyPassword       string `json:"-"`
}

// String names the files.
func (c TLSConfig) String() string {
	return fmt.Sprintf("TLS: insecure %t, ca %q, cert %q, key %q", c.Insecure, c.CAFile, c.CertFile, c.KeyFile)
}

// Format writes String for every verb: the key's password is not printed.
func (c TLSConfig) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, c.String(), "outbound.TLSConfig("+c.String()+")")
}

func (c TLSConfig) maxDepth() int {
	if c.MaxDepth == nil {
		return defaultMaxDepth
	}
	return *c.MaxDepth
}

// trust is a TLSConfig with its files read.
type trust struct {
	config *tls.Config
	roots  *x509.CertPool   // nil: crypto/x509 asks the system
	none   error            // why roots is empty; nil if it is not
	own    *tls.Certificate // the client's; nil: none
	// unusable says why the files could not be read: then no connection is made.
	unusable error
	cfg      TLSConfig
	files    *certs.Files                 // of cfg
	system   atomic.Pointer[certs.System] // the operating system's certificates, as seen last; nil: cfg has its own

	mu       sync.Mutex
	reported map[string]struct{} // hosts
}

// loadTrust reads the files of a configuration. If they cannot be used, the trust is unusable, and is tried again when they change.
func loadTrust(cfg TLSConfig, now time.Time) *trust {
	t := &trust{cfg: cfg, files: certs.Watch(cfg.CAFile, cfg.CertFile, cfg.KeyFile), reported: make(map[string]struct{})}
	t.config = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: cfg.Insecure, //nolint:gosec // the setting says what it means
	}
	if !cfg.Insecure {
		t.config.VerifyConnection = t.verify
	}
	if t.unusable = t.load(now); t.unusable != nil {
		t.config.InsecureSkipVerify = true // no connection is accepted
		t.config.VerifyConnection = func(tls.ConnectionState) error { return t.unusable }
	}
	return t
}

// load reads the files.
func (t *trust) load(now time.Time) error {
	if err := t.loadRoots(now); err != nil {
		return fmt.Errorf("%w: trusted certificates: %w", ErrCertificates, err)
	}
	t.config.RootCAs = t.roots
	if t.cfg.CertFile != "" {
		own, err := certs.Load(t.cfg.CertFile, t.cfg.KeyFile, t.cfg.KeyPassword)
		if err != nil {
			return fmt.Errorf("%w: client certificate: %w", ErrCertificates, err)
		}
		t.own = own
		// The certificate is sent even if the server does not name its authority. A server that refuses it sends an alert.
		t.config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
	}
	return nil
}

// kept returns what t has read, for the configuration of next, whose files cannot be used. It returns next as it is if that
// configuration accepts other connections than that of t.
func (t *trust) kept(next *trust) *trust {
	if t.unusable != nil || t.cfg.Insecure != next.cfg.Insecure || t.cfg.maxDepth() != next.cfg.maxDepth() {
		return next
	}
	next.config, next.roots, next.none, next.own, next.unusable = t.config, t.roots, t.none, t.own, nil
	return next
}

// loadRoots reads the trusted certificates. A system without any is no error, because connections without TLS work.
func (t *trust) loadRoots(now time.Time) (err error) {
	if t.cfg.CAFile != "" {
		t.roots, err = certs.LoadPool(t.cfg.CAFile)
		return err
	}
	system := certs.LoadSystem(now)
	t.system.Store(system)
	t.roots, t.none = system.Pool, system.Err
	return nil
}

// changed reports whether a file has changed, once for each change.
func (t *trust) changed(now time.Time) bool {
	if t.cfg.CAFile == "" {
		seen, system := t.system.Load(), certs.LoadSystem(now)
		if system != seen && t.system.CompareAndSwap(seen, system) {
			return true
		}
	}
	return t.files.Changed(now)
}

// reload returns t unless its files have changed, and otherwise what was read from them. If the changed files
// cannot be used, it returns t with an error, once for each version of the files.
func (t *trust) reload(now time.Time) (*trust, error) {
	if !t.changed(now) {
		return t, nil
	}
	next := loadTrust(t.cfg, now)
	err := next.unusable
	if err == nil && t.none == nil {
		err = next.none
	}
	switch {
	case err == nil:
		return next, nil
	case t.unusable != nil:
		return next, err
	default:
		return t, t.told(err)
	}
}

// told returns the error of files that cannot be used, which says whether others stay in use.
func (t *trust) told(err error) error {
	if t.unusable == nil {
		err = fmt.Errorf("files of certificates have changed, but those read before stay in use: %w", err)
	}
	return err
}

// verify checks the depth of a connection's certificates, after crypto/tls has verified them.
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
	if least <= t.cfg.maxDepth() {
		return nil
	}
	return &tls.CertificateVerificationError{
		UnverifiedCertificates: sent,
		Err: fmt.Errorf("%d intermediate certificates, of which [replicator] ssl_certificate_max_depth allows %d",
			least, t.cfg.maxDepth()),
	}
}

// intermediates counts the certificates between the first and the last of a chain, without those that have the name
// of their issuer.
func intermediates(chain []*x509.Certificate) int {
	n := 0
	for i := 1; i < len(chain)-1; i++ {
		if !bytes.Equal(chain[i].RawSubject, chain[i].RawIssuer) {
			n++
		}
	}
	return n
}

// report calls warn if the certificate of a server would be refused if certificates were verified.
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

// first reports whether it is called for a host for the first time.
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
