package pebblekv

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fence stands between Pebble and the file system. If a write fails (a full or broken disk), Pebble expects its process
// to end: it panics, partly in goroutines of its own, or repeats the write without a pause. The fence prevents that.
// A write that fails with a passing error is repeated (passing.go). After another failed write nothing more is written:
//
//   - Writes to the log, the manifest and all other small files seem to
//     succeed. Pebble never reads them back while it is open, and no further
//     commit is acknowledged, because storage.failure is checked after each.
//   - Writes to tables wait until the store is closed, and then fail: a table
//     that seemed to be written would be read. Its content stays in memory,
//     where reads find it.
//   - Removals seem to succeed: what an earlier manifest names stays.
//
// Checkpoints are not part of the store: a failed write to one only fails the backup. Pebble copies the log into one while
// it is written. A log that is read then ends where the last complete write had ended when it was opened. Otherwise a
// copy could lack a write and have a later one.
//
// So the directory contains what a crash at the moment of the failure would have left.
//
// While Pebble opens the store it waits for tables that it writes, and repeats a write that failed. After a failed write
// those to further tables seem to succeed, too, until opening has ended. Then the failure is the error of Open, and no
// table is read.
type fence struct {
	vfs.FS
	checkpoints string // the prefix of the paths of checkpoints

	mu      sync.Mutex
	opened  bool
	failure error         // the first failed write
	tell    func(error)   // is called with it
	closing chan struct{} // closed by release
	ending  chan struct{} // closed by end
	ended   bool
	logs    map[string]*fencedFile // that are open for writing, by path

	complained time.Time // see complain
}

// errFenced is the error of a write to a table that waited for the close.
var errFenced = errors.New("the store has stopped writing")

func newFence(inner vfs.FS, dir string, tell func(error)) *fence {
	return &fence{
		FS: inner, checkpoints: inner.PathJoin(dir, checkpointPrefix), tell: tell,
		closing: make(chan struct{}), ending: make(chan struct{}), logs: map[string]*fencedFile{},
	}
}

// beside reports whether a path is one of a checkpoint.
func (f *fence) beside(name string) bool { return strings.HasPrefix(name, f.checkpoints) }

// Unwrap implements vfs.FS.
func (f *fence) Unwrap() vfs.FS { return f.FS }

// open marks the store as open. It returns an earlier failure.
func (f *fence) open() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened = true
	return f.failure
}

// end ends the operations that are repeated (see again).
func (f *fence) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.ended = true
		close(f.ending)
	}
}

// release ends the waiting writes to tables.
func (f *fence) release() { close(f.closing) }

// Err returns the failure that stopped the writing, or nil.
func (f *fence) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure
}

// stopped reports whether writes must not reach the file system, and whether they may wait for the close.
func (f *fence) stopped() (stopped, mayWait bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure != nil, f.opened
}

// fail records a failed write.
func (f *fence) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure == nil {
		f.failure = err
		f.tell(err)
	}
}

func isTable(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".sst" || ext == ".blob"
}

// write runs do, a write to the named file, unless writing has stopped. Then it returns nil for a write that must seem
// to succeed.
func (f *fence) write(name string, do func() error) error {
	stopped, mayWait := f.stopped()
	var err error
	switch {
	case !stopped:
		if err = f.again(0, do); err == nil {
			return nil
		}
		f.fail(err)
	case isTable(name) && mayWait:
		<-f.closing
		err = errFenced
	}
	if isTable(name) {
		return err
	}
	return nil
}

// openForWrite is write for operations that return a file.
func (f *fence) openForWrite(name string, open func() (vfs.File, error)) (vfs.File, error) {
	if f.beside(name) {
		file, err := open()
		if err != nil {
			return nil, err
		}
		return unsynced{file}, nil
	}
	var file vfs.File
	err := f.write(name, func() (err error) {
		file, err = open()
		return err
	})
	if err != nil {
		return nil, err
	}
	if file == nil {
		file = inertFile{name}
	}
	fenced := &fencedFile{File: file, fence: f, name: name}
	if filepath.Ext(name) == ".log" {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.logs[name] = fenced
	}
	return fenced, nil
}

// Open opens a file for reading.
func (f *fence) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	var file vfs.File
	err := f.again(readPatience, func() (err error) {
		file, err = f.FS.Open(name, opts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if log := f.logs[name]; log != nil {
		return writtenFile{file, io.LimitReader(file, log.written.Load())}, nil
	}
	return file, nil
}

// writtenFile is what was written of a log.
type writtenFile struct {
	vfs.File
	written io.Reader
}

func (f writtenFile) Read(p []byte) (int, error) { return f.written.Read(p) }

func (f *fence) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.openForWrite(name, func() (vfs.File, error) { return f.FS.Create(name, category) })
}

func (f *fence) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.openForWrite(name, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, category, opts...) })
}

func (f *fence) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.openForWrite(newname, func() (vfs.File, error) { return f.reuse(oldname, newname, category) })
}

// OpenDir opens a directory, in order to sync it.
func (f *fence) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	if f.beside(name) {
		return unsynced{dir}, nil
	}
	return &fencedFile{File: dir, fence: f, name: name}, nil
}

func (f *fence) Link(oldname, newname string) error {
	if f.beside(newname) {
		return f.FS.Link(oldname, newname)
	}
	return f.write(newname, func() error { return f.FS.Link(oldname, newname) })
}

func (f *fence) Rename(oldname, newname string) error {
	if f.beside(newname) {
		return f.FS.Rename(oldname, newname)
	}
	return f.write(newname, func() error { return f.FS.Rename(oldname, newname) })
}

// Remove removes a file. A failed removal only costs space.
func (f *fence) Remove(name string) error {
	if stopped, _ := f.stopped(); stopped && !f.beside(name) {
		return nil
	}
	return f.FS.Remove(name)
}

func (f *fence) RemoveAll(name string) error {
	if stopped, _ := f.stopped(); stopped && !f.beside(name) {
		return nil
	}
	return f.FS.RemoveAll(name)
}

// fencedFile is a file that is open for writing.
type fencedFile struct {
	vfs.File
	fence *fence
	name  string
	// written is the number of bytes that Write has written.
	written atomic.Int64
}

func (f *fencedFile) Write(p []byte) (int, error) {
	rest := p
	err := f.fence.write(f.name, func() error {
		n, err := f.File.Write(rest)
		rest = rest[n:]
		return err
	})
	if err != nil {
		return 0, err
	}
	f.written.Add(int64(len(p)))
	return len(p), nil
}

func (f *fencedFile) WriteAt(p []byte, offset int64) (int, error) {
	n := len(p)
	err := f.fence.write(f.name, func() (err error) {
		_, err = f.File.WriteAt(p, offset)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (f *fencedFile) Sync() error { return f.fence.write(f.name, once(f.File.Sync)) }

func (f *fencedFile) SyncData() error { return f.fence.write(f.name, once(f.File.SyncData)) }

func (f *fencedFile) SyncTo(length int64) (fullSync bool, err error) {
	err = f.fence.write(f.name, once(func() (err error) {
		fullSync, err = f.File.SyncTo(length)
		return err
	}))
	return fullSync, err
}

func (f *fencedFile) Preallocate(offset, length int64) error {
	if stopped, _ := f.fence.stopped(); stopped {
		return nil
	}
	return f.File.Preallocate(offset, length)
}

// Close always releases the file. An error may mean a lost write.
func (f *fencedFile) Close() error {
	f.fence.mu.Lock()
	if f.fence.logs[f.name] == f {
		delete(f.fence.logs, f.name)
	}
	f.fence.mu.Unlock()
	err := f.File.Close()
	if stopped, _ := f.fence.stopped(); stopped {
		return nil
	}
	return f.fence.write(f.name, once(func() error { return err }))
}

// unsynced is a file or a directory of a checkpoint, which need not be durable. Pebble expects its process to end if the
// directory cannot be synced.
type unsynced struct{ vfs.File }

func (unsynced) Sync() error     { return nil }
func (unsynced) SyncData() error { return nil }

func (unsynced) SyncTo(int64) (fullSync bool, err error) { return true, nil }

// inertFile stands for a file that was not created because writing has stopped.
type inertFile struct{ name string }

func (f inertFile) Write(p []byte) (int, error)            { return len(p), nil }
func (f inertFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (f inertFile) Read([]byte) (int, error)               { return 0, f.notThere("read") }
func (f inertFile) ReadAt([]byte, int64) (int, error)      { return 0, f.notThere("read") }
func (f inertFile) Prefetch(int64, int64) error            { return nil }
func (f inertFile) Preallocate(int64, int64) error         { return nil }
func (f inertFile) Sync() error                            { return nil }
func (f inertFile) SyncData() error                        { return nil }
func (f inertFile) SyncTo(int64) (bool, error)             { return true, nil }
func (f inertFile) Close() error                           { return nil }
func (f inertFile) Fd() uintptr                            { return vfs.InvalidFd }
func (f inertFile) Stat() (vfs.FileInfo, error)            { return inertInfo(f), nil }

func (f inertFile) notThere(op string) error {
	return fmt.Errorf("%s %s: %w", op, f.name, fs.ErrNotExist)
}

// inertInfo describes an inertFile: it is empty.
type inertInfo struct{ name string }

func (i inertInfo) Name() string           { return filepath.Base(i.name) }
func (i inertInfo) Size() int64            { return 0 }
func (i inertInfo) Mode() os.FileMode      { return 0o600 }
func (i inertInfo) ModTime() time.Time     { return time.Time{} }
func (i inertInfo) IsDir() bool            { return false }
func (i inertInfo) Sys() any               { return nil }
func (i inertInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
