package accounts

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"settee/frontend/internal/auth"
	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

const secretPlace = "secret of sessions"

// readSecret returns the secret of sessions in the store. The first frontend writes it.
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

// formerSecret is a secret that signed cookies until another one was set.
type formerSecret struct {
	secret   string
	replaced time.Time // when this process has noticed it
}

// maxFormer is the number of former secrets that are known.
const maxFormer = 10

// cookieSecret returns the secret that signs cookies.
func (a *Accounts) cookieSecret() string {
	secret := config.CookieSecret.Get(a.config.Current())
	if secret == "" {
		secret = a.secret
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if secret != a.signing {
		if a.signing != "" {
			a.former = slices.Insert(a.former, 0, formerSecret{a.signing, time.Now()})
			a.former = a.former[:min(len(a.former), maxFormer)]
		}
		a.signing = secret
	}
	return secret
}

// secretsOf returns the secrets that can have signed a cookie: the present one, and those that were replaced after the
// cookie was signed. So a session outlives a change of the secret, and no later cookie can be made with an earlier secret.
func (a *Accounts) secretsOf(cookie auth.Cookie) []string {
	secrets := []string{a.cookieSecret()}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.former {
		if !cookie.Signed.After(f.replaced) {
			secrets = append(secrets, f.secret)
		}
	}
	return secrets
}

// Forget removes the secret of sessions if it is sealed with a lost key. The next frontend that
// starts makes another one, and the users of existing sessions have to log in again.
func Forget(tx kv.Transaction, prefix []byte, sealer kv.Sealer, keyID string) error {
	key := tuple.SubspaceFromBytes(prefix).Pack("secret")
	stored, err := tx.Get(key).Await()
	if err == nil && stored != nil && sealer.KeyID(stored) == keyID {
		tx.Clear(key)
	}
	return err
}

// Reseal returns with which key the secret of sessions is sealed, if there is one, as the number 1
// by the key's id; the empty id counts plain ones. If keyID is not empty, it is the id of the
// key that sealer seals with now, and a secret that was sealed with another is sealed anew, unless
// it cannot be opened.
func Reseal(ctx context.Context, db kv.Database, prefix []byte, sealer kv.Sealer, keyID string) (map[string]int64, error) {
	key := tuple.SubspaceFromBytes(prefix).Pack("secret")
	only := kv.KeyRange{Begin: key, End: kv.KeyAfter(key)}
	return rows.Reseal(ctx, db, sealer, keyID, only, func(tx kv.Transaction, _ kv.KeyRange) ([]rows.Sealed, []byte, error) {
		stored, err := tx.Get(key).Await()
		if err != nil || stored == nil {
			return nil, nil, err
		}
		return []rows.Sealed{{Begin: key, Stored: stored, Reseal: func() {
			if secret, err := sealer.Open(stored, secretPlace); err == nil {
				tx.Set(key, sealer.Seal(secret, secretPlace))
			}
		}}}, nil, nil
	})
}
