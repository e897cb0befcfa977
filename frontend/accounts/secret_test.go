package accounts_test

import (
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"settee/frontend/accounts"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
	"settee/pkg/sealed"
	"settee/pkg/sealed/sealedtest"
	"settee/pkg/tuple"
)

// All frontends have one secret of sessions, sealed or not.
func TestSealedSecret(t *testing.T) {
	t.Parallel()
	db, err := memkv.Open(memkv.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	stored := func() []byte {
		value, err := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) ([]byte, error) {
			return tx.Get(tuple.SubspaceFromBytes([]byte("accounts")).Pack("secret")).Await()
		})
		require.NoError(t, err)
		return value
	}
	docs := docstore.Open(db, []byte("docs"), docstore.Options{})
	t.Cleanup(docs.Close)
	start := func(keys kv.Sealer) (*accounts.Accounts, error) {
		cfg, _, err := config.Load(config.Options{Flags: []string{quick, "admins/root=relax"}})
		require.NoError(t, err)
		live, err := config.OpenLive(t.Context(), cfg, config.LiveOptions{Store: db, Prefix: []byte("config")})
		require.NoError(t, err)
		return accounts.Open(t.Context(), accounts.Options{
			Store: db, Prefix: []byte("accounts"), Sealer: keys, Documents: docs, Config: live, Log: zerolog.Nop(),
		})
	}
	reseal := func(keys *sealed.Keys, keyID string) map[string]int64 {
		counts, err := accounts.Reseal(t.Context(), db, []byte("accounts"), keys, keyID)
		require.NoError(t, err)
		return counts
	}

	require.Empty(t, reseal(sealedtest.Keys(t, "a"), "a"), "there is no secret")
	plain, err := start(nil)
	require.NoError(t, err)
	secret := stored()
	cookie, err := plain.SignSession(t.Context(), "root")
	require.NoError(t, err)
	takes := func(a *accounts.Accounts) {
		t.Helper()
		user, _, err := a.Session(t.Context(), cookie)
		require.NoError(t, err)
		require.Equal(t, "root", user.Name)
	}
	takes(plain)

	require.Equal(t, map[string]int64{"": 1}, reseal(sealedtest.Keys(t, "a"), ""))
	require.Equal(t, map[string]int64{"": 1}, reseal(sealedtest.Keys(t, "a"), "a"))
	require.NotContains(t, string(stored()), string(secret))
	for _, keys := range []*sealed.Keys{sealedtest.Keys(t, "a"), sealedtest.Keys(t, "b", "a")} {
		known, err := start(keys)
		require.NoError(t, err)
		takes(known)
	}
	require.Equal(t, map[string]int64{"a": 1}, reseal(sealedtest.Keys(t, "b"), "b"), "the secret could not be opened")
	require.Equal(t, map[string]int64{"a": 1}, reseal(sealedtest.Keys(t, "b", "a"), "b"))
	known, err := start(sealedtest.Keys(t, "b"))
	require.NoError(t, err)
	takes(known)
	for _, keys := range []kv.Sealer{sealedtest.Keys(t, "a"), (*sealed.Keys)(nil)} {
		_, err = start(keys)
		require.ErrorContains(t, err, `sealed with the key "b"`)
	}

	// With keys, a new secret is sealed.
	require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		tx.Clear(tuple.SubspaceFromBytes([]byte("accounts")).Pack("secret"))
		return nil
	}))
	_, err = start(sealedtest.Keys(t, "a"))
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"a": 1}, reseal(sealedtest.Keys(t, "a"), ""))
}
