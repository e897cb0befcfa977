package accounts_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/accounts"
	"settee/frontend/internal/auth"
)

const annID = accounts.IDPrefix + "ann"

func TestDocumentIsHashed(t *testing.T) {
	t.Parallel()
	n := open(t, memory(t))
	const members = `{"type":"user","name":"ann","roles":["b","a"],"n":1.50,"salt":"old","password":"pa\u0073s","iterations":1,"x":{"password":2}}`
	body, err := n.Document(t.Context(), accounts.Write{ID: annID, Body: []byte(members), Admin: true})
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(string(body), `,"type":"user","name":"ann","roles":["b","a"],"n":1.50,"x":{"password":2}}`), "%s", body)
	var object map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(body, &object))
	hash, ok := auth.ParseUser(object)
	require.True(t, ok)
	assert.True(t, hash.Verify("pass"))
	assert.Equal(t, 10, hash.Iterations)
	assert.NotContains(t, string(body), "old")

	// A document without a new password is not changed.
	again, err := n.Document(t.Context(), accounts.Write{ID: annID, Body: body, Before: body, By: auth.User{Name: "ann"}})
	require.NoError(t, err)
	assert.Equal(t, string(body), string(again))
	design := []byte(`{"password":"x"}`)
	again, err = n.Document(t.Context(), accounts.Write{ID: "_design/x", Body: design, Admin: true})
	require.NoError(t, err)
	assert.Equal(t, string(design), string(again))
}

func TestDocumentRules(t *testing.T) {
	t.Parallel()
	n := open(t, memory(t))
	ann, root := auth.User{Name: "ann"}, auth.User{Name: "root", Roles: []string{"_admin"}}
	const plain = `{"type":"user","name":"ann","roles":[]}`
	for _, test := range []struct {
		by                       auth.User
		id, body, before, reason string
	}{
		{root, annID, plain, "", ""},
		{root, annID, `{"type":"user","name":"ann","roles":["x"]}`, plain, ""},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password":null}`, "", ""},
		{ann, annID, plain, "", ""},
		{ann, annID, `{"type":"user","name":"ann","roles":["b","a"]}`, `{"roles":["a","b"]}`, ""},
		{ann, annID, `{"type":"user","name":"ann","roles":["b","a"]}`, `{"roles":["a"]}`, "Only _admin may edit roles"},
		{ann, annID, `{"type":"user","name":"ann","roles":["a"]}`, "", "Only _admin may edit roles"},
		{ann, annID, `{"type":"user","name":"ann","roles":[],"roles":["a"]}`, plain, "`roles` is there more than once"},
		{ann, annID, `{"type":"user","name":"ann","roles":["a"],"r\u006fles":[]}`, plain, "`roles` is there more than once"},
		{root, annID, `{"password":"plain","type":"user","name":"ann","roles":[],"password":null}`, plain, "`password` is there more than once"},
		{ann, annID, `{"type":"user","name":"ann","roles":[],"Roles":["a"]}`, plain, ""},
		{ann, accounts.IDPrefix + "bob", `{"type":"user","name":"bob","roles":[]}`, "", "You may only update your own user document."},
		{auth.User{}, annID, plain, "", "You may only update your own user document."},
		{auth.User{}, accounts.IDPrefix, `{"type":"user","name":"","roles":[]}`, "", "doc.name is required"},
		{ann, annID, `{"type":"user","name":"root","roles":[]}`, "", "Doc ID must be of the form org.couchdb.user:name"},
		{root, annID, `{"name":"ann","roles":[]}`, "", "doc.type must be user"},
		{root, annID, `{"type":"user","roles":[]}`, "", "doc.name is required"},
		{root, annID, `{"type":"user","name":"ann"}`, "", "doc.roles must exist"},
		{root, annID, `{"type":"user","name":"ann","roles":"x"}`, "", "doc.roles must be an array of strings"},
		{root, annID, `{"type":"user","name":"ann","roles":[1]}`, "", "doc.roles must be an array of strings"},
		{root, annID, `{"type":"user","name":"ann","roles":[null]}`, "", "doc.roles must be an array of strings"},
		{root, annID, `{"type":"user","name":"ann","roles":["_admin"]}`, "", "No system roles (starting with underscore) in users db."},
		{root, annID, `{"type":"user","name":"ann","roles":["_metrics"]}`, "", ""},
		{ann, annID, `{"type":"user","name":"ann","roles":["_metrics"]}`, plain, "Only _admin may edit roles"},
		{root, accounts.IDPrefix + "_x", `{"type":"user","name":"_x","roles":[]}`, "", "Username may not start with underscore."},
		{root, accounts.IDPrefix + "a:b", `{"type":"user","name":"a:b","roles":[]}`, "", "Character `:` is not allowed in usernames."},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password":1}`, "", "doc.password must be a string"},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password_scheme":"md5"}`, "", "Password scheme `\"md5\"` not supported."},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password_scheme":"pbkdf2","iterations":"1"}`, "",
			"the hashed password is malformed: it must have pbkdf2_prf, salt, iterations and derived_key, or password_sha and salt"},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password_sha":"x"}`, "",
			"the hashed password is malformed: it must have pbkdf2_prf, salt, iterations and derived_key, or password_sha and salt"},
	} {
		_, err := n.Document(t.Context(), accounts.Write{
			ID: test.id, Body: []byte(test.body), Before: []byte(test.before), By: test.by, Admin: test.by.IsAdmin(),
		})
		if test.reason == "" {
			require.NoError(t, err, test.body)
			continue
		}
		var refused *accounts.DocumentError
		require.ErrorAs(t, err, &refused, test.body)
		assert.Equal(t, test.reason, refused.Reason, test.body)
	}
	_, err := n.Document(t.Context(), accounts.Write{ID: annID, Deleted: true, Body: []byte("{}"), By: ann})
	require.NoError(t, err)
	_, err = n.Document(t.Context(), accounts.Write{ID: annID, Deleted: true, Body: []byte("{}"), By: auth.User{Name: "bob"}})
	require.Error(t, err)
}
