package accounts_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/accounts"
	"settee/frontend/internal/auth"
	"settee/internal/costtest"
	"settee/pkg/config"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv/memkv"
)

// FuzzUserDocument asserts that a user's document is refused with a reason or stored without a
// password, and that it does not extend its user's rights. Reading and writing it allocate in
// proportion to its length.
func FuzzUserDocument(f *testing.F) {
	const most = 1000
	for _, seed := range []string{
		`{"type":"user","name":"ann","roles":["staff"],"password":"pass"}`, `{"type":"user","name":"ann","roles":["_admin"],"password":"pass"}`,
		`{"type":"user","name":"ann","roles":["staff"],"password":null}`, `{"type":"user","name":"ann","roles":["staff"],"password":["x"]}`,
		`{"type":"user","name":"ann","roles":["staff"],"password":"a","password":"b"}`, `{"type":"user","name":"ann","roles":["staff"],"passwor\u0064":"a"}`,
		`{"type":"user","name":"ann","roles":[null]}`, `{"type":"user","name":"_ann","roles":[]}`, `{"Type":"user","NAME":"ann","Roles":[]}`,
		`{"type":"user","name":"ann","roles":["staff"],"password_scheme":"simple","salt":"salt","password_sha":"c88e9c67041a74e0357befdff93f87dde0904214"}`,
		`{"type":"user","name":"ann","roles":["staff"],"password_scheme":"pbkdf2","pbkdf2_prf":"sha","salt":"salt","iterations":2147483648,
			"derived_key":"6e88be8bad7eae9d9e10aa061224034fed48d03f"}`,
		`{"type":"user","name":"ann","roles":["staff"],"password_scheme":"simple+pbkdf2","salt":"salt","iterations":1001,
			"derived_key":"6e88be8bad7eae9d9e10aa061224034fed48d03f"}`,
		`{"type":"user","name":"ann","roles":["staff"],"password_scheme":"pbkdf2","salt":"salt","iterations":1000,
			"derived_key":"6e88be8bad7eae9d9e10aa061224034fed48d03f"}`,
		`{"type":"user","name":"ann","roles":["staff"],"totp":{"key":"GEZDGNBVGY3TQOJQ"}}`, "null", "[]", "7", "", "{",
		`{"type":"user","name":"ann","roles":[` + strings.Repeat(`"staff",`, 2000) + `"staff"]}`, strings.Repeat(`{"a":`, 2000),
		`{"type":"user","name":"ann","roles":["staff"],"x":` + strings.Repeat("9", 5000) + `,"password":"` + strings.Repeat("p", 5000) + `"}`,
		`{"type":"user","name":"ann","roles":["staff"]` + strings.Repeat(`,"a":1`, 2000) + `}`,
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	db, err := memkv.Open(memkv.Options{})
	require.NoError(f, err)
	docs := docstore.Open(db, []byte("docs"), docstore.Options{})
	f.Cleanup(func() {
		docs.Close()
		require.NoError(f, db.Close())
	})
	cfg, _, err := config.Load(config.Options{Flags: []string{quick}})
	require.NoError(f, err)
	live, err := config.OpenLive(f.Context(), cfg, config.LiveOptions{Store: db, Prefix: []byte("config")})
	require.NoError(f, err)
	known, err := accounts.Open(f.Context(), accounts.Options{Store: db, Prefix: []byte("accounts"), Documents: docs, Config: live})
	require.NoError(f, err)

	f.Fuzz(func(t *testing.T, body []byte, byAdmin bool) {
		checked, invalid := docjson.Parse(body)
		w := accounts.Write{
			ID: accounts.IDPrefix + "ann", Body: checked, Before: []byte(`{"roles":["staff"]}`), By: auth.User{Name: "ann"}, Admin: byAdmin,
		}
		var stored docjson.Body
		var err error
		var user auth.User
		var hash auth.Hash
		var ok bool
		costtest.Memory(200).Check(t, len(body), func() {
			user, hash, ok = accounts.ParseUser("ann", body, most)
			if invalid == nil {
				stored, err = known.Document(t.Context(), w)
			}
		})
		check := func() {
			t.Helper()
			require.False(t, user.IsAdmin())
			require.LessOrEqual(t, hash.Iterations, most)
		}
		if ok {
			check()
		}
		if invalid != nil {
			return
		}
		if err != nil {
			var refused *accounts.DocumentError
			require.ErrorAs(t, err, &refused)
			return
		}
		var before, after map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(body, &before))
		require.NoError(t, json.Unmarshal(stored.Bytes(), &after))
		var password *string
		if raw, given := before["password"]; given {
			require.NoError(t, json.Unmarshal(raw, &password))
		}
		if user, hash, ok = accounts.ParseUser("ann", stored.Bytes(), most); ok {
			check()
			if !byAdmin {
				require.Equal(t, []string{"staff"}, user.Roles)
			}
		}
		if password != nil {
			require.NotContains(t, after, "password")
			require.True(t, ok)
			require.True(t, hash.Verify(*password))
		}
	})
}
