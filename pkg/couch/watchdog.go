package couch

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptrace"
	"sync"
	"time"

	"settee/pkg/serverbudget"
)

// An answer is too slow if fewer than slowSize bytes arrive in each of slowTimes consecutive windows. A window is
// slowTime, or the time that the network may be silent if that is longer.
const (
	slowSize  = 1 << 10
	slowTime  = 10 * time.Second
	slowTimes = 5
)

// step is the step in which an exchange waits for the network, in words that follow "stalled".
type step string

const (
	stepResolve step = "while looking up the host's address"
	stepConnect step = "while connecting"
	stepTLS     step = "in the TLS handshake"
	stepSend    step = "while sending the request"
	stepAnswer  step = "while waiting for the answer"
	stepBody    step = "between two bytes of the answer"
)

// stallError is an ErrStalled with the step.
type stallError struct {
	step step
	error
}

func (e *stallError) Unwrap() error { return e.error }

// waits are the times that the network may be silent: until the request is sent, before the answer, and in its body.
type waits struct{ connect, answer, idle time.Duration }

func (l waits) of(s step) time.Duration {
	switch s {
	case stepAnswer:
		return l.answer
	case stepBody:
		return l.idle
	}
	return l.connect
}

// watchdog ends an exchange when no bytes have moved for as long as its step allows, or hardly any for much longer. It
// counts only the time in which the exchange waits for the network, not the time in which the caller reads or provides
// data.
type watchdog struct {
	limits waits
	end    func()

	mu        sync.Mutex
	timer     *time.Timer
	due       time.Time // when the timer ends; zero while the exchange does not wait
	step      step
	connected bool // other connection attempts no longer count
	answered  bool // the response has begun; the request's body no longer counts
	stopped   bool
	stalled   error
	pace      pace
}

// watch starts a watchdog that waits for a connection. It calls end at most once.
func watch(limits waits, end func()) *watchdog {
	w := &watchdog{limits: limits, end: end, step: stepConnect}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = time.Now().Add(limits.connect) // not after the timer ends
	w.timer = time.AfterFunc(limits.connect, w.bark)
	return w
}

func (w *watchdog) bark() {
	w.mu.Lock()
	if w.due.IsZero() || time.Now().Before(w.due) { // something has moved while the timer ended
		w.mu.Unlock()
		return
	}
	if !w.stopped {
		w.stalled = &stallError{w.step, fmt.Errorf("%w %s: nothing moved for %s", ErrStalled, w.step, w.limits.of(w.step))}
	}
	w.mu.Unlock()
	w.end()
}

// why returns the error of a stall, or nil.
func (w *watchdog) why() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stalled
}

// where returns the current step.
func (w *watchdog) where() step {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.step
}

// set records whether the exchange waits for the network. The caller holds w.mu.
func (w *watchdog) set(waiting bool) {
	switch {
	case w.stopped:
	case waiting:
		limit := w.limits.of(w.step)
		w.due = time.Now().Add(limit)
		w.timer.Reset(limit)
	default:
		w.due = time.Time{}
		w.timer.Stop()
	}
}

// trace reports each step before the answer to the watchdog, with a wait of its own. got is called with the connection.
func (w *watchdog) trace(got func(net.Conn)) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.connected = false
			w.enter(stepConnect)
		},
		DNSStart:          func(httptrace.DNSStartInfo) { w.dialing(stepResolve) },
		DNSDone:           func(httptrace.DNSDoneInfo) { w.dialing(stepConnect) },
		ConnectStart:      func(string, string) { w.dialing(stepConnect) },
		ConnectDone:       func(string, string, error) { w.dialing(stepConnect) },
		TLSHandshakeStart: func() { w.dialing(stepTLS) },
		TLSHandshakeDone:  func(tls.ConnectionState, error) { w.dialing(stepConnect) },
		GotConn: func(info httptrace.GotConnInfo) {
			got(info.Conn)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.connected = true
			w.enter(stepSend)
		},
		WroteRequest: func(httptrace.WroteRequestInfo) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.enter(stepAnswer)
		},
	}
}

// enter begins a step before the answer. The caller holds w.mu.
func (w *watchdog) enter(s step) {
	if !w.answered {
		w.step = s
		w.set(true)
	}
}

// dialing begins a step before the connection. The connection may be for a later request: a waiting request takes any
// that becomes free.
func (w *watchdog) dialing(s step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.connected {
		w.enter(s)
	}
}

// sending records whether the exchange waits for the network to accept the request.
func (w *watchdog) sending(waiting bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.answered {
		w.set(waiting)
	}
}

// answer records that the answer has begun, or that there is none.
func (w *watchdog) answer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = true
	w.set(false)
}

// receiving records that the exchange waits for the answer's next bytes. It fails if the answer has been too slow so
// far.
func (w *watchdog) receiving() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pace.err != nil {
		return w.pace.err
	}
	w.step = stepBody
	w.pace.since = time.Now()
	w.set(true)
	return nil
}

// received records n bytes of the answer.
func (w *watchdog) received(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.set(false)
	w.pace.add(n, max(w.limits.idle, slowTime))
}

// rest records whether the next bytes are heartbeats, which may be few.
func (w *watchdog) rest(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pace.rest = on
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}

// pace detects an answer so slow that it may never end.
type pace struct {
	rest   bool
	since  time.Time // of the current read
	waited time.Duration
	bytes  int
	slow   int // number of slow windows in a row
	err    error
}

// add counts n bytes received since p.since.
func (p *pace) add(n int, window time.Duration) {
	if p.rest {
		return
	}
	p.waited += time.Since(p.since)
	p.bytes += n
	if p.waited < window {
		return
	}
	p.slow++
	if p.bytes >= slowSize {
		p.slow = 0
	}
	if p.slow == slowTimes {
		p.err = fmt.Errorf("%w: %d bytes in %s, and as few in the time before", ErrTooSlow, p.bytes, p.waited.Round(time.Second))
	}
	p.waited, p.bytes = 0, 0
}

// upload is a request body with a watchdog.
type upload struct {
	r   io.Reader
	w   *watchdog
	may func() error // Config.Sending

	budget *serverbudget.Stream
}

// The transport calls Read when the network has accepted the bytes of the last call.
func (u *upload) Read(p []byte) (int, error) {
	u.w.sending(false)
	defer u.w.sending(true)
	if u.may != nil {
		if err := u.may(); err != nil {
			return 0, err
		}
	}
	most, err := u.budget.Take(len(p))
	if err != nil {
		return 0, err
	}
	n, err := u.r.Read(p[:most])
	u.budget.Moved(n)
	if err != nil {
		u.budget.Done()
	}
	return n, err
}

// Close does nothing. The caller that made the reader closes it.
func (u *upload) Close() error { return nil }
