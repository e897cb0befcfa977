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
	// limitSteps is how many requests of about the size that the target takes lately must go well in a row
	// before a larger one is tried, and limitGrowth what part of itself is added to the limit then. Each try
	// in vain doubles the steps to the next one, up to maxLimitSteps.
	limitSteps, maxLimitSteps, limitGrowth = 8, 128, 8
	// cutSize is the size in bytes of a request from which on it may be its size for which a server hangs
	// up on it.
	cutSize = 64 << 10
)

// sizeLimit is how large requests may be that a target takes: it halves when one is refused for its size, but
// not to less than one that was taken, and grows back, so that a limit that was changed is found again. It is
// safe for concurrent use.
type sizeLimit struct {
	most int // bytes; what it begins with

	mu     sync.Mutex
	size   int // 0: most
	proven int // bytes; the largest that was taken since one that was no larger was refused
	took   int // requests in a row of about that size
	steps  int // requests in a row before a larger one is tried; set with proven
}

// limit is the size in bytes that a request of more than one document should not exceed.
func (l *sizeLimit) limit() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now()
}

func (l *sizeLimit) now() int {
	if l.size == 0 {
		return l.most
	}
	return l.size
}

// refused notes that a request of so many bytes was too large: the limit is less from now on.
func (l *sizeLimit) refused(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proven >= size {
		l.proven = 0
	}
	to := max(size/2, l.proven, 1)
	if to >= l.now() {
		return // one of those that were under way when the limit became less
	}
	if to == l.proven {
		l.steps = min(2*l.steps, maxLimitSteps)
	}
	l.size, l.took = to, 0
}

// taken notes that a request of so many bytes was not.
func (l *sizeLimit) taken(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if now == l.most || size < now/2 {
		return
	}
	if size > l.proven {
		l.proven, l.steps = size, limitSteps
	}
	if l.took++; l.took >= l.steps {
		l.size, l.took = min(l.most, now+now/limitGrowth+1), 0
	}
}

// fit is how many of n values, and at least one, a request has room for, and how large it is then.
func (l *sizeLimit) fit(n int, size func(int) int) (fits, total int) {
	limit := l.limit()
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
	if e, ok := errors.AsType[*couch.Error](err); ok && e.Status == 0 && size > cutSize {
		for _, cut := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
			if errors.Is(err, cut) {
				return true
			}
		}
	}
	return errors.Is(err, couch.ErrTooLarge)
}
