package couch

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// watchdog ends an exchange in which nothing has moved for its limit. It counts only the time during
// which the exchange waits for the network: a caller that is slow to read, or slow to say what is to be
// written, is not a stall.
type watchdog struct {
	limit time.Duration

	mu       sync.Mutex
	timer    *time.Timer
	answered bool // the response has begun: what the request's body does no longer counts
	stopped  bool
	barked   atomic.Bool
}

// watch starts a watchdog that is waiting for the network. It calls end at most once.
func watch(limit time.Duration, end func()) *watchdog {
	w := &watchdog{limit: limit}
	w.timer = time.AfterFunc(limit, func() {
		w.barked.Store(true)
		end()
	})
	return w
}

func (w *watchdog) set(waiting bool) {
	switch {
	case w.stopped:
	case waiting:
		w.timer.Reset(w.limit)
	default:
		w.timer.Stop()
	}
}

// sending says whether the exchange waits for the network to take the request.
func (w *watchdog) sending(waiting bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.answered {
		w.set(waiting)
	}
}

// receiving says whether the exchange waits for the response's next bytes.
func (w *watchdog) receiving(waiting bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = true
	w.set(waiting)
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}

// upload is a request's body under a watchdog.
type upload struct {
	r io.Reader
	w *watchdog
}

// Read is called when the network has taken what the last call returned.
func (u *upload) Read(p []byte) (int, error) {
	u.w.sending(false)
	defer u.w.sending(true)
	return u.r.Read(p)
}

// Close does nothing: who made the reader ends it.
func (u *upload) Close() error { return nil }
