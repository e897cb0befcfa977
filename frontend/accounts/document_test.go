package accounts_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/accounts"
	"settee/frontend/internal/auth"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
)

const annID = accounts.IDPrefix + "ann"

func TestDocumentIsHashed(t *testing.T) {
	t.Parallel()
	n := open(t, memory(t))
	const members = `{"type":"user","name":"ann","roles":["b","a"],"n":1.50,"salt":"old","password":"pa\u0073s","iterations":1,"x":{"password":2}}`
	body, err := n.Document(t.Context(), accounts.Write{ID: annID, Body: docjson.Must(members), Admin: true})
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(string(body.Bytes()), `,"type":"user","name":"ann","roles":["b","a"],"n":1.50,"x":{"password":2}}`), "%s", body)
	var object map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(body.Bytes(), &object))
	hash, ok := auth.ParseUser(object)
	require.True(t, ok)
	assert.True(t, hash.Verify("pass"))
	assert.Equal(t, 10, hash.Iterations)
	assert.NotContains(t, string(body.Bytes()), "old")

	// A document without a new password is not changed.
	again, err := n.Document(t.Context(), accounts.Write{ID: annID, Body: body, Before: body.Bytes(), By: auth.User{Name: "ann"}})
	require.NoError(t, err)
	assert.Equal(t, body.Bytes(), again.Bytes())
	design := docjson.Must(`{"password":"x"}`)
	again, err = n.Document(t.Context(), accounts.Write{ID: "_design/x", Body: design, Admin: true})
	require.NoError(t, err)
	assert.Equal(t, design, again)
}

func TestDocumentRules(t *testing.T) {
	t.Parallel()
	n := open(t, memory(t))
	ann, root, nobody := auth.User{Name: "ann"}, auth.User{Name: "root", Roles: []string{"_admin"}}, auth.User{}
	const plain, bobID = `{"type":"user","name":"ann","roles":[]}`, accounts.IDPrefix + "bob"
	for _, test := range []struct {
		by                       auth.User
		id, body, before, reason string
	}{
		{root, annID, plain, "", ""},
		{root, annID, `{"type":"user","name":"ann","roles":["x"]}`, plain, ""},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password":null}`, "", ""},
		{ann, annID, plain, plain, ""},
		{ann, annID, `{"type":"user","name":"ann","roles":["b","a"]}`, `{"roles":["a","b"]}`, ""},
		{ann, annID, `{"type":"user","name":"ann","roles":["b","a"]}`, `{"roles":["a"]}`, "Only _admin may edit roles"},
		{ann, annID, `{"type":"user","name":"ann","roles":["a"]}`, "", "Only _admin may set roles"},
		{ann, annID, `{"type":"user","name":"ann","roles":[],"roles":["a"]}`, plain, "`roles` is there more than once"},
		{ann, annID, `{"type":"user","name":"ann","roles":["a"],"r\u006fles":[]}`, plain, "`roles` is there more than once"},
		{root, annID, `{"password":"plain","type":"user","name":"ann","roles":[],"password":null}`, plain, "`password` is there more than once"},
		{ann, annID, `{"type":"user","name":"ann","roles":[],"Roles":["a"]}`, plain, ""},
		{ann, annID, `{"type":"user","name":"root","roles":[]}`, plain, "Doc ID must be of the form org.couchdb.user:name"},
		{root, annID, `{"name":"ann","roles":[]}`, "", "doc.type must be user"},
		{root, annID, `{"type":"user","roles":[]}`, "", "doc.name is required"},
		{root, annID, `{"type":"user","name":"ann"}`, "", "doc.roles must exist"},
		{root, annID, `{"type":"user","name":"ann","roles":"x"}`, "", "doc.roles must be an array"},
		{root, annID, `{"type":"user","name":"ann","roles":[1]}`, "", "doc.roles can only contain strings"},
		{root, annID, `{"type":"user","name":"ann","roles":{}}`, "", "doc.roles must be an array"},
		{root, annID, `{"type":"user","name":"ann","roles":null}`, "", "doc.roles must exist"},
		{root, annID, `{"type":"user","name":"ann","roles":""}`, "", "doc.roles must exist"},
		{root, annID, `{"type":"user","name":"ann","roles":false}`, "", "doc.roles must exist"},
		{root, annID, `{"type":"user","name":1,"roles":0.0}`, "", "doc.roles must exist"},
		{root, annID, `{"type":"user","name":1,"roles":[]}`, "", "Doc ID must be of the form org.couchdb.user:name"},
		{root, accounts.IDPrefix, `{"type":"user","name":1,"roles":[]}`, "", "Doc ID must be of the form org.couchdb.user:name"},
		{root, accounts.IDPrefix + "1", `{"type":"user","name":1,"roles":[]}`, "", "Doc ID must be of the form org.couchdb.user:name"},
		{root, annID, `{"type":"user","name":0,"roles":[]}`, "", "doc.name is required"},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password":true}`, "", "Password value of 'true' is invalid."},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password":{}}`, "", "doc.password must be a string"},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password_scheme":null,"password_sha":""}`, "", ""},
		{root, annID, `{"type":"user","name":"ann","roles":["_x"],"password_scheme":1}`, "", "Password scheme `1` not supported."},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password_scheme":"pbkdf2","iterations":1}`, "", "derived_key must be a string."},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password_scheme":"pbkdf2","iterations":1,"derived_key":"","salt":"s"}`, "",
			"the hashed password is malformed: it must have pbkdf2_prf, salt, iterations and derived_key, or password_sha and salt"},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password_sha":"x","salt":"y"}`, "",
			"the hashed password is malformed: it must have pbkdf2_prf, salt, iterations and derived_key, or password_sha and salt"},
		{root, annID, `{"type":"user","name":"ann","roles":[null]}`, "", "doc.roles can only contain strings"},
		{root, annID, `{"type":"user","name":"ann","roles":["_admin"]}`, "", "No system roles (starting with underscore) in users db."},
		{root, annID, `{"type":"user","name":"ann","roles":["_metrics"]}`, "", ""},
		{ann, annID, `{"type":"user","name":"ann","roles":["_metrics"]}`, plain, "Only _admin may edit roles"},
		{root, accounts.IDPrefix + "_x", `{"type":"user","name":"_x","roles":[]}`, "", "Username may not start with underscore."},
		{root, accounts.IDPrefix + "a:b", `{"type":"user","name":"a:b","roles":[]}`, "", "Character `:` is not allowed in usernames."},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password":1}`, "", "Password value of '1' is invalid."},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password_scheme":"md5"}`, "", "Password scheme `md5` not supported."},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password_scheme":["md5"]}`, "", "Password scheme `[\"md5\"]` not supported."},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password_scheme":"pbkdf2","iterations":"1"}`, "", "iterations must be a number."},
		{root, annID, `{"type":"user","name":"ann","roles":[],"password_sha":"x"}`, "",
			"Users with password_sha must have a salt.See /_utils/script/couch.js for example code."},

		// Who makes and changes documents.
		{ann, annID, plain, "", ""},
		{ann, bobID, `{"type":"user","name":"bob","roles":[]}`, "", "You may only update your own user document."},
		{ann, bobID, `{"type":"user","name":"bob","roles":[]}`, plain, "You may only update your own user document."},
		{nobody, annID, plain, "", ""},
		{nobody, annID, plain, plain, "You may only update your own user document."},
		{nobody, annID, `{"type":"user","name":"ann","roles":["a"]}`, "", "Only _admin may set roles"},
		{nobody, annID, `{"type":"user","name":"ann","roles":["_admin"]}`, "", "Only _admin may set roles"},
		{nobody, accounts.IDPrefix, `{"type":"user","name":"","roles":[]}`, "", "doc.name is required"},
	} {
		w := accounts.Write{ID: test.id, Body: docjson.Must(test.body), By: test.by, Admin: test.by.IsAdmin(), Member: true}
		if test.before != "" {
			w.Before = []byte(test.before)
		}
		_, err := n.Document(t.Context(), w)
		requireRefused(t, err, test.reason, test.body)
	}
}

func requireRefused(t *testing.T, err error, reason, what string) {
	t.Helper()
	if reason == "" {
		require.NoError(t, err, what)
		return
	}
	var refused *accounts.DocumentError
	require.ErrorAs(t, err, &refused, what)
	assert.Equal(t, reason, refused.Reason, what)
}

// Of a database with members, only these and administrators make documents. Users who are no members change and delete their own.
func TestDocumentsOfStrangers(t *testing.T) {
	t.Parallel()
	n := open(t, memory(t))
	plain := docjson.Must(`{"type":"user","name":"ann","roles":[]}`)
	for _, by := range []auth.User{{}, {Name: "ann"}} {
		_, err := n.Document(t.Context(), accounts.Write{ID: annID, Body: plain, By: by})
		requireRefused(t, err, "Only administrators may create users.", by.Name)
	}
	_, err := n.Document(t.Context(), accounts.Write{ID: annID, Body: plain, Before: plain.Bytes(), By: auth.User{Name: "ann"}})
	require.NoError(t, err)
}

func TestDeletedDocuments(t *testing.T) {
	t.Parallel()
	n := open(t, memory(t))
	for _, test := range []struct {
		by, before, reason string
		admin              bool
	}{
		{"ann", "{}", "", false},
		{"root", "", "", true},
		{"ann", "", "Only admins may delete other user docs.", false}, // there is nothing to delete
		{"bob", "{}", "Only admins may delete other user docs.", false},
		{"", "{}", "Only admins may delete other user docs.", false},
		{"", "", "Only admins may delete other user docs.", false},
	} {
		w := accounts.Write{ID: annID, Deleted: true, Body: docjson.Must("{}"), By: auth.User{Name: test.by}, Admin: test.admin, Member: true}
		if test.before != "" {
			w.Before = []byte(test.before)
		}
		_, err := n.Document(t.Context(), w)
		requireRefused(t, err, test.reason, test.by)
	}
}

// As in CouchDB a password that breaks a rule is refused before a conflict, and everything else after it.
func TestOrderOfRefusals(t *testing.T) {
	t.Parallel()
	n := open(t, memory(t), `chttpd_auth/password_regexp=["[0-9]"]`)
	write := func(members string) error {
		_, err := n.Document(t.Context(), accounts.Write{ID: annID, Body: docjson.Must(members), Member: true, Conflict: true})
		return err
	}
	weak := new(accounts.DocumentError)
	require.ErrorAs(t, write(`{"password":"none"}`), &weak)
	require.True(t, weak.WeakPassword)
	require.ErrorIs(t, write(`{"password":"1"}`), docstore.ErrConflict)
	require.ErrorIs(t, write(`{"roles":["_admin"]}`), docstore.ErrConflict)
	_, err := n.Document(t.Context(), accounts.Write{ID: annID, Deleted: true, Member: true, Conflict: true})
	require.ErrorIs(t, err, docstore.ErrConflict)
}

// Strangers who sign up cannot keep users from logging in: a network has few new passwords under way, and as many logins
// as before.
func TestManyNewPasswords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t), "admins/root=s3same")
		giveBack := n.Occupy()
		var waiting sync.WaitGroup
		write := func(w accounts.Write) <-chan error {
			w.ID, w.Body, w.Member = annID, docjson.Must(`{"type":"user","name":"ann","roles":[],"password":"new"}`), true
			ended := make(chan error, 1)
			waiting.Go(func() {
				_, err := n.Document(t.Context(), w)
				ended <- err
			})
			synctest.Wait()
			return ended
		}
		var signing []<-chan error
		for range 8 {
			signing = append(signing, write(accounts.Write{Address: here}))
		}
		require.ErrorIs(t, <-write(accounts.Write{Address: here}), accounts.ErrTooMany)
		require.ErrorIs(t, <-write(accounts.Write{Address: here, By: auth.User{Name: "ann"}}), accounts.ErrTooMany)
		signing = append(signing,
			write(accounts.Write{Address: "198.51.100.1:1"}), // another network
			write(accounts.Write{Address: here, By: auth.User{Name: "root"}, Admin: true}))
		waiting.Go(func() { n.is([]string{"root", "_admin"}, "root", "s3same") })
		synctest.Wait()
		giveBack()
		waiting.Wait()
		for _, ended := range signing {
			require.NoError(t, <-ended)
		}
		require.NoError(t, <-write(accounts.Write{Address: here}))
	})
}
