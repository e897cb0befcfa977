package accounts

import (
	"container/list"
	"context"
	"crypto/rand"
	"sync"
	"time"

	"settee/frontend/internal/auth"
	"settee/pkg/config"
	"settee/pkg/retry"
)

const (
	// maxCounted is the most names, addresses and pairs whose failures are counted.
	maxCounted = 10_000
	// firstDelay is the delay of a login when the failures have reached the threshold. Each
	// further failure doubles it, up to the longest.
	firstDelay      = 100 * time.Millisecond
	longestDelay    = 5 * time.Second // for the failures of an address
	longestForNames = time.Second     // for the failures of a name, because its owner has to wait too
	// maxDelayed is the most delayed logins of an address under way, maxAttempts the most others,
	// so that no address takes all of maxWaiting.
	maxDelayed  = 8
	maxAttempts = maxWaiting / 2
	// maxNewPasswords is the most passwords of one address that are hashed, or wait for it, because users who are no
	// administrators write documents with them.
	maxNewPasswords = 8
)

// lockout has the settings of [chttpd_auth_lockout].
type lockout struct {
	mode      string
	threshold int
	lifetime  time.Duration
}

func lockoutOf(cfg *config.Config) lockout {
	return lockout{config.LockoutMode.Get(cfg), config.LockoutThreshold.Get(cfg), config.LockoutLifetime.Get(cfg)}
}

// attempt is an attempt to log in.
type attempt struct {
	name, salt string // a new password has another salt, and is not locked
	address    string
	lockout    lockout
}

// subject is what failures are counted for: a name, an address or both, as a MAC, which is short
// for long names too.
type subject [32]byte

func (f *failures) both(at attempt) subject {
	return auth.MAC(f.key[:], "both", at.address, at.salt, at.name)
}

func (f *failures) address(at attempt) subject { return auth.MAC(f.key[:], "address", at.address) }

func (f *failures) name(at attempt) subject { return auth.MAC(f.key[:], "name", at.name) }

// failures counts the failures to log in.
type failures struct {
	key      [32]byte
	mu       sync.Mutex
	counts   map[subject]*list.Element
	oldest   *list.List     // of *count, in the order in which they began
	attempts map[string]int // under way, by address; new passwords are counted apart
}

// count is the failures of one name, address or pair.
type count struct {
	of    subject
	n     int
	since time.Time
}

func newFailures() *failures {
	f := &failures{counts: map[subject]*list.Element{}, oldest: list.New(), attempts: map[string]int{}}
	_, _ = rand.Read(f.key[:]) // never fails
	return f
}

// locked reports whether an attempt must be refused.
func (f *failures) locked(at attempt, now time.Time) bool {
	return at.lockout.mode == "enforce" && f.number(f.both(at), at.lockout.lifetime, now) >= at.lockout.threshold
}

func (f *failures) number(of subject, lifetime time.Duration, now time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if element, found := f.counts[of]; found {
		if c := element.Value.(*count); now.Sub(c.since) < lifetime {
			return c.n
		}
	}
	return 0
}

// add counts a failure.
func (f *failures) add(at attempt, now time.Time) {
	if at.lockout.mode == "off" {
		return
	}
	subjects := []subject{f.both(at), f.address(at), f.name(at)}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range subjects {
		f.addOne(of, at.lockout.lifetime, now)
	}
}

func (f *failures) addOne(of subject, lifetime time.Duration, now time.Time) {
	element, found := f.counts[of]
	if found {
		if c := element.Value.(*count); now.Sub(c.since) < lifetime {
			c.n++
			return
		}
		f.oldest.Remove(element)
	}
	f.counts[of] = f.oldest.PushBack(&count{of: of, n: 1, since: now})
	for f.oldest.Len() > maxCounted {
		first := f.oldest.Front()
		delete(f.counts, first.Value.(*count).of)
		f.oldest.Remove(first)
	}
}

// begin waits for the delay of an attempt. The caller calls end after the check. It returns
// ErrTooMany or ctx's error.
func (f *failures) begin(ctx context.Context, at attempt) (end func(), err error) {
	if at.lockout.mode != "enforce" {
		return func() {}, nil
	}
	now := time.Now()
	wait := max(
		delay(f.number(f.address(at), at.lockout.lifetime, now)-at.lockout.threshold, longestDelay),
		delay(f.number(f.name(at), at.lockout.lifetime, now)-at.lockout.threshold, longestForNames))
	most := maxAttempts
	if wait > 0 {
		most = maxDelayed
	}
	if !f.enter(at.address, most) {
		return nil, ErrTooMany
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return func() { f.leave(at.address) }, nil
	case <-ctx.Done():
		f.leave(at.address)
		return nil, ctx.Err()
	}
}

func delay(over int, longest time.Duration) time.Duration {
	if over < 0 {
		return 0
	}
	return retry.Backoff{First: firstDelay, Most: longest}.After(over, 0)
}

func (f *failures) enter(address string, most int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attempts[address] >= most {
		return false
	}
	f.attempts[address]++
	return true
}

func (f *failures) leave(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attempts[address]--; f.attempts[address] == 0 {
		delete(f.attempts, address)
	}
}
