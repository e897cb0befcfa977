//go:build !(linux || darwin || dragonfly || freebsd || netbsd || openbsd)

package main

import "os"

// hideTyping does nothing: on this system, a terminal hides what is typed only once the answer is read.
func hideTyping(*os.File) (restore func(), err error) { return func() {}, nil }
