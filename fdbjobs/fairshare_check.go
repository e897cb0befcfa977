package fdbjobs

import (
	"errors"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// ofOwner checks a row of an owner, which needs a row in owners. A row without it is cleared.
func (c *checker) ofOwner(k keyed, what string) (func() error, error) {
	var owner string
	if !k.as(&owner) {
		return nil, k.unknown()
	}
	account := k.Get(k.queue.share.accounts.Pack(owner))
	return func() error {
		value, err := account.Await()
		if err == nil && value == nil {
			k.Stray(k.Key, "%s of an owner that is not in fair share", what)
		}
		return err
	}, nil
}

func (c *checker) waiting(k keyed) (func() error, error) { return c.ofOwner(k, "waiting") }

func (c *checker) charges(k keyed) (func() error, error) {
	if _, err := rows.ParseInt(k.Value); err != nil {
		k.Stray(k.Key, "the charges of an owner: the value is not one that settee writes")
		return nil, nil
	}
	return c.ofOwner(k, "charges")
}

// account checks a row in owners, and that it has its rank.
func (c *checker) account(k keyed) (func() error, error) {
	var owner string
	if !k.as(&owner) {
		return nil, k.unknown()
	}
	s, err := parseAccount(k.Value)
	if err != nil {
		k.unreadable("an owner's usage")
		return nil, nil
	}
	share := k.queue.share
	ranks := [2][]byte{share.ranks.Pack(rankIdle, s.rank, owner), share.ranks.Pack(rankWaiting, s.rank, owner)}
	reads := []kv.Future[[]byte]{k.Get(ranks[rankIdle]), k.Get(ranks[rankWaiting]), k.Get(share.waiting.Pack(owner))}
	weight := share.readWeight(k, owner)
	return func() error {
		values, err := kv.All(reads)
		if err != nil {
			return err
		}
		part := partOf(values[2])
		paused, err := awaitPaused(weight)
		if err == nil && !paused && values[part] == nil {
			k.Wrong(ranks[part], nil, "the owner %q has no rank", owner)
		}
		return err
	}, nil
}

// awaitPaused reports whether an owner's weight says that it is paused. A weight that cannot be read is a fault of its own.
func awaitPaused(reading kv.Future[float64]) (bool, error) {
	weight, err := reading.Await()
	if errors.Is(err, tuple.ErrMalformed) {
		return false, nil
	}
	return err == nil && weight == 0, err
}

func (c *checker) rank(k keyed) (func() error, error) {
	var part int64
	var rank float64
	var owner string
	if !k.as(&part, &rank, &owner) || part != rankIdle && part != rankWaiting {
		return nil, k.unknown()
	}
	share := k.queue.share
	reads := []kv.Future[[]byte]{k.Get(share.accounts.Pack(owner)), k.Get(share.waiting.Pack(owner))}
	weight := share.readWeight(k, owner)
	return func() error {
		values, err := kv.All(reads)
		if err != nil {
			return err
		}
		paused, err := awaitPaused(weight)
		if err != nil {
			return err
		}
		s, bad := parseAccount(values[0])
		if values[0] == nil || paused || bad == nil && (s.rank != rank || part != partOf(values[1])) {
			k.Stray(k.Key, "a rank of the owner %q that is not its own", owner)
		}
		return nil
	}, nil
}
