package pebblekv

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// passingErrors are errors of the system that say nothing about the disk: this process or the machine has too many open
// files, or too little memory, and may have enough in a moment. An operation that fails with one has done nothing.
var passingErrors = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.EINTR}

func passing(err error) bool {
	return !errors.As(err, new(finalError)) && slices.ContainsFunc(passingErrors, func(e error) bool { return errors.Is(err, e) })
}

const (
	// longestPause is the longest time between two tries.
	longestPause = time.Second / 2
	// readPatience is how long a read of the store waits for a file to be opened. A write waits for any time, because
	// nothing can be written after a write that was given up.
	readPatience = 5 * time.Second
)

// again repeats do while its error is a passing one, and at most for this time; 0 means any time. While the store is
// opened, and when it is closed or has stopped writing, do is not repeated.
//
// The errors of [once] are not passing ones.
func (f *fence) again(patience time.Duration, do func() error) error {
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, longestPause) {
		err := do()
		stopped, opened := f.stopped()
		if err == nil || !passing(err) || stopped || !opened || patience > 0 && time.Since(began) > patience {
			return err
		}
		if pause == longestPause {
			f.complain(err)
		}
		select {
		case <-time.After(pause):
		case <-f.ending:
			return err
		}
	}
}

// once makes an operation one that is not repeated: after a sync or a close has failed, the system may have dropped what was
// to be written.
func once(do func() error) func() error {
	return func() error {
		if err := do(); err != nil {
			return finalError{err}
		}
		return nil
	}
}

// finalError is an error that is not passing, whatever it is.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// complain logs that an operation is repeated, at most once in a while.
func (f *fence) complain(err error) {
	const seldom = 30 * time.Second
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.complained) > seldom {
		f.complained = now
		logger{f}.Errorf("the store waits: %v", err)
	}
}

// reuse is FS.ReuseForWrite, which may rename a file and then fail to open it.
func (f *fence) reuse(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	_, err := f.FS.Stat(oldname)
	if _, renamed := f.FS.Stat(newname); errors.Is(err, fs.ErrNotExist) && renamed == nil {
		return f.FS.OpenReadWrite(newname, category)
	}
	return f.FS.ReuseForWrite(oldname, newname, category)
}
