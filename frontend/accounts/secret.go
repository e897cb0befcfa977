package accounts

import (
	"context"
	"crypto/rand"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

const secretPlace = "secret of sessions"

// readSecret returns the secret of sessions that the store has, which is that of whoever wrote it
// first.
func readSecret(ctx context.Context, db kv.Database, space tuple.Subspace, sealer kv.Sealer) (string, error) {
	if sealer == nil {
		sealer = kv.Plain{}
	}
	key, drawn := space.Pack("secret"), rand.Text()
	return kv.TransactValue(ctx, db, func(tx kv.Transaction) (string, error) {
		stored, err := tx.Get(key).Await()
		if err != nil {
			return "", err
		}
		if stored == nil {
			tx.Set(key, sealer.Seal([]byte(drawn), secretPlace))
			return drawn, nil
		}
		secret, err := sealer.Open(stored, secretPlace)
		return string(secret), err
	})
}

// Forget removes the secret of sessions if it is sealed with a key, which is lost: the next frontend that
// starts makes another one, and who had a session has to log in again.
func Forget(tx kv.Transaction, prefix []byte, sealer kv.Sealer, keyID string) error {
	key := tuple.SubspaceFromBytes(prefix).Pack("secret")
	stored, err := tx.Get(key).Await()
	if err == nil && stored != nil && sealer.KeyID(stored) == keyID {
		tx.Clear(key)
	}
	return err
}

// Reseal returns with which key the secret of sessions is sealed, if there is one, as the number 1
// by the key's id; the empty id is that of a plain one. If keyID is not empty it is that of the key
// that is sealed with now, and a secret with another is sealed anew, unless it cannot be opened.
func Reseal(ctx context.Context, db kv.Database, prefix []byte, sealer kv.Sealer, keyID string) (map[string]int64, error) {
	key := tuple.SubspaceFromBytes(prefix).Pack("secret")
	return kv.TransactValue(ctx, db, func(tx kv.Transaction) (map[string]int64, error) {
		stored, err := tx.Get(key).Await()
		if err != nil || stored == nil {
			return nil, err
		}
		found := sealer.KeyID(stored)
		if keyID != "" && found != keyID {
			if secret, err := sealer.Open(stored, secretPlace); err == nil {
				tx.Set(key, sealer.Seal(secret, secretPlace))
			}
		}
		return map[string]int64{found: 1}, nil
	})
}
