//go:build unix

package script

import (
	"fmt"

	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// memory is the memory of an instance: addresses that are reserved at once, and pages that are added when the instance
// asks for more.
type memory struct {
	pages   []byte
	allowed *allowance // of the present call
}

func newMemory(size int) (*memory, error) {
	pages, err := unix.Mmap(-1, 0, size, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("reserving memory for a script: %w", err)
	}
	return &memory{pages: pages}, nil
}

// Allocate returns the memory: an instance has one.
func (m *memory) Allocate(_, _ uint64) experimental.LinearMemory { return m }

// Reallocate returns the first bytes of the memory, or nil if there are not as many, or the call may not have them.
func (m *memory) Reallocate(size uint64) []byte {
	if size > m.allowed.memory {
		m.allowed.more = true
		return nil
	}
	if size > uint64(len(m.pages)) || unix.Mprotect(m.pages[:size], unix.PROT_READ|unix.PROT_WRITE) != nil {
		return nil
	}
	return m.pages[:size:size]
}

// Free gives all of the memory back.
func (m *memory) Free() { _ = unix.Munmap(m.pages) } // it is mapped
