package docbody

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"settee/pkg/budget"
)

// spoolMemory is the maximum size in bytes of a body kept in memory. Larger ones are in a file.
const spoolMemory = 1 << 20

const (
	// spoolFree is the size of the buffer that is used without taking memory.
	spoolFree = 4 << 10
	// spoolStep is the number of bytes of disk space that are taken at a time.
	spoolStep = 1 << 20
)

// Spool is a received body that can be read repeatedly and at any position. The file of a large one has no name, so it
// disappears when the spool is closed or the process ends.
type Spool struct {
	opts    SpoolOptions
	memory  []byte
	file    *os.File // if not nil, all of the body
	size    int64
	taken   int64 // bytes of opts.Memory
	spooled int64 // bytes of opts.Disk
}

var _ io.ReaderAt = (*Spool)(nil)

// SpoolOptions says where a body is kept, and how large it may be.
type SpoolOptions struct {
	Limit Limit
	// Dir is the directory of the files. The default is the system's.
	Dir string
	// Memory and Disk, if they are not nil, are what memory and disk space are taken from while a body arrives. Close gives
	// them back. A body goes to a file early if there is no memory for it.
	Memory interface {
		TryTake(bytes int64) bool
		Give(bytes int64)
	}
	Disk interface {
		Take(ctx context.Context, bytes int64, share budget.Share) error
		Give(bytes int64)
	}
	// Context ends the wait for disk space. nil means that nothing ends it.
	Context context.Context
}

// NewSpool reads a body to its end. It returns an [Error] with the code [TooLarge], or an error of body, of Disk or of a
// file.
func NewSpool(body io.Reader, opts SpoolOptions) (*Spool, error) {
	if limit := opts.Limit.Bytes; limit > 0 && limit < math.MaxInt64 {
		body = io.LimitReader(body, limit+1)
	}
	s := &Spool{opts: opts}
	whole, err := s.toMemory(body)
	if err == nil && !whole {
		err = s.toFile(body)
	}
	if err == nil && !opts.Limit.allows(s.size) {
		err = opts.Limit.refuse(TooLarge, "the request body")
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// toMemory reads a body into memory. whole is false if more of it may follow, for which there is no room.
func (s *Spool) toMemory(body io.Reader) (whole bool, err error) {
	for room := spoolFree; ; room *= 2 {
		if room > spoolFree {
			if room > spoolMemory || !s.takeMemory(int64(room)) {
				return false, nil
			}
		}
		s.memory = append(make([]byte, 0, room), s.memory...)
		n, err := io.ReadFull(body, s.memory[len(s.memory):room])
		s.memory = s.memory[:len(s.memory)+n]
		s.size = int64(len(s.memory))
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return true, nil
		default:
			return false, err
		}
	}
}

// takeMemory takes memory for a buffer of a size, instead of a smaller one.
func (s *Spool) takeMemory(size int64) bool {
	if s.opts.Memory != nil {
		if !s.opts.Memory.TryTake(size - s.taken) {
			return false
		}
		s.taken = size
	}
	return true
}

// giveMemory gives back what was taken for the buffer.
func (s *Spool) giveMemory() {
	s.memory = nil
	if s.opts.Memory != nil {
		s.opts.Memory.Give(s.taken)
		s.taken = 0
	}
}

// toFile writes the bytes so far and the rest of the body to a file.
func (s *Spool) toFile(rest io.Reader) error {
	file, err := os.CreateTemp(s.opts.Dir, "settee-body-")
	if err != nil {
		return fmt.Errorf("spooling a request body: %w", err)
	}
	s.file = file
	if err := os.Remove(file.Name()); err != nil {
		return fmt.Errorf("spooling a request body: %w", err)
	}
	if err := s.takeDisk(s.size); err != nil {
		return err
	}
	if _, err := file.Write(s.memory); err != nil {
		return fmt.Errorf("spooling a request body: %w", err)
	}
	s.giveMemory()
	for {
		if err := s.takeDisk(s.size + spoolStep); err != nil {
			return err
		}
		n, err := io.CopyN(file, rest, spoolStep)
		s.size += n
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// takeDisk takes disk space, so that the spool has enough for a size.
func (s *Spool) takeDisk(size int64) error {
	if s.opts.Disk == nil || size <= s.spooled {
		return nil
	}
	ctx := s.opts.Context
	if ctx == nil {
		ctx = context.Background()
	}
	if err := s.opts.Disk.Take(ctx, size-s.spooled, budget.All); err != nil {
		return err
	}
	s.spooled = size
	return nil
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
	s.giveMemory()
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	if s.opts.Disk != nil {
		s.opts.Disk.Give(s.spooled)
		s.spooled = 0
	}
	return err
}
