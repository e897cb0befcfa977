//go:build !unix

package script

import "github.com/tetratelabs/wazero/experimental"

// memory is the memory of an instance.
type memory struct {
	content []byte
	limit   uint64
	allowed *allowance // of the present call
}

func newMemory(size int) (*memory, error) { return &memory{limit: uint64(size)}, nil }

// Allocate returns the memory: an instance has one.
func (m *memory) Allocate(_, _ uint64) experimental.LinearMemory { return m }

// Reallocate returns memory of a size, or nil if that is more than there may be, or than the call may have.
func (m *memory) Reallocate(size uint64) []byte {
	if size > m.allowed.memory {
		m.allowed.more = true
		return nil
	}
	if size > m.limit {
		return nil
	}
	if size > uint64(cap(m.content)) {
		m.content = append(make([]byte, 0, min(2*size, m.limit)), m.content...)
	}
	m.content = m.content[:size]
	return m.content
}

// Free does nothing: the memory is collected.
func (m *memory) Free() {}
