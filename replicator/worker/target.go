package worker

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"settee/pkg/couch"
	"settee/replicator"
)

const (
	// identityTime is the longest time that a run waits for the identity of its target's server.
	identityTime = 10 * time.Second
	// identityFor is how long the runs of a node rely on an identity. If the server was replaced meanwhile, the job is woken once
	// for nothing.
	identityFor = time.Minute
	// maxIdentities is the number of identities from which on old ones are forgotten.
	maxIdentities = 1_000
)

// identities remembers for identityFor what servers have said of themselves. The zero value is ready to use.
type identities struct {
	mu    sync.Mutex
	known map[string]identity // by route.Key
}

type identity struct {
	text string
	at   time.Time
}

// of returns the identity of a server, for which it calls ask if it does not know it. It is empty, also for the next calls, if
// ask fails.
func (s *identities) of(ctx context.Context, server string, ask func(context.Context) (string, error)) string {
	s.mu.Lock()
	is, ok := s.known[server]
	s.mu.Unlock()
	if ok && time.Since(is.at) < identityFor {
		return is.text
	}
	asking, cancel := context.WithTimeout(ctx, identityTime)
	defer cancel()
	text, err := ask(asking)
	if err != nil {
		text = ""
	}
	if ctx.Err() != nil {
		return text
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]identity{}
	}
	if len(s.known) >= maxIdentities {
		for server, old := range s.known {
			if now.Sub(old.at) >= identityFor {
				delete(s.known, server)
			}
		}
	}
	s.known[server] = identity{text, now}
	return text
}

// openedTarget returns what is noted of the target when the job parks. A run that waits for changes does not notice that the target
// is another one meanwhile, so it is what the target was when the run began. The target of a mirror's database is compared by the
// mirror.
func (r *run) openedTarget(ctx context.Context) replicator.ParkedTarget {
	server, database, ok := r.rep.Target.Route()
	if !ok || r.rep.Mirrored != nil {
		return replicator.ParkedTarget{}
	}
	return replicator.ParkedTarget{
		Server: server, Database: database, Instance: Created(r.target.instance),
		Identity: r.identities.of(ctx, server, r.target.db.ServerIdentity),
	}
}

// Created returns the instance_start_time of a database if that is when it was created, in seconds since the Unix epoch; otherwise
// it is empty.
func Created(instanceStartTime json.RawMessage) string {
	return text(created(instance(couch.Info{InstanceStartTime: instanceStartTime})))
}

// TargetNow returns what the target of a replication is now, without the identity of its server, as that says to the credentials
// of the target. It makes one request, which it does not repeat, like [Changed]. Errors are *Error.
func TargetNow(ctx context.Context, r *replicator.Replication, cfg Config) (now replicator.TargetNow, err error) {
	err = askAt(r, "target", r.Target, cfg, func(target *peer) error {
		info, err := target.db.Info(ctx)
		if now.Missing = errors.Is(err, couch.ErrNoDatabase); now.Missing {
			return nil
		}
		now.Instance = Created(info.InstanceStartTime)
		return target.failed(replicator.RequestOpen, err)
	})
	return now, err
}
