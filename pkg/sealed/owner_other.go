//go:build !unix

package sealed

import "io/fs"

// ofRoot reports that no file belongs to root.
func ofRoot(fs.FileInfo) bool { return false }
