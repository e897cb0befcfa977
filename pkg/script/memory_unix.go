//go:build unix

package script

import (
	"fmt"

	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// memory is the memory of an instance: addresses that are reserved at once, and pages that are added when the instance
// asks for more.
type memory []byte

func newMemory(size int) (memory, error) {
	m, err := unix.Mmap(-1, 0, size, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("reserving memory for a script: %w", err)
	}
	return m, nil
}

// Allocate returns the memory: an instance has one.
func (m memory) Allocate(_, _ uint64) experimental.LinearMemory { return m }

// Reallocate returns the first bytes of the memory, or nil if there are not as many.
func (m memory) Reallocate(size uint64) []byte {
	if size > uint64(len(m)) || unix.Mprotect(m[:size], unix.PROT_READ|unix.PROT_WRITE) != nil {
		return nil
	}
	return m[:size:size]
}

// Free gives all of the memory back.
func (m memory) Free() { _ = unix.Munmap(m) } // it is mapped
