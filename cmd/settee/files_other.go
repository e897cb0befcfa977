//go:build !unix

package main

// openFiles returns how many files and connections this process may have open, or 0 if any number.
func openFiles() int { return 0 }
