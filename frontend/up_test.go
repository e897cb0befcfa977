package frontend_test

import (
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv/pebblekv"
)

// Whoever watches a node learns that its store has stopped writing.
func TestUpAfterFailedWrite(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileWrite {
			return syscall.ENOSPC
		}
		return nil
	}))
	db, err := pebblekv.Open("/store", pebblekv.Options{FS: disk})
	require.NoError(t, err)
	n := startOn(t, db, listenTCP(t))
	n.newDatabase("db")
	require.Equal(t, http.StatusOK, n.get("/_up").status)

	full.Store(true)
	require.Equal(t, http.StatusInternalServerError, n.do(http.MethodPut, "/db/a", `{}`).status)
	full.Store(false) // which comes too late
	refused(t, n.do(http.MethodGet, "/_up", "", "Authorization", nobody), http.StatusServiceUnavailable, "store_read_only",
		"the store no longer accepts writes because one has failed (no space left on device), until this node is started again; its log says more")
	require.Equal(t, http.StatusOK, n.get("/db").status)
}
