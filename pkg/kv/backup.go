package kv

import (
	"context"
	"errors"
	"io"
)

// ErrBackupRunning is the error of a backup while another one of the same store is running.
var ErrBackupRunning = errors.New("kv: another backup is running")

// BackupWriter is a [Database] that can write a copy of itself while it is used.
type BackupWriter interface {
	// Backup writes an archive of the store as it is now: all commits so far, and none after. It does not delay other
	// transactions. The engine says what the archive contains.
	Backup(ctx context.Context, w io.Writer) error
}

// FindBackup returns the [BackupWriter] that db is or wraps, or nil.
func FindBackup(db Database) BackupWriter {
	found, _ := find[BackupWriter](db)
	return found
}
