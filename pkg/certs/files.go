package certs

import (
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"
)

// checkInterval is the shortest time between two checks of the same files.
const checkInterval = time.Second

// Files notices when files change, by their sizes and modification times. A directory changes together with the files
// in it, but not with those below its subdirectories. It is safe for concurrent use.
type Files struct {
	paths   []string
	checked atomic.Int64            // when the files were last checked, in nanoseconds since the Unix epoch
	seen    atomic.Pointer[[]stamp] // as of then
}

// stamp identifies a version of a file. A file that cannot be read has the zero stamp.
type stamp struct {
	size     int64
	modified time.Time
}

// Watch starts noticing changes of the files; empty paths stand for no file. Call it before reading the files: a
// file that changes while it is being read then counts as changed.
func Watch(paths ...string) *Files {
	f := &Files{paths: slices.DeleteFunc(paths, func(path string) bool { return path == "" })}
	found := f.stamps()
	f.seen.Store(&found)
	return f
}

// Changed reports whether a file has changed since Watch or the last call that returned true. It looks at the
// files at most once a second, and never blocks on a call that is under way. now is the present time.
func (f *Files) Changed(now time.Time) bool {
	last := f.checked.Load()
	if len(f.paths) == 0 || now.UnixNano()-last < int64(checkInterval) || !f.checked.CompareAndSwap(last, now.UnixNano()) {
		return false
	}
	found := f.stamps()
	if slices.Equal(found, *f.seen.Load()) {
		return false
	}
	f.seen.Store(&found)
	return true
}

// stamps returns the stamp of each path, and after that of a directory those of its entries.
func (f *Files) stamps() []stamp {
	all := make([]stamp, 0, len(f.paths))
	for _, path := range f.paths {
		info, err := os.Stat(path)
		all = append(all, stampOf(info, err))
		if err != nil || !info.IsDir() {
			continue
		}
		entries, _ := os.ReadDir(path)
		for _, entry := range entries {
			all = append(all, stampOf(os.Stat(filepath.Join(path, entry.Name()))))
		}
	}
	return all
}

func stampOf(info os.FileInfo, err error) stamp {
	if err != nil {
		return stamp{}
	}
	return stamp{info.Size(), info.ModTime()}
}
