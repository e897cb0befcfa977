package shares

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
)

// owners returns all owners that have jobs, read in several transactions.
func (s *Shares) owners(ctx context.Context) (all []fdbjobs.Owner, err error) {
	for after := ""; ; after = all[len(all)-1].Name {
		some, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]fdbjobs.Owner, error) {
			return s.queue.Owners(tx.Snapshot(), after, ownersAtOnce)
		})
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if len(some) < ownersAtOnce {
			return all, nil
		}
	}
}

// Share is the fair share of an owner: a replicator database, or a user of transient
// replications.
type Share struct {
	// Database or User is its name. The anonymous user has neither.
	Database, User string
	// Weight is its configured share, 0 if it is paused, Usage its decayed running time.
	Weight float64
	Usage  time.Duration
	// PausedSince is since when it is paused, and Before the weight that it had until then. Both are zero if it is not
	// paused, or if they are not known.
	PausedSince time.Time
	Before      float64
	// Jobs is the number of its jobs in each state of jobs that have not ended, without databases of mirrors that wait for their
	// turns.
	Jobs map[replicator.ShownState]int64
	// Ran is its fraction, from 0 to 1, of all running time of the last hour. Entitled is the
	// fraction that it was entitled to.
	Ran, Entitled float64
}

// List returns the owners that have jobs that have not ended, or that had some within the last
// hour, or that have another weight than the default, by name, databases before users.
func (s *Shares) List(ctx context.Context) ([]Share, error) {
	owners, err := s.owners(ctx)
	if err != nil {
		return nil, err
	}
	var weights map[string]float64
	var pauses map[string]pause
	if err := s.db.Transact(ctx, func(tx kv.Transaction) (err error) {
		if weights, err = s.queue.Weights(tx.Snapshot()); err != nil {
			return err
		}
		pauses, err = s.pauses(tx.Snapshot(), weights)
		return err
	}); err != nil {
		return nil, err
	}
	ran, err := s.lastHour(ctx, timesRan)
	if err != nil {
		return nil, err
	}
	entitled, err := s.lastHour(ctx, timesEntitled)
	if err != nil {
		return nil, err
	}
	byName := map[string]*Share{}
	at := func(owner string) *Share {
		share := byName[owner]
		if share == nil {
			share = &Share{Weight: fdbjobs.DefaultWeight}
			share.Database, _, share.User = ParseOwner(owner)
			byName[owner] = share
		}
		return share
	}
	for _, o := range owners {
		if o.Pending+o.Running == 0 {
			continue // its row is removed soon
		}
		share := at(o.Name)
		share.Usage = time.Duration(o.Usage) * time.Millisecond
		_, paused := pauses[o.Name]
		share.Jobs = liveJobs(o, s.pending, paused)
	}
	for owner, weight := range weights {
		share := at(owner)
		share.Weight, share.PausedSince, share.Before = weight, pauses[owner].since, pauses[owner].before
	}
	for owner, part := range ran {
		at(owner).Ran = part
	}
	for owner, part := range entitled {
		at(owner).Entitled = part
	}
	return s.existing(ctx, byName)
}

// existing returns the shares sorted, without the shares of deleted databases.
func (s *Shares) existing(ctx context.Context, byName map[string]*Share) ([]Share, error) {
	names := slices.SortedFunc(maps.Keys(byName), func(a, b string) int {
		x, y := byName[a], byName[b]
		return cmp.Or(cmp.Compare(kind(x), kind(y)), cmp.Compare(x.Database, y.Database), cmp.Compare(x.User, y.User))
	})
	shares := make([]Share, 0, len(names))
	for some := range slices.Chunk(names, ownersAtOnce) {
		found, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (found []Share, err error) {
			for _, name := range some {
				share, owner := byName[name], name
				if share.Database != "" {
					if owner, err = s.ownerOf(tx.Snapshot(), share.Database); err != nil {
						return nil, err
					}
				}
				if owner == name {
					found = append(found, *share)
				}
			}
			return found, nil
		})
		if err != nil {
			return nil, err
		}
		shares = append(shares, found...)
	}
	return shares, nil
}

// kind orders databases before users.
func kind(s *Share) int {
	if s.Database != "" {
		return 0
	}
	return 1
}

// liveJobs returns how many of an owner's jobs are in each state of jobs that have not ended. pending has the states of pending
// jobs by tag.
func liveJobs(o fdbjobs.Owner, pending map[string]replicator.ShownState, paused bool) map[replicator.ShownState]int64 {
	jobs := map[replicator.ShownState]int64{replicator.ShownRunning: o.Running}
	count := func(tag string, n int64) {
		if state, counted := pending[tag]; paused && counted {
			jobs[replicator.ShownPaused] += n
		} else if counted {
			jobs[state] += n
		}
	}
	untagged := o.Pending
	for tag, n := range o.Tagged {
		count(tag, n)
		untagged -= n
	}
	count("", untagged)
	return jobs
}
