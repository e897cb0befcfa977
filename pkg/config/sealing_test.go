package config_test

import (
	"encoding/base64"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/kvtest"
	"settee/pkg/sealed"
	"settee/pkg/sealed/sealedtest"
)

func openSealed(t *testing.T, db kv.Database, keys *sealed.Keys) *node {
	t.Helper()
	n := &node{T: t, log: &testkit.Journal{}}
	var err error
	n.Live, err = config.OpenLive(t.Context(), load(t, config.Options{}), config.LiveOptions{
		Store: db, Prefix: layerPrefix, Log: zerolog.New(n.log), Sealer: keys,
	})
	require.NoError(t, err)
	return n
}

// Secrets are sealed in the store and have their effect.
func TestSealedSettings(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		reseal := func(keys *sealed.Keys, keyID string) map[string]int64 {
			t.Helper()
			counts, err := config.Reseal(t.Context(), db, layerPrefix, keys, keyID)
			require.NoError(t, err)
			return counts
		}
		set := func(n *node, section, key, value string) string {
			t.Helper()
			old, err := n.Set(t.Context(), section, key, value)
			require.NoError(t, err)
			return old
		}
		const hash = "-hashed-c88e9c67041a74e0357befdff93f87dde0904214,salt"
		plain := openSealed(t, db, nil)
		set(plain, "chttpd_auth", "secret", "relax-plain")
		n := openSealed(t, db, sealedtest.Keys(t, "a"))
		require.Equal(t, "relax-plain", config.CookieSecret.Get(n.Current()))
		set(n, "jwt_keys", "hmac:x", "relaxing")
		set(n, "replicator", "password", "relax-tls")
		set(n, "replicator.watches", "https://a.example/", "ann:relax-watch")
		set(n, "admins", "root", hash)
		set(n, "replicator", "max_jobs", "7")
		require.Zero(t, kvtest.Holding(t, db, layerPrefix, "relaxing"))
		require.Zero(t, kvtest.Holding(t, db, layerPrefix, "relax-tls"))
		require.Zero(t, kvtest.Holding(t, db, layerPrefix, "relax-watch"))
		require.NotZero(t, kvtest.Holding(t, db, layerPrefix, "relax-plain"))
		require.NotZero(t, kvtest.Holding(t, db, layerPrefix, hash))
		require.Equal(t, map[string]any{"hmac:x": secret("relaxing")}, config.TokenKeys.Get(openSealed(t, db, sealedtest.Keys(t, "b", "a")).Current()))

		before := map[string]int64{"": 1, "a": 3}
		require.Equal(t, before, reseal(sealedtest.Keys(t, "b", "a"), ""))
		require.Equal(t, before, reseal(sealedtest.Keys(t, "b"), "b"))
		require.Equal(t, map[string]int64{"b": 1, "a": 3}, reseal(sealedtest.Keys(t, "b", "a"), "b"), "values that could not be opened stayed")
		require.Equal(t, map[string]int64{"b": 4}, reseal(sealedtest.Keys(t, "b", "a"), "b"))
		require.Zero(t, kvtest.Holding(t, db, layerPrefix, "relax"))
		now := openSealed(t, db, sealedtest.Keys(t, "b"))
		require.Equal(t, "relax-plain", config.CookieSecret.Get(now.Current()))
		require.Equal(t, 7, config.MaxJobs.Get(now.Current()))
		login, ok := now.Current().WatchLogin("https://a.example/")
		require.True(t, ok)
		require.Equal(t, config.Login{Username: "ann", Password: "relax-watch"}, login)
		require.Equal(t, "****", set(now, "chttpd_auth", "secret", "relax-new"))
		require.NotContains(t, now.log.String(), "relax")
	})
}

// A node without the key ignores the setting with a warning, and can set another value.
func TestSettingsWithoutTheKey(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		n := openSealed(t, db, sealedtest.Keys(t, "a"))
		for _, key := range []string{"hmac:x", "hmac:y", "hmac:z"} {
			_, err := n.Set(t.Context(), "jwt_keys", key, "relaxing")
			require.NoError(t, err)
		}
		other := openSealed(t, db, sealedtest.Keys(t, "b"))
		require.Empty(t, config.TokenKeys.Get(other.Current()))
		require.Empty(t, other.Current().Shown()["jwt_keys"])
		require.Contains(t, other.log.String(), `ignored: sealed with the key \"a\", which the key file ([secrets] key_file) does not have`)

		old, err := other.Set(t.Context(), "jwt_keys", "hmac:x", "mine")
		require.NoError(t, err)
		require.Empty(t, old)
		old, err = other.Delete(t.Context(), "jwt_keys", "hmac:y")
		require.NoError(t, err)
		require.Equal(t, "****", old)
		require.Equal(t, map[string]any{"hmac:x": secret("mine")}, config.TokenKeys.Get(other.Current()))
		both := openSealed(t, db, sealedtest.Keys(t, "a", "b"))
		require.Equal(t, map[string]any{"hmac:x": secret("mine"), "hmac:z": secret("relaxing")}, config.TokenKeys.Get(both.Current()))
	})
}

// secret is the parsed value of an hmac key of [jwt_keys].
func secret(text string) []byte {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return key
}

// The store refuses values that look like sealed ones.
func TestValuesThatLookLocked(t *testing.T) {
	t.Parallel()
	n := openSealed(t, enginetest.Memory(t), nil)
	_, err := n.Set(t.Context(), "jwt_keys", "hmac:x", "\x00sealed\x00why")
	require.Error(t, err)
}
