package couch

import (
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// The figures of the rate limiter, which are those of CouchDB's replicator where it has them.
const (
	baseInterval    = 20 * time.Millisecond // the first interval, and what a success takes off per settleTime
	backoffFactor   = 1.2                   // by which a refusal multiplies it
	longestInterval = 25 * time.Second      // where nothing is sent any more
	// settleTime is how long answers are expected to be those to requests sent before an interval changed.
	settleTime = 80 * time.Millisecond
	// An endpoint that has not answered anything for longer than idleTime beyond its interval loses
	// idleDecay of that interval for each unit of time.
	idleTime  = time.Second
	idleDecay = 2

	limiterShards = 16
)

// Limiter makes requests wait for endpoints that refuse them with 429. Everything in a process that
// talks to the same servers is to share one. The zero value is ready; a Limiter is not to be copied.
//
// What is limited is a method at a server: scheme, host, port, and the path before the database's name, through
// one proxy or none, and with one Host header.
// (CouchDB's replicator tells databases apart. Servers count by client or by account, so that what one
// database's requests found out holds for its neighbours.) A server that never answers 429 has no entry,
// and its requests do not wait.
//
// For the others there is an interval. Each request waits for half of it to all of it, at random, before it
// is sent. The interval is found by additive increase and multiplicative decrease of the rate:
//
//	429      the interval times 1.2, from 20 ms on, if its last raise was half an interval ago: until then
//	         the answers are to requests that were sent before it was raised
//	success  20 ms less for each 80 ms since it was changed, but a quarter of it at most, and nothing
//	         until an eighth of it has passed since the last 429
//	silence  a second after it should have been heard of: twice the time that has passed since
//
// Where an interval has come down to nothing the entry is gone. Where it has come up to Longest, requests
// end with [ErrTooManyRequests] instead of being sent. Retry-After holds all requests of its method back
// for so long, up to a minute, and lets them go over an interval's time.
type Limiter struct {
	// Longest is the interval at which the endpoint is left alone. Default: 25 s.
	Longest time.Duration

	shards [limiterShards]limiterShard
}

type limiterShard struct {
	mu    sync.Mutex
	all   map[limitKey]*restraint
	sweep time.Time // when expired entries are looked for next
}

// limitKey is what has an interval. A proxy, or another host than the URL's, may answer in the server's name: what
// it says counts for those who ask it.
type limitKey struct{ server, host, proxy, method string }

// limiterSeed spreads the keys over the shards.
var limiterSeed = maphash.MakeSeed()

// restraint is what is known of an endpoint that refused requests. Its interval is that of seen.
type restraint struct {
	interval time.Duration
	raised   time.Time // by a 429
	changed  time.Time // in either direction
	refused  time.Time // the latest 429
	seen     time.Time // the latest answer of any kind
	until    time.Time // Retry-After
}

func (l *Limiter) longest() time.Duration {
	if l.Longest > 0 {
		return l.Longest
	}
	return longestInterval
}

// with calls f with the shard of a key, locked.
func (l *Limiter) with(key limitKey, f func(s *limiterShard, now time.Time)) {
	s := &l.shards[maphash.Comparable(limiterSeed, key)%limiterShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if known := s.all[key]; known != nil && known.gone(now) {
		delete(s.all, key)
	}
	f(s, now)
}

// wait returns how long the next request waits, and whether the endpoint is to be left alone instead.
func (l *Limiter) wait(key limitKey) (wait time.Duration, alone bool) {
	l.with(key, func(s *limiterShard, now time.Time) {
		known := s.all[key]
		if known == nil {
			return
		}
		interval := known.at(now)
		if held := known.until.Sub(now); held > 0 {
			// Those that were held back are not to come back all at once.
			wait = held + rand.N(interval+1)
		} else {
			wait = interval/2 + rand.N(interval/2+1)
		}
		alone = interval >= l.longest()
	})
	return wait, alone
}

// note takes account of an answer.
func (l *Limiter) note(key limitKey, status int, retryAfter time.Duration) {
	switch {
	case status == http.StatusTooManyRequests:
		l.failure(key, retryAfter)
	case status == http.StatusRequestTimeout, status >= 500:
		// What an endpoint in trouble says is about the trouble, not about the rate.
	default:
		l.success(key)
	}
}

func (l *Limiter) failure(key limitKey, retryAfter time.Duration) {
	l.with(key, func(s *limiterShard, now time.Time) {
		s.expire(now, 2*l.longest())
		known := s.all[key]
		if known == nil {
			known = &restraint{seen: now}
			s.all[key] = known
		}
		known.interval = known.at(now)
		if now.Sub(known.raised) >= settles(known.interval/2) {
			raised := time.Duration(backoffFactor * float64(max(known.interval, baseInterval)))
			known.interval = min(raised, l.longest())
			known.raised, known.changed = now, now
		}
		known.refused, known.seen = now, now
		if until := now.Add(min(retryAfter, maxPause)); retryAfter > 0 && until.After(known.until) {
			known.until = until
		}
	})
}

func (l *Limiter) success(key limitKey) {
	l.with(key, func(s *limiterShard, now time.Time) {
		known := s.all[key]
		if known == nil {
			return
		}
		known.interval, known.seen = known.at(now), now
		if now.Sub(later(known.refused, known.until)) < settles(known.interval/8) {
			return
		}
		passed := min(now.Sub(later(known.changed, known.until)), settles(known.interval))
		known.interval -= time.Duration(float64(passed) * float64(baseInterval) / float64(settleTime))
		known.changed = now
		if known.gone(now) {
			delete(s.all, key)
		}
	})
}

// settles is a part of an interval, but not so short that the answers to requests that were sent at the
// same moment are taken for news.
func settles(part time.Duration) time.Duration { return max(part, settleTime) }

// at is the interval at a later time: what the endpoint's silence leaves of it.
func (r *restraint) at(now time.Time) time.Duration {
	silent := now.Sub(later(r.seen, r.until)) - r.interval
	if silent <= idleTime {
		return r.interval
	}
	return max(r.interval-idleDecay*silent, 0)
}

// gone reports whether there is nothing left to wait for.
func (r *restraint) gone(now time.Time) bool { return r.at(now) <= 0 && !now.Before(r.until) }

// expire drops the entries of endpoints that nobody has asked about since, every now and then.
func (s *limiterShard) expire(now time.Time, every time.Duration) {
	if s.all == nil {
		s.all = map[limitKey]*restraint{}
	}
	if now.Before(s.sweep) {
		return
	}
	s.sweep = now.Add(every)
	for key, known := range s.all {
		if known.gone(now) {
			delete(s.all, key)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
