//go:build unix

package sealed

import (
	"io/fs"
	"syscall"
)

// ofRoot reports whether a file belongs to root.
func ofRoot(info fs.FileInfo) bool {
	stat, known := info.Sys().(*syscall.Stat_t)
	return known && stat.Uid == 0
}
