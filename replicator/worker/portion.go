package worker

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"settee/pkg/couch"
)

const (
	// portionSteps is how many requests of about the size that the target takes lately must go well in a row
	// before a larger one is tried, and portionGrowth what part of itself is added to the size then.
	portionSteps, portionGrowth = 8, 8
	// cutPortion is the size in bytes of a request from which on it may be its size for which a server hangs
	// up on it.
	cutPortion = 64 << 10
)

// portion is how large requests may be that a target takes: it halves when one is refused for its size, and
// grows back, so that a limit that was changed is found again. It is safe for concurrent use.
type portion struct {
	most int // bytes; what it begins with

	mu   sync.Mutex
	size int // 0: most
	took int // requests in a row of about that size
}

// limit is the size in bytes that a request of more than one document should not exceed.
func (p *portion) limit() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now()
}

func (p *portion) now() int {
	if p.size == 0 {
		return p.most
	}
	return p.size
}

// refused notes that a request of so many bytes was too large.
func (p *portion) refused(size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size, p.took = min(p.now(), max(size/2, 1)), 0
}

// taken notes that a request of so many bytes was not.
func (p *portion) taken(size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if now == p.most || size < now/2 {
		return
	}
	if p.took++; p.took == portionSteps {
		p.size, p.took = min(p.most, now+now/portionGrowth+1), 0
	}
}

// fit is how many of n values, and at least one, a request has room for, and how large it is then.
func (p *portion) fit(n int, size func(int) int) (fits, total int) {
	limit := p.limit()
	for fits < n {
		next := size(fits)
		if fits > 0 && total+next > limit {
			break
		}
		total += next
		fits++
	}
	return fits, total
}

// isTooLarge reports whether a target may have refused a request of more than one document, of so many bytes,
// for its size: because it says so, or because it hangs up on large ones.
func isTooLarge(err error, size int) bool {
	if e, ok := errors.AsType[*couch.Error](err); ok && e.Status == 0 && size > cutPortion {
		for _, cut := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
			if errors.Is(err, cut) {
				return true
			}
		}
	}
	return errors.Is(err, couch.ErrTooLarge)
}
