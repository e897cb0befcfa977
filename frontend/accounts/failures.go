package accounts

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
	"time"

	"settee/pkg/config"
)

const (
	// maxCounted is how many names, addresses and pairs of them failures are counted of.
	maxCounted = 10_000
	// firstDelay is how long an attempt waits when the failures have reached the threshold. Each
	// further one doubles that, up to the longest.
	firstDelay      = 100 * time.Millisecond
	longestDelay    = 5 * time.Second // of an address
	longestForNames = time.Second     // of a name: its owner waits as well
	// maxDelayed is how many attempts of one address wait.
	maxDelayed = 8
)

// rules are what the configuration says of failures.
type rules struct {
	mode      string
	threshold int
	lifetime  time.Duration
}

func rulesOf(cfg *config.Config) rules {
	return rules{config.LockoutMode.Get(cfg), config.LockoutThreshold.Get(cfg), config.LockoutLifetime.Get(cfg)}
}

// attempt is an attempt to log in.
type attempt struct {
	name, salt string // a new password has another salt, and is not locked
	address    string
	rules      rules
}

func (at attempt) pair() string { return "both\x00" + at.address + "\x00" + at.salt + "\x00" + at.name }

// network returns what stands for an address: of IPv6 its network, which one client has as a whole.
func network(address string) string {
	if port, err := netip.ParseAddrPort(address); err == nil {
		address = port.Addr().String()
	}
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if prefix, err := addr.Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return addr.String()
}

// failures counts the failures to log in.
type failures struct {
	mu      sync.Mutex
	counts  map[string]*list.Element
	oldest  *list.List     // of *count, in the order in which they began
	delayed map[string]int // attempts that wait, by address
}

// count is the failures of one name, address or pair.
type count struct {
	of    string
	n     int
	since time.Time
}

func newFailures() *failures {
	return &failures{counts: map[string]*list.Element{}, oldest: list.New(), delayed: map[string]int{}}
}

// locked reports whether an attempt is not to be made.
func (f *failures) locked(at attempt, now time.Time) bool {
	return at.rules.mode == "enforce" && f.number(at.pair(), at.rules.lifetime, now) >= at.rules.threshold
}

func (f *failures) number(of string, lifetime time.Duration, now time.Time) int {
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
	if at.rules.mode == "off" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range []string{at.pair(), "address\x00" + at.address, "name\x00" + at.name} {
		f.addOne(of, at.rules.lifetime, now)
	}
}

func (f *failures) addOne(of string, lifetime time.Duration, now time.Time) {
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

// slow waits as long as an attempt has to. The error is ErrTooMany, or ctx's.
func (f *failures) slow(ctx context.Context, at attempt) error {
	if at.rules.mode != "enforce" {
		return nil
	}
	now := time.Now()
	wait := max(
		delay(f.number("address\x00"+at.address, at.rules.lifetime, now)-at.rules.threshold, longestDelay),
		delay(f.number("name\x00"+at.name, at.rules.lifetime, now)-at.rules.threshold, longestForNames))
	if wait == 0 {
		return nil
	}
	if !f.enter(at.address) {
		return ErrTooMany
	}
	defer f.leave(at.address)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func delay(over int, longest time.Duration) time.Duration {
	if over < 0 {
		return 0
	}
	return min(firstDelay<<min(over, 10), longest)
}

func (f *failures) enter(address string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.delayed[address] >= maxDelayed {
		return false
	}
	f.delayed[address]++
	return true
}

func (f *failures) leave(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.delayed[address]--; f.delayed[address] == 0 {
		delete(f.delayed, address)
	}
}
