package server

import (
	"errors"
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/kv"
)

// BackUp answers POST /_node/{node}/_backup with an archive of the store, which package pebblekv describes.
func (e *Endpoints) BackUp(w http.ResponseWriter, r *http.Request) error {
	if e.Backup == nil {
		return web.NotImplemented("this store does not write backups: for one on FoundationDB use fdbbackup and fdbrestore")
	}
	w.Header().Set("Content-Disposition", `attachment; filename="settee.backup"`)
	err := web.SendStream(w, r, "application/x-tar", func(out *web.Stream) error { return e.Backup(r.Context(), out) })
	switch failure := e.WriteFailure(); {
	case errors.Is(err, kv.ErrBackupRunning):
		return web.NewFailure(http.StatusConflict, "conflict", "another backup of this store is running")
	case err != nil && failure != nil:
		return writesStopped(failure)
	}
	return err
}
