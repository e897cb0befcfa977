package watch

import (
	"context"
	"iter"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// targetLogins is the number of jobs whose logins are tried for one page, besides the login that was answered before.
	targetLogins = 3
	// refusedFor is how long a login is not tried again that a server has refused.
	refusedFor = time.Hour
	// mixedFor is how long a server is not recognized by its identity after it has had two in turn.
	mixedFor = 24 * time.Hour
	// maxTargetServers is the number of servers that a node remembers, and maxRefused the number of logins that it remembers of
	// each. With more it starts again.
	maxTargetServers = 10_000
	maxRefused       = 1_000
)

// targetServer is what a node knows of a server that has targets of parked jobs. All watches of the node share it: what has the
// same route.Key is answered by the same machine.
type targetServer struct {
	seed seed

	mu       sync.Mutex
	good     credentials // the login that has last got an answer about databases, if known is true
	known    bool
	refused  map[uint64]refusal // of logins
	identity string             // the latest one
	former   map[string]bool    // identities before it
	mixed    time.Time          // when a former one was seen again
}

// refusal says that a server has refused a login an answer about databases.
type refusal struct {
	at time.Time
	// greets reports that the server has said who it is. Otherwise the password may be wrong, and tries may lock the account.
	greets bool
}

// targetServer returns what the node knows of a server.
func (w *Watcher) targetServer(key string) *targetServer {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.targets[key]
	if known == nil {
		if len(w.targets) >= maxTargetServers {
			clear(w.targets)
		}
		known = &targetServer{seed: newSeed(), refused: map[uint64]refusal{}, former: map[string]bool{}}
		w.targets[key] = known
	}
	return known
}

// logins yields the logins to ask a server with: of the settings, the one that was answered last, and of some of the jobs of the
// question, at random. All of them are in the settings or in their jobs now.
func (s *targetServer) logins(ctx context.Context, q *targetQuestion) iter.Seq[credentials] {
	return func(yield func(credentials) bool) {
		if c, ok := q.configuredLoginFor(q.server); ok && !yield(c) {
			return
		}
		var ids []string
		s.mu.Lock()
		if s.known && s.good.jobID != "" {
			ids = append(ids, s.good.jobID)
		}
		s.mu.Unlock()
		for _, at := range rand.Perm(len(q.rows))[:min(len(q.rows), targetLogins)] {
			ids = append(ids, q.rows[at].JobID)
		}
		for _, id := range ids {
			c, ok, err := q.targetCredentials(ctx, q.server, id)
			if err != nil {
				q.storeFailed(ctx, err)
				return
			}
			if ok && !yield(c) {
				return
			}
		}
	}
}

// mayAsk reports what a login may ask, as far as is known: which server it is, and about several databases.
func (s *targetServer) mayAsk(c credentials) (who, databases bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	no, ok := s.refused[s.seed.hash(c)]
	if !ok || time.Since(no.at) >= refusedFor {
		return true, true
	}
	return no.greets, false
}

// refuses records that the server has refused a login an answer about databases, and whether it has said who it is.
func (s *targetServer) refuses(c credentials, greets bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known && sameEndpoint(s.good.endpoint, c.endpoint) {
		s.known = false
	}
	if len(s.refused) >= maxRefused {
		clear(s.refused)
	}
	s.refused[s.seed.hash(c)] = refusal{time.Now(), greets}
}

// answers records that a login has got an answer about databases.
func (s *targetServer) answers(c credentials) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.good, s.known = c, true
}

// isOne reports whether the server is recognized by its identity, which it has just answered with. It is not while it comes back to a
// former one: nodes of a cluster that were given different uuids answer in turn, and none of them has lost anything.
func (s *targetServer) isOne(identity string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if identity != "" && identity != s.identity {
		if s.former[identity] {
			s.mixed = now
			clear(s.former)
		}
		if s.identity != "" {
			s.former[s.identity] = true
		}
		s.identity = identity
	}
	return s.mixed.IsZero() || now.Sub(s.mixed) >= mixedFor
}
