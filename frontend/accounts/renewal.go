package accounts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"settee/frontend/internal/auth"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/kv"
)

const (
	// maxRenewals is the most hashes in the queue. Others are renewed after a later login.
	maxRenewals = 100
	// renewWithin is the longest that one renewal may take.
	renewWithin = 30 * time.Second
)

// replace stores a new hash of an account, unless the account has changed since its old hash was
// read, and reports whether it did.
type replace func(ctx context.Context, hash auth.Hash) (bool, error)

// renewal is a hash to be renewed, and its password.
type renewal struct {
	name, password string
	hash           auth.Hash
	ofAdmin        bool
	replace        replace
}

// offer queues an account's hash for renewal if it is weaker than a new one. It does nothing if
// the queue is full or has that name already.
func (a *Accounts) offer(found account, password string) {
	cfg := a.config.Current()
	prf, iterations := ofNewHashes(cfg)
	if found.replace == nil || !config.UpgradeHashOnAuth.Get(cfg) || !found.hash.IsWeaker(prf, iterations) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.renewing[found.Name] {
		return
	}
	select {
	case a.renewals <- renewal{found.Name, password, found.hash, found.IsAdmin(), found.replace}:
		a.renewing[found.Name] = true
	default:
	}
}

// RenewHashes renews weak hashes after logins, one at a time, until ctx ends. Hashes are renewed only while it runs.
func (a *Accounts) RenewHashes(ctx context.Context) {
	for {
		select {
		case r := <-a.renewals:
			renewed, err := a.renew(ctx, r)
			a.mu.Lock()
			delete(a.renewing, r.name)
			a.mu.Unlock()
			switch {
			case err != nil && ctx.Err() == nil:
				a.log.Warn().Err(err).Str("name", r.name).Msg("the hash of a password could not be renewed; the next login will retry")
			case renewed:
				a.log.Info().Str("name", r.name).Msg("a weak hash of a password was renewed")
			}
		case <-ctx.Done():
			return
		}
	}
}

func (a *Accounts) renew(ctx context.Context, r renewal) (renewed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, renewWithin)
	defer cancel()
	prf, iterations := ofNewHashes(a.config.Current())
	var hash auth.Hash
	if err := a.slowly(ctx, func() { hash = r.renewed(prf, iterations) }); err != nil {
		return false, err
	}
	return r.replace(ctx, hash)
}

// renewed returns the new hash. Documents of users are replicated, so they keep even a weak salt: a random one would make
// a conflict with the renewal of another server, and a user whose document has conflicts cannot log in.
func (r *renewal) renewed(prf string, iterations int) auth.Hash {
	if r.ofAdmin && !r.hash.HasStrongSalt() {
		return auth.NewHash(r.password, prf, iterations)
	}
	return r.hash.Renew(r.password, prf, iterations)
}

// replaceInDocument returns a replace for one revision of a user's document. It does nothing if
// the document has another winning revision by then.
func replaceInDocument(db *docstore.Database, id string, rev docstore.Rev) replace {
	return func(ctx context.Context, hash auth.Hash) (bool, error) {
		doc, err := db.Get(ctx, id, docstore.GetOptions{Rev: rev})
		if err != nil {
			return notChanged(err)
		}
		edit := docstore.Edit{ID: id, Rev: rev}
		if edit.Body, err = hashedBody(doc.Body, hash); err != nil {
			return false, err
		}
		for _, attachment := range doc.Attachments {
			edit.Attachments = append(edit.Attachments, docstore.EditAttachment{Name: attachment.Name, Digest: attachment.Digest()})
		}
		if _, err := db.Put(ctx, edit); err != nil {
			return notChanged(err)
		}
		return true, nil
	}
}

// notChanged returns no error if err says that the document was written or deleted meanwhile.
func notChanged(err error) (bool, error) {
	for _, expected := range []error{docstore.ErrConflict, docstore.ErrNotFound, docstore.ErrDatabaseNotFound} {
		if errors.Is(err, expected) {
			return false, nil
		}
	}
	return false, fmt.Errorf("writing the document of a user: %w", err)
}

// replaceInConfig returns a replace for a value of [admins] in the store.
func (a *Accounts) replaceInConfig(name, was string) replace {
	return func(ctx context.Context, hash auth.Hash) (bool, error) {
		return a.config.Replace(ctx, "admins", name, was, hash.String())
	}
}

// replaceAgreed returns a replace for the shared hash of a plain password in the configuration.
func (a *Accounts) replaceAgreed(name, plain string, was auth.Hash) replace {
	key := a.space.Pack("admin", name)
	return func(ctx context.Context, hash auth.Hash) (bool, error) {
		replaced, err := kv.TransactValue(ctx, a.store, func(tx kv.Transaction) (bool, error) {
			now, err := tx.Get(key).Await()
			switch {
			case err != nil:
				return false, err
			case string(now) == hash.String(): // an earlier commit of this call, with an unknown result
				return true, nil
			case string(now) != was.String():
				return false, nil
			}
			tx.Set(key, []byte(hash.String()))
			return true, nil
		})
		if replaced {
			a.mu.Lock()
			a.hashed[name] = hashedAdmin{auth.MAC(a.process[:], name, plain), hash}
			a.mu.Unlock()
		}
		return replaced, err
	}
}
