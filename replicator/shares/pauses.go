package shares

import (
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// pause is since when a database is paused, and its weight before. Both are zero if they are not known.
type pause struct {
	since  time.Time
	before float64
}

func (s *Shares) pauseKey(owner string) []byte { return s.space.Pack("paused", owner) }

// setWeight sets the weight of an owner, and notes when that pauses it.
func (s *Shares) setWeight(tx kv.Transaction, owner string, weight float64) error {
	weights, err := s.queue.Weights(tx, owner)
	before := weights[owner]
	if err != nil || before == weight {
		return err
	}
	switch {
	case weight == 0:
		tx.Set(s.pauseKey(owner), tuple.Tuple{time.Now().Unix(), before}.Pack())
	case before == 0:
		tx.Clear(s.pauseKey(owner))
	}
	return s.queue.SetWeight(tx, owner, weight)
}

// Paused returns the pauses of those of some owners that are paused. Without owners it returns the pauses of all. Since is zero if it is
// not known.
func (s *Shares) Paused(tx kv.ReadTransaction, some ...string) (map[string]*replicator.Pause, error) {
	weights, err := s.queue.Weights(tx, some...)
	if err != nil {
		return nil, err
	}
	pauses, err := s.pauses(tx, weights)
	paused := make(map[string]*replicator.Pause, len(pauses))
	for owner, p := range pauses {
		paused[owner] = &replicator.Pause{Since: p.since}
	}
	return paused, err
}

// pauses returns the pauses of the owners whose weight is 0.
func (s *Shares) pauses(tx kv.ReadTransaction, weights map[string]float64) (map[string]pause, error) {
	var owners []string
	for owner, weight := range weights {
		if weight == 0 {
			owners = append(owners, owner)
		}
	}
	values, err := kv.Each(owners, func(owner string) kv.Future[[]byte] { return tx.Get(s.pauseKey(owner)) })
	if err != nil {
		return nil, err
	}
	pauses := make(map[string]pause, len(owners))
	for i, value := range values {
		if pauses[owners[i]], err = parsePause(value); err != nil {
			return nil, err
		}
	}
	return pauses, nil
}

// parsePause parses a row, nil if there is none.
func parsePause(value []byte) (p pause, err error) {
	if value == nil {
		return p, nil
	}
	var since int64
	if err := rows.Scan("when a database was paused", value, &since, &p.before); err != nil {
		return pause{}, err
	}
	p.since = time.Unix(since, 0)
	return p, nil
}
