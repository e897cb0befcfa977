package couch

import (
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// The parameters of the rate limiter have the values of CouchDB's replicator where it has them.
const (
	baseInterval    = 20 * time.Millisecond // the first interval, and the decrease per settleTime of success
	backoffFactor   = 1.2                   // factor of the increase after a refusal
	longestInterval = 25 * time.Second      // at which requests are no longer sent
	// settleTime is how long answers may belong to requests sent before the interval changed.
	settleTime = 80 * time.Millisecond
	// After idleTime beyond its interval without an answer, an endpoint's interval decays by idleDecay per unit of
	// time.
	idleTime  = time.Second
	idleDecay = 2

	limiterShards = 16
)

// Limiter delays requests to endpoints that refuse them with 429. All clients in a process should share one. The zero
// value is ready to use. A Limiter must not be copied.
//
// Each method at a server has its own limit. A server is a scheme, host, port and the path before the database's name,
// through one proxy or none, with the same headers: see [route.Key]. (CouchDB's replicator limits databases separately. But servers count
// by client or account, so one limit fits all databases.) A server that never answers 429 has no entry, and its
// requests do not wait.
//
// Other servers have an interval. Each request waits for a random time between half the interval and the whole of it.
// The interval follows additive increase and multiplicative decrease of the rate:
//
//	429      the interval times 1.2, from 20 ms on, if its last raise was half an interval ago: until then
//	         the answers are to requests that were sent before it was raised
//	success  20 ms less for each 80 ms since it was changed, but a quarter of it at most, and nothing
//	         until an eighth of it has passed since the last 429
//	silence  a second after it should have been heard of: twice the time that has passed since
//
// An interval of 0 removes the entry. At Longest, requests end with [ErrTooManyRequests] without being sent.
// Retry-After holds back all requests with its method for that long, up to a minute, and then spreads them over one
// interval.
type Limiter struct {
	// Longest is the interval at which requests are no longer sent. Default: 25 s.
	Longest time.Duration

	shards [limiterShards]limiterShard
}

type limiterShard struct {
	mu    sync.Mutex
	all   map[limitKey]*restraint
	sweep time.Time // time of the next search for expired entries
}

// limitKey identifies an interval.
type limitKey struct{ route, method string }

var limiterSeed = maphash.MakeSeed()

// restraint is the state of an endpoint that refused requests. interval is as of seen.
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

// with locks the shard of a key and calls f.
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

// wait returns how long the next request waits, and whether the endpoint should be left alone instead.
func (l *Limiter) wait(key limitKey) (wait time.Duration, alone bool) {
	l.with(key, func(s *limiterShard, now time.Time) {
		known := s.all[key]
		if known == nil {
			return
		}
		interval := known.at(now)
		if held := known.until.Sub(now); held > 0 {
			// Spread the requests that were held back.
			wait = held + rand.N(interval+1)
		} else {
			wait = interval/2 + rand.N(interval/2+1)
		}
		alone = interval >= l.longest()
	})
	return wait, alone
}

// note updates the interval after an answer.
func (l *Limiter) note(key limitKey, status int, retryAfter time.Duration) {
	switch {
	case status == http.StatusTooManyRequests:
		l.failure(key, retryAfter)
	case status == http.StatusRequestTimeout, status >= 500:
		// Other failures say nothing about the rate.
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
		if until := now.Add(min(retryAfter, MaxPause)); retryAfter > 0 && until.After(known.until) {
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
		if min(now.Sub(known.refused), now.Sub(known.until)) < settles(known.interval/8) {
			return
		}
		passed := min(now.Sub(known.changed), now.Sub(known.until), settles(known.interval))
		known.interval -= time.Duration(float64(passed) * float64(baseInterval) / float64(settleTime))
		known.changed = now
		if known.gone(now) {
			delete(s.all, key)
		}
	})
}

// settles returns part, a part of an interval, but at least settleTime.
func settles(part time.Duration) time.Duration { return max(part, settleTime) }

// at returns the interval at a later time, after the decay by silence.
func (r *restraint) at(now time.Time) time.Duration {
	silent := min(now.Sub(r.seen), now.Sub(r.until)) - r.interval
	if silent <= idleTime {
		return r.interval
	}
	return max(r.interval-idleDecay*silent, 0)
}

// gone reports whether the entry can be removed.
func (r *restraint) gone(now time.Time) bool { return r.at(now) <= 0 && !now.Before(r.until) }

// expire removes entries without an interval, at most once in every.
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
