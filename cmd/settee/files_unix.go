//go:build unix

package main

import (
	"io/fs"
	"math"
	"os"
	"syscall"
)

// keepFilesPrivate keeps the files that this process creates for its user alone: the store, and what a command
// writes, have secrets.
func keepFilesPrivate() { syscall.Umask(syscall.Umask(0o077) | 0o077) }

// openTo returns the permissions of a directory that others than its owner have, or 0 if there are none.
func openTo(dir string) os.FileMode {
	info, err := os.Stat(dir)
	if err != nil {
		return 0
	}
	return info.Mode().Perm() & 0o077
}

// ownerOf returns the user and the group of a file.
func ownerOf(info fs.FileInfo) (user, group int, known bool) {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, 0, false
	}
	return int(stat.Uid), int(stat.Gid), true
}

// openFiles returns how many files and connections this process may have open, or 0 if any number.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), math.MaxInt32)) //nolint:unconvert // it is signed on FreeBSD
}
