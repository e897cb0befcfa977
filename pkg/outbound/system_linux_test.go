package outbound_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/outbound"
)

// TestSystemCertificatesAreReloaded changes the system's certificates under a process of its own, because the
// environment decides where they are, and Go reads them once for a process.
func TestSystemCertificatesAreReloaded(t *testing.T) {
	t.Parallel()
	const child = "SETTEE_TEST_SYSTEM_CERTIFICATES"
	if dir := os.Getenv(child); dir != "" {
		changeSystemCertificates(t, filepath.Join(dir, "bundle.pem"), filepath.Join(dir, "certs"))
		return
	}
	testkit.SkipShort(t)
	dir := t.TempDir()
	certs := filepath.Join(dir, "certs")
	require.NoError(t, os.Mkdir(certs, 0o700))
	cmd := exec.Command(os.Args[0], "-test.run=^TestSystemCertificatesAreReloaded$", "-test.v")
	cmd.Env = append(os.Environ(), child+"="+dir, "SSL_CERT_FILE="+filepath.Join(dir, "bundle.pem"), "SSL_CERT_DIR="+certs)
	printed, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", printed)
}

func changeSystemCertificates(t *testing.T, bundle, dir string) {
	oldCA, newCA := issue(t, nil, "old", authority), issue(t, nil, "new", authority)
	oldServer, newServer := secured(t, issue(t, oldCA, "server")), secured(t, issue(t, newCA, "server"))
	var said warnings
	pool, _ := newPool(t, outbound.PoolOptions{Warn: said.add})
	var seconds atomic.Int64
	pool.SetClock(func() time.Time { return time.Unix(seconds.Load(), 0) })
	try := func(s *counted) error {
		seconds.Add(1)
		_, err := through(t, pool, s.URL+"/db", outbound.TransportOptions{}).get(t.Context())
		return err
	}
	refused := func(s *counted) {
		t.Helper()
		require.ErrorContains(t, try(s), "unknown authority")
	}
	refused(oldServer) // a system without certificates

	writeFile(t, bundle, oldCA.certPEM())
	require.NoError(t, try(oldServer))
	refused(newServer)

	// A directory's file is added, replaced and removed.
	added := writeFile(t, filepath.Join(dir, "added.pem"), newCA.certPEM())
	require.NoError(t, try(newServer))
	require.NoError(t, try(oldServer))
	opened := oldServer.opened.Load()
	require.NoError(t, try(oldServer))
	require.Equal(t, opened, oldServer.opened.Load(), "nothing has changed for this connection")
	writeFile(t, added, issue(t, nil, "another", authority).certPEM())
	refused(newServer) // although it had a connection
	writeFile(t, added, newCA.certPEM())
	require.NoError(t, try(newServer))
	require.NoError(t, os.Remove(added))
	refused(newServer)

	// The same certificate by a link to a file elsewhere, which is replaced.
	elsewhere := writeFile(t, "elsewhere.pem", newCA.certPEM())
	require.NoError(t, os.Symlink(elsewhere, added))
	require.NoError(t, try(newServer))
	writeFile(t, elsewhere, issue(t, nil, "another", authority).certPEM())
	refused(newServer)

	require.Empty(t, said.all())
	require.NoError(t, os.Remove(added))
	writeFile(t, bundle, []byte("half of it"))
	require.NoError(t, try(oldServer))
	require.Len(t, said.all(), 1)
	require.Contains(t, said.all()[0], "those read before stay in use")
	require.Contains(t, said.all()[0], bundle)
	writeFile(t, bundle, newCA.certPEM())
	refused(oldServer)
	require.NoError(t, try(newServer))
}
