package accounts

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"settee/frontend/internal/auth"
	"settee/pkg/docstore"
	"settee/pkg/kv"
)

// keptSteps is the number of time steps of 30 seconds, an hour, for which logins with one-time
// passwords are recorded. A one-time password is accepted in three. The rest allows for frontends
// whose clock is ahead, so that they do not remove rows that others need.
const keptSteps = 120

func (a *Accounts) usedKey(step int64, name string) []byte {
	return a.space.Pack("onetime", step, name)
}

// logins returns the ids of a user's logins with the one-time passwords of a time step and of
// later ones. It also reads the step after the last one that is right now, because a frontend
// whose clock is ahead may have recorded a login there.
func (a *Accounts) logins(tx kv.ReadTransaction, name string, step int64) ([]string, error) {
	_, last := auth.OneTimeSteps(time.Now())
	var reads []kv.Future[[]byte]
	for ; step <= last+1; step++ {
		reads = append(reads, tx.Get(a.usedKey(step, name)))
	}
	var ids []string
	for _, read := range reads {
		id, err := read.Await()
		if err != nil {
			return nil, err
		}
		if id != nil {
			ids = append(ids, string(id))
		}
	}
	return ids, nil
}

// isFresh reports whether a user has not logged in with the one-time password of a time step, or of a later one.
func (a *Accounts) isFresh(ctx context.Context, name string, step int64) (bool, error) {
	if len(name) > docstore.MaxIDSize { // too long for a key, and no such user exists
		return true, nil
	}
	earlier, err := kv.TransactValue(ctx, a.store, func(tx kv.Transaction) ([]string, error) {
		return a.logins(tx.Snapshot(), name, step)
	})
	return len(earlier) == 0, err
}

// use records a login with the one-time password of a time step, and reports whether it was
// fresh. If several logins call it at the same time, one gets true. It also removes the rows of
// all users that are older than keptSteps.
func (a *Accounts) use(ctx context.Context, name string, step int64) (fresh bool, err error) {
	id := rand.Text()
	return kv.TransactValue(ctx, a.store, func(tx kv.Transaction) (bool, error) {
		earlier, err := a.logins(tx, name, step)
		if err != nil {
			return false, err
		}
		if len(earlier) > 0 {
			return slices.Contains(earlier, id), nil // an earlier commit of this call, with an unknown result
		}
		tx.Set(a.usedKey(step, name), []byte(id))
		begin, _ := a.space.Sub("onetime").Range()
		tx.ClearRange(kv.KeyRange{Begin: begin, End: a.space.Pack("onetime", step-keptSteps)})
		return true, nil
	})
}
