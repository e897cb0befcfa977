package accounts_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/accounts"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
)

// codeAt returns the one-time password at a time, for the key of RFC 6238, appendix B.
func codeAt(at time.Time) string {
	mac := hmac.New(sha1.New, []byte("12345678901234567890"))
	_ = binary.Write(mac, binary.BigEndian, at.Unix()/30)
	sum := mac.Sum(nil)
	offset := sum[len(sum)-1] & 0xf
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[offset:])&(1<<31-1)%1_000_000)
}

// withFactor writes the document of a user with a second factor.
func (n *node) withFactor(name string) docstore.Rev {
	n.Helper()
	return n.write(docstore.Rev{}, name, map[string]any{"password": "pass", "totp": map[string]any{"key": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"}})
}

// twice logs in with a one-time password.
func (n *node) twice(name, password, oneTime string) error {
	n.Helper()
	_, err := n.LoginTwice(n.Context(), name, password, oneTime, here)
	return err
}

// used returns the number of recorded logins with one-time passwords.
func used(t *testing.T, db kv.Database) int {
	t.Helper()
	return kvtest.Holding(t, db, []byte("accounts"), "onetime")
}

const (
	step      = 30 * time.Second
	noLockout = "chttpd_auth_lockout/mode=off"
)

// RFC 6238, section 5.2: no frontend accepts a one-time password again, or one of an earlier
// step.
func TestOneTimePasswordsAreGoodOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory(t)
		one, other := open(t, db, noLockout), open(t, db, noLockout)
		one.withFactor("ann")
		one.withFactor("bob")
		one.user("eve", "pass")
		now := time.Now()
		codes := []string{codeAt(now), codeAt(now.Add(step)), codeAt(now.Add(2 * step))}

		require.ErrorIs(t, one.twice("ann", "guess", codes[0]), accounts.ErrWrong)
		assert.Zero(t, used(t, db), "a wrong password does not use it up")
		require.NoError(t, one.twice("ann", "pass", codes[0]))
		for _, n := range []*node{one, other} {
			require.ErrorIs(t, n.twice("ann", "pass", codes[0]), accounts.ErrWrong)
		}
		require.NoError(t, other.twice("bob", "pass", codes[0]), "another user has a password of its own with the same digits")

		// The next one is accepted early, and the one between is then too old.
		time.Sleep(step)
		require.NoError(t, other.twice("ann", "pass", codes[2]))
		for _, n := range []*node{one, other} {
			for _, code := range codes {
				require.ErrorIs(t, n.twice("ann", "pass", code), accounts.ErrWrong)
			}
		}
		require.NoError(t, one.twice("bob", "pass", codes[1]))
		require.NoError(t, one.twice("bob", "pass", codes[2]))

		// A login without a second factor writes nothing, even if it sends a token.
		before := used(t, db)
		require.NoError(t, one.twice("eve", "pass", codes[2]))
		one.is([]string{"eve"}, "eve", "pass")
		assert.Equal(t, before, used(t, db))
	})
}

// Rows of used one-time passwords are removed, also those of users that are deleted.
func TestUsedOneTimePasswordsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory(t)
		n := open(t, db)
		for i := range 20 {
			n.withFactor(fmt.Sprint("user", i))
			require.NoError(t, n.twice(fmt.Sprint("user", i), "pass", codeAt(time.Now())))
		}
		assert.Equal(t, 20, used(t, db))
		users, err := n.docs.Database(t.Context(), accounts.Database)
		require.NoError(t, err)
		require.NoError(t, users.Delete(t.Context()))
		time.Sleep(2 * time.Hour)
		n.withFactor("ann")
		require.NoError(t, n.twice("ann", "pass", codeAt(time.Now())))
		assert.Equal(t, 1, used(t, db))
	})
}

// A used one-time password does not help to guess the password, which is hashed each time, as
// with a wrong one-time password.
func TestUsedOneTimePasswordsTellNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t), noLockout)
		n.withFactor("ann")
		require.NoError(t, n.twice("ann", "pass", codeAt(time.Now())))
		for _, password := range []string{"pass", "guess", "pass"} {
			for _, oneTime := range []string{codeAt(time.Now()), "000000"} {
				hashed := n.CountHashed()
				require.ErrorIs(t, n.twice("ann", password, oneTime), accounts.ErrWrong)
				assert.EqualValues(t, 1, hashed.Load(), "%s %s", password, oneTime)
			}
		}
	})
}

// A used one-time password counts as a failure.
func TestUsedOneTimePasswordsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t))
		n.withFactor("ann")
		code := codeAt(time.Now())
		require.NoError(t, n.twice("ann", "pass", code))
		for range 5 {
			require.ErrorIs(t, n.twice("ann", "pass", code), accounts.ErrWrong)
		}
		require.ErrorIs(t, n.twice("ann", "pass", codeAt(time.Now().Add(step))), accounts.ErrLocked)
	})
}

// A login that is refused because of conflicts does not use up its one-time password.
func TestConflictsUseNoOneTimePassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory(t)
		n := open(t, db)
		n.withFactor("ann")
		users, err := n.docs.Database(t.Context(), accounts.Database)
		require.NoError(t, err)
		doc, err := users.Get(t.Context(), "org.couchdb.user:ann", docstore.GetOptions{})
		require.NoError(t, err)
		results, err := users.Write(t.Context(), []docstore.Edit{{ID: doc.ID, Pos: 1, Path: []string{"zz"}, Body: docjson.Must(doc.Body)}},
			docstore.WriteOptions{Replicated: true})
		require.NoError(t, err)
		require.NoError(t, results[0].Err)
		require.ErrorIs(t, n.twice("ann", "pass", codeAt(time.Now())), accounts.ErrConflicts)
		assert.Zero(t, used(t, db))
	})
}

// Of several logins at the same time with the same one-time password, exactly one succeeds.
func TestOneTimePasswordsInParallel(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			db := faultkv.Wrap(memory(t), faultkv.Options{Seed: seed, Rates: faultkv.Rates{
				faultkv.Conflict: 0.1, faultkv.UnknownCommitted: 0.2, faultkv.UnknownNotCommitted: 0.1,
			}})
			nodes := []*node{open(t, db, noLockout), open(t, db, noLockout)}
			nodes[0].withFactor("ann")
			code, errs := codeAt(time.Now()), make(chan error, 16)
			for i := range cap(errs) {
				go func() { errs <- nodes[i%2].twice("ann", "pass", code) }()
			}
			succeeded := 0
			for range cap(errs) {
				if err := <-errs; err == nil {
					succeeded++
				} else {
					require.ErrorIs(t, err, accounts.ErrWrong)
				}
			}
			assert.Equal(t, 1, succeeded, seed)
		})
	}
}

// A commit with an unknown result does not make a login fail.
func TestOneTimePasswordsOfUnknownCommits(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			db := faultkv.Wrap(memory(t), faultkv.Options{Seed: seed, Rates: faultkv.Rates{
				faultkv.UnknownCommitted: 0.5, faultkv.UnknownNotCommitted: 0.1,
			}})
			n := open(t, db)
			n.withFactor("ann")
			for range 4 {
				code := codeAt(time.Now())
				require.NoError(t, n.twice("ann", "pass", code), seed)
				require.ErrorIs(t, n.twice("ann", "pass", code), accounts.ErrWrong)
				time.Sleep(2 * minute)
			}
		})
	}
}
