//go:build unix

package config

import (
	"io/fs"
	"syscall"
)

// ownerOf returns the owner of a file.
func ownerOf(info fs.FileInfo) (user, group int, known bool) {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, 0, false
	}
	return int(stat.Uid), int(stat.Gid), true
}
