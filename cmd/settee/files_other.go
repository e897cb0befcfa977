//go:build !unix

package main

import "os"

// keepFilesPrivate keeps the files that this process creates for its user alone, where files have permissions.
func keepFilesPrivate() {}

// openTo returns the permissions of a directory that others than its owner have, or 0 if there are none.
func openTo(string) os.FileMode { return 0 }

// ownerOf reports that the owner is not known.
func ownerOf(os.FileInfo) (user, group int, known bool) { return 0, 0, false }

// openFiles returns how many files and connections this process may have open, or 0 if any number.
func openFiles() int { return 0 }
