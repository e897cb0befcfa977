package frontend_test

import (
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
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
	n := startOn(t, db, webtest.ListenTCP(t))
	n.NewDatabase("db")
	require.Equal(t, http.StatusOK, n.Get("/_up").Status)

	full.Store(true)
	require.Equal(t, http.StatusInternalServerError, n.Do(http.MethodPut, "/db/a", `{}`).Status)
	full.Store(false) // which comes too late
	webtest.Refused(t, n.Do(http.MethodGet, "/_up", "", "Authorization", webtest.Nobody), http.StatusServiceUnavailable, "store_read_only",
		"the store no longer accepts writes because one has failed (no space left on device), until this node is started again; its log says more")
	require.Equal(t, http.StatusOK, n.Get("/db").Status)
}
