package accounts_test

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha1"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/accounts"
	"settee/frontend/internal/auth"
	"settee/pkg/config"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv/faultkv"
)

const salt = "0123456789abcdef0123456789abcdef"

// oldHash returns the members of a document with an old hash of CouchDB's.
func oldHash(t *testing.T, scheme auth.Scheme, prf, salt, password string, iterations int) map[string]any {
	t.Helper()
	sum := sha1.Sum([]byte(password + salt))
	if scheme == auth.Simple {
		return map[string]any{"password_scheme": scheme, "salt": salt, "password_sha": hex.EncodeToString(sum[:])}
	}
	if scheme == auth.SimplePBKDF2 {
		password = hex.EncodeToString(sum[:])
	}
	require.Equal(t, "sha", prf)
	key, err := pbkdf2.Key(sha1.New, password, []byte(salt), iterations, sha1.Size)
	require.NoError(t, err)
	return map[string]any{"password_scheme": scheme, "salt": salt, "iterations": iterations, "derived_key": hex.EncodeToString(key)}
}

// renewing runs RenewHashes until the end of the test, or until the returned function is called.
func (n *node) renewing() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.RenewHashes(ctx) })
	end = func() {
		cancel()
		running.Wait()
	}
	n.Cleanup(end)
	return end
}

// document returns a user's document.
func (n *node) document(name string) (*docstore.Document, map[string]any) {
	n.Helper()
	db, err := n.docs.Database(n.Context(), accounts.Database)
	require.NoError(n, err)
	doc, err := db.Get(n.Context(), accounts.IDPrefix+name, docstore.GetOptions{})
	require.NoError(n, err)
	var members map[string]any
	require.NoError(n, json.Unmarshal(doc.Body, &members))
	return doc, members
}

// A hash that is weaker than a new one is replaced once, when its user logs in. Nothing else of the document changes.
func TestOldHashesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t))
		n.renewing()
		for name, hash := range map[string]map[string]any{
			"simple":   oldHash(t, auth.Simple, "", salt, "pass", 0),
			"sha":      oldHash(t, auth.PBKDF2, "sha", salt, "pass", 10),
			"few":      oldHash(t, auth.PBKDF2, "sha", salt, "pass", 9),
			"combined": oldHash(t, auth.SimplePBKDF2, "sha", salt, "pass", 10),
		} {
			hash["color"], hash["roles"] = "blue", []string{"staff"}
			before := n.write(docstore.Rev{}, name, hash)
			cookie := n.cookie(name)
			n.fails(accounts.ErrWrong, name, "guess")
			synctest.Wait()
			doc, _ := n.document(name)
			require.Equal(t, before, doc.Rev)

			n.is([]string{name, "staff"}, name, "pass")
			synctest.Wait()
			renewed, members := n.document(name)
			require.Equal(t, before.Pos+1, renewed.Rev.Pos, name)
			key := members["derived_key"]
			require.Equal(t, map[string]any{
				"type": "user", "name": name, "roles": []any{"staff"}, "color": "blue",
				"password_scheme": "pbkdf2", "pbkdf2_prf": "sha256", "salt": salt, "iterations": 10., "derived_key": key,
			}, members)
			require.Len(t, key, 64)

			session, _ := n.session(cookie)
			require.Equal(t, name, session, "sessions stay valid")
			for range 3 {
				n.is([]string{name, "staff"}, name, "pass")
				n.fails(accounts.ErrWrong, name, "guess")
				synctest.Wait()
			}
			doc, _ = n.document(name)
			require.Equal(t, renewed.Rev, doc.Rev)
		}
		assert.Contains(t, n.log.String(), `"name":"simple"`)
		assert.NotContains(t, n.log.String(), "pass\"")
	})
}

func TestHashesThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		off := open(t, memory(t), "chttpd_auth/upgrade_hash_on_auth=false")
		off.write(docstore.Rev{}, "ann", oldHash(t, auth.Simple, "", salt, "pass", 0))
		// A renewed hash has at most max_iterations, and a stronger hash is not replaced.
		slow := open(t, memory(t), "chttpd_auth/iterations=30", "chttpd_auth/max_iterations=20")
		slow.write(docstore.Rev{}, "ann", oldHash(t, auth.PBKDF2, "sha", salt, "pass", 10))
		strong := open(t, memory(t))
		hash := auth.NewHash("pass", "sha512", 11)
		strong.write(docstore.Rev{}, "ann", map[string]any{
			"password_scheme": hash.Scheme, "pbkdf2_prf": hash.PRF, "salt": hash.Salt, "iterations": hash.Iterations, "derived_key": hash.Key,
		})
		many := open(t, memory(t))
		many.write(docstore.Rev{}, "ann", oldHash(t, auth.PBKDF2, "sha", salt, "pass", 11))
		for want, n := range map[int64]*node{1: off, 2: slow} {
			n.renewing()
			n.is([]string{"ann"}, "ann", "pass")
			synctest.Wait()
			doc, members := n.document("ann")
			assert.Equal(t, want, doc.Rev.Pos)
			if want == 2 {
				assert.EqualValues(t, 20, members["iterations"])
			}
			n.is([]string{"ann"}, "ann", "pass")
		}
		for _, n := range []*node{strong, many} {
			n.renewing()
			n.is([]string{"ann"}, "ann", "pass")
			synctest.Wait()
			doc, _ := n.document("ann")
			assert.EqualValues(t, 1, doc.Rev.Pos)
		}
	})
}

// Two servers renew a hash into the same revision, so that their documents have no conflict when they are replicated.
func TestRenewalsAreTheSameEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := open(t, memory(t)), open(t, memory(t))
		one.renewing()
		two.renewing()
		for i, hash := range []map[string]any{
			oldHash(t, auth.Simple, "", salt, "pass", 0),
			oldHash(t, auth.Simple, "", "0123456789abcdef,;x", "pass", 0), oldHash(t, auth.SimplePBKDF2, "sha", "salt", "pass", 99),
			oldHash(t, auth.PBKDF2, "sha", "salt", "pass", 3),
			{"password_scheme": "pbkdf2", "pbkdf2_prf": "sha512", "iterations": 1, "salt": "aa", "derived_key": hex.EncodeToString(key512(t))},
		} {
			name := fmt.Sprint("user", i)
			revs := map[docstore.Rev]bool{}
			for _, n := range []*node{one, two} {
				n.write(docstore.Rev{}, name, hash)
				n.is([]string{name}, name, "pass")
				synctest.Wait()
				doc, members := n.document(name)
				require.Equal(t, hash["salt"], members["salt"])
				require.EqualValues(t, 2, doc.Rev.Pos)
				revs[doc.Rev] = true
				n.is([]string{name}, name, "pass")
			}
			require.Len(t, revs, 1, name)
		}
	})
}

func key512(t *testing.T) []byte {
	t.Helper()
	key, err := pbkdf2.Key(sha512.New, "pass", []byte("aa"), 1, sha512.Size)
	require.NoError(t, err)
	return key
}

// A salt in [admins] that is too short, or that [admins] cannot have in the form of a new hash, is replaced.
func TestWeakSaltsOfAdministrators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t))
		n.renewing()
		for i, weak := range []string{"", "salt", "0123456789abcdef,0123456789abcdef"} {
			name := fmt.Sprint("root", i)
			sum := sha1.Sum([]byte("pass" + weak))
			_, err := n.live.Set(t.Context(), "admins", name, "-hashed-"+hex.EncodeToString(sum[:])+","+weak)
			require.NoError(t, err)
			n.is([]string{name, "_admin"}, name, "pass")
			synctest.Wait()
			require.Regexp(t, "^-pbkdf2:sha256-[0-9a-f]{64},[0-9a-f]{32},10$", config.Admins.Get(n.live.Current())[name])
			n.is([]string{name, "_admin"}, name, "pass")
		}
	})
}

func TestRenewedDocumentsKeepAttachments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t))
		rev := n.write(docstore.Rev{}, "ann", oldHash(t, auth.Simple, "", salt, "pass", 0))
		db, err := n.docs.Database(t.Context(), accounts.Database)
		require.NoError(t, err)
		doc, _ := n.document("ann")
		upload, err := db.Upload(t.Context(), doc.ID, strings.NewReader("a picture"), docstore.UploadOptions{})
		require.NoError(t, err)
		_, err = db.Put(t.Context(), docstore.Edit{ID: doc.ID, Rev: rev, Body: docjson.Must(doc.Body),
			Attachments: []docstore.EditAttachment{{Name: "picture", Type: "text/plain", Upload: upload}}})
		require.NoError(t, err)
		n.renewing()
		n.is([]string{"ann"}, "ann", "pass")
		synctest.Wait()
		doc, members := n.document("ann")
		require.EqualValues(t, 3, doc.Rev.Pos)
		require.Equal(t, "pbkdf2", members["password_scheme"])
		require.Len(t, doc.Attachments, 1)
		require.EqualValues(t, 2, doc.Attachments[0].RevPos)
	})
}

// A change between the login and the renewal is not overwritten.
func TestRenewalsDoNotUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t))
		old := oldHash(t, auth.Simple, "", salt, "pass", 0)
		revs := map[string]docstore.Rev{}
		for _, name := range []string{"changed", "deleted", "again", "other"} {
			revs[name] = n.write(docstore.Rev{}, name, old)
			n.is([]string{name}, name, "pass")
		}
		db, err := n.docs.Database(t.Context(), accounts.Database)
		require.NoError(t, err)
		n.write(revs["changed"], "changed", map[string]any{"password": "word"})
		n.write(revs["other"], "other", map[string]any{
			"password_scheme": "simple", "salt": salt, "password_sha": old["password_sha"], "color": "blue",
		})
		for _, name := range []string{"deleted", "again"} {
			rev, err := db.Put(t.Context(), docstore.Edit{ID: accounts.IDPrefix + name, Rev: revs[name], Deleted: true})
			require.NoError(t, err)
			revs[name] = rev
		}
		n.write(docstore.Rev{}, "again", map[string]any{"password": "word"})

		n.renewing()
		synctest.Wait()
		for _, name := range []string{"changed", "again"} {
			n.is([]string{name}, name, "word")
			n.fails(accounts.ErrWrong, name, "pass")
		}
		n.fails(accounts.ErrWrong, "deleted", "pass")
		doc, members := n.document("other")
		require.EqualValues(t, 2, doc.Rev.Pos)
		require.Equal(t, "blue", members["color"])
		_, members = n.document("changed")
		require.Equal(t, "pbkdf2", members["password_scheme"])
	})
}

// Logins do not wait for renewals, however many there are.
func TestManyRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t))
		const users = 150
		old := oldHash(t, auth.Simple, "", salt, "pass", 0)
		for i := range users {
			n.write(docstore.Rev{}, fmt.Sprint("user", i), old)
			n.is([]string{fmt.Sprint("user", i)}, fmt.Sprint("user", i), "pass")
			n.is([]string{fmt.Sprint("user", i)}, fmt.Sprint("user", i), "pass")
		}
		renewed := func() (renewed int) {
			synctest.Wait()
			for i := range users {
				if doc, _ := n.document(fmt.Sprint("user", i)); doc.Rev.Pos > 1 {
					assert.EqualValues(t, 2, doc.Rev.Pos)
					renewed++
				}
			}
			return renewed
		}
		n.renewing()
		assert.Equal(t, 100, renewed())
	})
}

// A hash of [admins] in the store is renewed. One in a flag is not.
func TestHashesOfAdministrators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sum := sha1.Sum([]byte("pass" + salt))
		simple := "-hashed-" + hex.EncodeToString(sum[:]) + "," + salt
		db := memory(t)
		n := open(t, db, "admins/flagged="+simple, "admins/plain=pass")
		for _, name := range []string{"stored", "flagged"} {
			_, err := n.live.Set(t.Context(), "admins", name, simple)
			require.NoError(t, err)
		}
		cookies := map[string]string{}
		for _, name := range []string{"stored", "flagged", "plain"} {
			cookies[name] = n.cookie(name)
		}
		other := open(t, db, "admins/flagged="+simple, "admins/plain=pass", "chttpd_auth/iterations=20")
		n.renewing()
		other.renewing()
		for _, name := range []string{"stored", "flagged", "plain"} {
			n.is([]string{name, "_admin"}, name, "pass")
			synctest.Wait()
			other.is([]string{name, "_admin"}, name, "pass")
			synctest.Wait()
			for _, on := range []*node{n, other} {
				on.is([]string{name, "_admin"}, name, "pass")
				session, _ := on.session(cookies[name])
				assert.Equal(t, name, session)
			}
		}
		fresh := open(t, db, "admins/flagged="+simple, "admins/plain=pass")
		stored := config.Admins.Get(fresh.live.Current())
		assert.Equal(t, simple, stored["flagged"])
		assert.Regexp(t, "^-pbkdf2:sha256-[0-9a-f]{64},"+salt+",(10|20)$", stored["stored"])
		iterations := fresh.CountIterations()
		fresh.is([]string{"plain", "_admin"}, "plain", "pass")
		assert.EqualValues(t, 20, iterations.Load())
	})
}

// A change of an administrator's password is not overwritten by a renewal.
func TestRenewalsDoNotUndoAdministrators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sum := sha1.Sum([]byte("pass" + salt))
		n := open(t, memory(t))
		_, err := n.live.Set(t.Context(), "admins", "root", "-hashed-"+hex.EncodeToString(sum[:])+","+salt)
		require.NoError(t, err)
		n.is([]string{"root", "_admin"}, "root", "pass")
		_, err = n.live.Set(t.Context(), "admins", "root", auth.NewHash("word", "sha256", 10).String())
		require.NoError(t, err)
		n.renewing()
		synctest.Wait()
		n.is([]string{"root", "_admin"}, "root", "word")
		n.fails(accounts.ErrWrong, "root", "pass")
	})
}

func TestRenewalsOfUnknownCommits(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			db := faultkv.Wrap(memory(t), faultkv.Options{Seed: seed, Rates: faultkv.Rates{
				faultkv.Conflict: 0.1, faultkv.UnknownCommitted: 0.3, faultkv.UnknownNotCommitted: 0.1,
			}})
			n := open(t, db)
			n.write(docstore.Rev{}, "ann", oldHash(t, auth.Simple, "", salt, "pass", 0))
			end := n.renewing()
			n.is([]string{"ann"}, "ann", "pass")
			time.Sleep(minute) // the transaction is repeated meanwhile
			end()
			doc, members := n.document("ann")
			assert.EqualValues(t, 2, doc.Rev.Pos)
			assert.Equal(t, "pbkdf2", members["password_scheme"])
			n.is([]string{"ann"}, "ann", "pass")
		})
	}
}
