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
	// After limitSteps successful requests in a row of about the limit's size, the limit grows by 1/limitGrowth. Each
	// time that fails, the steps double, up to maxLimitSteps.
	limitSteps, maxLimitSteps, limitGrowth = 8, 128, 8
	// cutSize is the request size in bytes above which a closed connection may mean that the request was too large.
	cutSize = 64 << 10
)

// sizeLimit is the size limit for requests to the target. It halves when a request is refused for its size, but not
// below a size that was accepted. It grows again, because the server's limit may have been raised. It is safe for
// concurrent use.
type sizeLimit struct {
	most int // initial limit in bytes

	mu     sync.Mutex
	size   int // 0: most
	proven int // bytes; largest accepted size below any refused one
	took   int // successes in a row at about the current limit
	steps  int // successes needed before the limit grows; set with proven
}

// limit returns the size in bytes that a request of several documents should not exceed.
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

// refused lowers the limit after a request of size bytes was too large.
func (l *sizeLimit) refused(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proven >= size {
		l.proven = 0
	}
	to := max(size/2, l.proven, 1)
	if to >= l.now() {
		return // the request was sent before the limit fell
	}
	if to == l.proven {
		l.steps = min(2*l.steps, maxLimitSteps)
	}
	l.size, l.took = to, 0
}

// taken records that a request of size bytes was accepted.
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

// fit returns how many of n values fit in a request, at least one, and their total size.
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

// isTooLarge reports whether a target may have refused a request of size bytes for its size: it said so, or it closed
// the connection on a large request.
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
