package couch

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptrace"
	"sync"
	"time"
)

// Of an answer's body more than slowSize bytes come in each slowTime (or time that the network may be
// silent, if that is longer), or else not less than that slowTimes in a row.
const (
	slowSize  = 1 << 10
	slowTime  = 10 * time.Second
	slowTimes = 5
)

// step is where an exchange waits for the network, in words that follow "stalled".
type step string

const (
	stepResolve step = "while looking up the host's address"
	stepConnect step = "while connecting"
	stepTLS     step = "in the TLS handshake"
	stepSend    step = "while sending the request"
	stepAnswer  step = "while waiting for the answer"
	stepBody    step = "between two bytes of the answer"
)

// waits are how long the network may be silent: until there is a connection and the request is sent,
// before the answer, and in its body.
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

// watchdog ends an exchange in which nothing has moved for as long as its step may take, or hardly
// anything for much longer. It counts only the time during which the exchange waits for the network: a
// caller that is slow to read, or slow to say what is to be written, is not a stall.
type watchdog struct {
	limits waits
	end    func()

	mu        sync.Mutex
	timer     *time.Timer
	step      step
	connected bool // what other connections do that were tried does not count any more
	answered  bool // the response has begun: what the request's body does no longer counts
	stopped   bool
	stalled   error
	pace      pace
}

// watch starts a watchdog that is waiting for a connection. It calls end at most once.
func watch(limits waits, end func()) *watchdog {
	w := &watchdog{limits: limits, end: end, step: stepConnect}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(limits.connect, w.bark)
	return w
}

func (w *watchdog) bark() {
	w.mu.Lock()
	if !w.stopped {
		w.stalled = fmt.Errorf("%w %s: nothing moved for %s", ErrStalled, w.step, w.limits.of(w.step))
	}
	w.mu.Unlock()
	w.end()
}

// why is the error of a stall, or nil.
func (w *watchdog) why() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stalled
}

// where is the step that the exchange is in.
func (w *watchdog) where() step {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.step
}

// set says whether the exchange waits for the network. w.mu is held.
func (w *watchdog) set(waiting bool) {
	switch {
	case w.stopped:
	case waiting:
		w.timer.Reset(w.limits.of(w.step))
	default:
		w.timer.Stop()
	}
}

// trace tells the watchdog of each step on the way to an answer: each is a wait of its own. got is told of
// the connection.
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

// enter goes on to a step before the answer. w.mu is held.
func (w *watchdog) enter(s step) {
	if !w.answered {
		w.step = s
		w.set(true)
	}
}

// dialing goes on to a step on the way to a connection. It may be one for later: a request that waits for
// a connection takes another one that becomes free.
func (w *watchdog) dialing(s step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.connected {
		w.enter(s)
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

// answer says that the answer has begun, or that there is none.
func (w *watchdog) answer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = true
	w.set(false)
}

// receiving says that the exchange waits for the answer's next bytes. Its error is that of an answer that
// was too slow until now.
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

// received says that n bytes of the answer have come.
func (w *watchdog) received(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.set(false)
	w.pace.add(n, max(w.limits.idle, slowTime))
}

// rest says that the bytes to come are signs of life, however few, until it is told otherwise.
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

// pace tells an answer that is slow from one that is made to last for ever.
type pace struct {
	rest   bool
	since  time.Time // of the read under way
	waited time.Duration
	bytes  int
	slow   int // how many windows in a row were slow
	err    error
}

// add counts n bytes that have come since p.since.
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

// upload is a request's body under a watchdog.
type upload struct {
	r   io.Reader
	w   *watchdog
	may func() error // Config.Sending
}

// Read is called when the network has taken what the last call returned.
func (u *upload) Read(p []byte) (int, error) {
	u.w.sending(false)
	defer u.w.sending(true)
	if u.may != nil {
		if err := u.may(); err != nil {
			return 0, err
		}
	}
	return u.r.Read(p)
}

// Close does nothing: who made the reader ends it.
func (u *upload) Close() error { return nil }
