package docbody

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// spoolMemory is the maximum size in bytes of a body kept in memory. Larger ones are in a file.
const spoolMemory = 1 << 20

// Spool is a received body that can be read repeatedly and at any position. The file of a large one has no name, so it
// disappears when the spool is closed or the process ends.
type Spool struct {
	memory []byte
	file   *os.File // if not nil, all of the body
	size   int64
}

var _ io.ReaderAt = (*Spool)(nil)

// NewSpool reads a body to its end. The errors are those of body, an [Error] with code [TooLarge], and those of a file.
func NewSpool(body io.Reader, limit Limit) (*Spool, error) {
	if limit.Bytes > 0 && limit.Bytes < math.MaxInt64 {
		body = io.LimitReader(body, limit.Bytes+1)
	}
	var memory bytes.Buffer
	_, err := memory.ReadFrom(io.LimitReader(body, spoolMemory+1))
	if err != nil {
		return nil, err
	}
	s := &Spool{memory: memory.Bytes(), size: int64(memory.Len())}
	if s.size > spoolMemory {
		if err := s.toFile(body); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if !limit.allows(s.size) {
		return nil, errors.Join(limit.refuse(TooLarge, "the request body"), s.Close())
	}
	return s, nil
}

// toFile writes the bytes so far and the rest of the body to a file.
func (s *Spool) toFile(rest io.Reader) error {
	file, err := os.CreateTemp("", "settee-body-")
	if err != nil {
		return fmt.Errorf("spooling a request body: %w", err)
	}
	s.file = file
	if err := os.Remove(file.Name()); err != nil {
		return fmt.Errorf("spooling a request body: %w", err)
	}
	if _, err := file.Write(s.memory); err != nil {
		return fmt.Errorf("spooling a request body: %w", err)
	}
	s.memory = nil
	n, err := io.Copy(file, rest)
	s.size += n
	return err
}

// Size returns the size of the body in bytes.
func (s *Spool) Size() int64 { return s.size }

// ReadAt implements io.ReaderAt.
func (s *Spool) ReadAt(p []byte, offset int64) (int, error) {
	if s.file != nil {
		return s.file.ReadAt(p, offset)
	}
	if offset >= s.size {
		return 0, io.EOF
	}
	n := copy(p, s.memory[offset:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Close releases the body. Inline attachments of its documents can then no longer be read.
func (s *Spool) Close() error {
	s.memory = nil
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
