package accounts

import (
	"context"
	"crypto/rand"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// Sealer has the secret of sessions stored in a form that nobody reads who has but the store. A
// place is what it is part of: a Sealer opens it there alone.
type Sealer interface {
	// Seal returns what is stored of a text.
	Seal(text []byte, place ...string) []byte
	// Open returns the text. What was stored without a Sealer is one.
	Open(stored []byte, place ...string) ([]byte, error)
	// KeyID names the key that something was sealed with, empty if it is plain.
	KeyID(stored []byte) string
}

// plain is the Sealer of a store that has none.
type plain struct{}

func (plain) Seal(text []byte, _ ...string) []byte            { return text }
func (plain) Open(stored []byte, _ ...string) ([]byte, error) { return stored, nil }
func (plain) KeyID([]byte) string                             { return "" }

const secretPlace = "secret of sessions"

// readSecret returns the secret of sessions that the store has, which is that of whoever wrote it
// first.
func readSecret(ctx context.Context, db kv.Database, space tuple.Subspace, sealer Sealer) (string, error) {
	if sealer == nil {
		sealer = plain{}
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

// Reseal returns with which key the secret of sessions is sealed, if there is one, as the number 1
// by the key's id; the empty id is that of a plain one. If keyID is not empty it is that of the key
// that is sealed with now, and a secret with another is sealed anew, unless it cannot be opened.
func Reseal(ctx context.Context, db kv.Database, prefix []byte, sealer Sealer, keyID string) (map[string]int64, error) {
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
