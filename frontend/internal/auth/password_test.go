package auth_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/auth"
)

// Other implementations of PBKDF2 and SHA-1 made the keys.
var admins = map[string]string{
	"simple":      "-hashed-c88e9c67041a74e0357befdff93f87dde0904214,salt",
	"before 3.4":  "-pbkdf2-6e88be8bad7eae9d9e10aa061224034fed48d03f,salt,1000",
	"sha":         "-pbkdf2:sha-6e88be8bad7eae9d9e10aa061224034fed48d03f,salt,1000",
	"sha256":      "-pbkdf2:sha256-120fb6cffcf8b32c43e7225256c4f837a86548c92ccc35480805987cb70be17b,salt,1",
	"sha256 long": "-pbkdf2:sha256-c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a,salt,4096",
}

func TestAdmins(t *testing.T) {
	t.Parallel()
	for name, text := range admins {
		h, hashed, err := auth.ParseAdmin(text)
		require.NoError(t, err, name)
		require.True(t, hashed, name)
		assert.True(t, h.Verify("password"), name)
		assert.False(t, h.Verify("passwore"), name)
		assert.False(t, h.Verify(""), name)
		again, _, err := auth.ParseAdmin(h.String())
		require.NoError(t, err, name)
		assert.Equal(t, h, again, name)
	}
}

func TestNotHashed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "password", "pbkdf2-a,b,1", "-hashe-", "-pbkdf", "-"} {
		_, hashed, err := auth.ParseAdmin(text)
		require.NoError(t, err, text)
		assert.False(t, hashed, text)
	}
	for _, text := range []string{
		"-hashed-", "-hashed-c88e,salt", "-hashed-c88e9c67041a74e0357befdff93f87dde0904214",
		"-pbkdf2-", "-pbkdf2-a,b", "-pbkdf2:-a,b,1", "-pbkdf2:md5-0c60c80f961f0e71f3a9b524af6012062fe037a6,salt,1",
		"-pbkdf2-0c60c80f961f0e71f3a9b524af6012062fe037a6,salt,0", "-pbkdf2-0c60c80f961f0e71f3a9b524af6012062fe037a6,salt,x",
		"-pbkdf2:sha256-0c60c80f961f0e71f3a9b524af6012062fe037a6,salt,1",
	} {
		_, hashed, err := auth.ParseAdmin(text)
		require.ErrorIs(t, err, auth.ErrHash, text)
		assert.True(t, hashed, text)
	}
}

func TestUserDocuments(t *testing.T) {
	t.Parallel()
	const key256 = "c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a"
	for text, ok := range map[string]bool{
		`{"password_sha":"c88e9c67041a74e0357befdff93f87dde0904214","salt":"salt"}`:                                                          true,
		`{"password_scheme":"simple","password_sha":"c88e9c67041a74e0357befdff93f87dde0904214","salt":"salt"}`:                               true,
		`{"password_scheme":"pbkdf2","derived_key":"6e88be8bad7eae9d9e10aa061224034fed48d03f","salt":"salt","iterations":1000}`:              true,
		`{"password_scheme":"pbkdf2","pbkdf2_prf":"sha256","derived_key":"` + key256 + `","salt":"salt","iterations":4096}`:                  true,
		`{"password_scheme":"pbkdf2","pbkdf2_prf":"sha256","derived_key":"` + strings.ToUpper(key256) + `","salt":"salt","iterations":4096}`: true,
		`{"password_scheme":"simple+pbkdf2","pbkdf2_prf":"sha256","derived_key":"` + legacyKey + `","salt":"salt","iterations":10}`:          true,
		`{}`:                        false,
		`{"password_scheme":"md5"}`: false,
		`{"password_scheme":null}`:  false,
		`{"password_scheme":"pbkdf2","derived_key":"6e88be8bad7eae9d9e10aa061224034fed48d03f","salt":"salt","iterations":"1"}`:                     false,
		`{"password_scheme":"pbkdf2","derived_key":"6e88be8bad7eae9d9e10aa061224034fed48d03f","salt":"salt","iterations":-1}`:                      false,
		`{"password_scheme":"pbkdf2","pbkdf2_prf":"md5","derived_key":"6e88be8bad7eae9d9e10aa061224034fed48d03f","salt":"salt","iterations":1000}`: false,
		`{"password_scheme":"pbkdf2","derived_key":"","salt":"","iterations":1000}`:                                                                false,
	} {
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(text), &members))
		h, valid := auth.ParseUser(members)
		require.Equal(t, ok, valid, text)
		if ok {
			assert.True(t, h.Verify("password"), text)
			assert.False(t, h.Verify("Password"), text)
		}
	}
}

const legacyKey = "f9500bb0f099c483f9d25e47596d1c25663afb1a3c2cdabff542f3b74139fbce"

func TestNewHash(t *testing.T) {
	t.Parallel()
	for _, prf := range auth.PRFs {
		h := auth.NewHash("ü p:w", prf, 10)
		assert.True(t, h.Verify("ü p:w"), prf)
		assert.NotEqual(t, h, auth.NewHash("ü p:w", prf, 10), "another salt")
		object := map[string]any{}
		for _, member := range h.Members() {
			object[member.Name] = member.Value
		}
		text, err := json.Marshal(object)
		require.NoError(t, err)
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(text, &members))
		same, ok := auth.ParseUser(members)
		require.True(t, ok)
		assert.Equal(t, h, same)
	}
	assert.False(t, auth.Hash{}.Verify(""), "what is no hash has no password")
}

func TestMAC(t *testing.T) {
	t.Parallel()
	same := auth.MAC([]byte("k"), "a", "b")
	assert.Equal(t, same, auth.MAC([]byte("k"), "a", "b"))
	assert.NotEqual(t, auth.MAC([]byte("k"), "a", "b"), auth.MAC([]byte("k"), "ab"))
	assert.NotEqual(t, auth.MAC([]byte("k"), "a", "b"), auth.MAC([]byte("k"), "a:b"))
	assert.NotEqual(t, auth.MAC([]byte("k"), "a", "b"), auth.MAC([]byte("l"), "a", "b"))
}
