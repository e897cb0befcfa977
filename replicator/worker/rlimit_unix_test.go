//go:build unix

package worker_test

import "syscall"

// raiseFileLimit lets this process have as many open files as it may.
func raiseFileLimit() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	limit.Cur = limit.Max
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	return int(limit.Cur)
}
