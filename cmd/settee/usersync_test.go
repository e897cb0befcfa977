package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

// Users whose hashes are old, each with the password "apple". The members of their documents are in various orders.
var oldUsers = map[string]string{
	"simple": `{"roles":["staff"],"name":"simple","type":"user","color":"blue",
		"_attachments":{"z":{"content_type":"image/png","data":"eg=="},"a":{"content_type":"image/png","data":"YQ=="}},"password_scheme":"simple",
		"salt":"1112283cf988a34f124200a050d308a1","password_sha":"d4b5d8403f6c1d1c7975fb19cbbacf260cebecdf"}`,
	"short": `{"password_sha":"e21216acd080d1077e4f9894c0945eb4b023202c","salt":"salt","type":"user","name":"short","roles":[]}`,
	"few": `{"type":"user","name":"few","roles":[],"iterations":2,"derived_key":"67d38079a46497a3b2d7d982f5316fd946a008fb",
		"salt":"aa","password_scheme":"pbkdf2","n":1.0,"e":1e3}`,
	"strong": `{"type":"user","name":"strong","roles":[],"password_scheme":"pbkdf2","pbkdf2_prf":"sha512","iterations":2,"salt":"aa",
		"derived_key":"8f9648fce6aac96e51bd13f67e8269d963a9ded178097e6d3df20952db712f8d542058bdf5b62759687d660f60d7222e9b3f43b00a736667a2150fb880835168"}`,
}

// Hashes are renewed at log-in on two nodes and on a CouchDB, each for itself. All make the same revisions, so that a
// synchronization of _users has no conflicts, with which a user could not log in.
func usersAreSynchronized(t *testing.T, server *couchtest.CouchDB) {
	couchDB := couchtest.As(server.URL, server.Username, server.Password) + "/"
	a, b := serveNode(t, "mem:"), serveNode(t, "mem:")
	all := []string{a.url, b.url, couchDB}
	for name, doc := range oldUsers {
		for _, at := range all {
			ask(t, http.StatusCreated, http.MethodPut, at+userPath(name), doc)
		}
		requireOneRevision(t, all, name, "1-")
	}
	for name := range oldUsers {
		for _, at := range all {
			logIn(t, at, name)
		}
		for _, at := range all {
			require.Eventually(t, func() bool {
				_, doc := request(t, http.MethodGet, at+userPath(name), "")
				return strings.Contains(doc, `"_rev":"2-`)
			}, limit, 10*time.Millisecond, name)
		}
	}
	for _, source := range all {
		for _, target := range all {
			if source != target {
				a.replicateOnce(`"source":%q,"target":%q`, source+"_users", target+"_users")
			}
		}
	}
	for name := range oldUsers {
		requireOneRevision(t, all, name, "2-")
		for _, at := range all {
			logIn(t, at, name)
		}
	}
}

func userPath(name string) string { return "_users/org.couchdb.user:" + name }

// requireOneRevision checks that a user's document has one leaf, the same on all servers.
func requireOneRevision(t *testing.T, all []string, name, prefix string) {
	t.Helper()
	revs := map[string]bool{}
	for _, at := range all {
		var doc struct {
			Rev       string   `json:"_rev"`
			Conflicts []string `json:"_conflicts"`
		}
		text := ask(t, http.StatusOK, http.MethodGet, at+userPath(name)+"?conflicts=true", "")
		require.NoError(t, json.Unmarshal([]byte(text), &doc))
		require.Empty(t, doc.Conflicts, "%s at %s", name, at)
		require.True(t, strings.HasPrefix(doc.Rev, prefix), text)
		revs[doc.Rev] = true
	}
	require.Len(t, revs, 1, name)
}

// logIn logs in as a user with the password "apple".
func logIn(t *testing.T, at, name string) {
	t.Helper()
	bare, _, _ := couchtest.Credentials(at)
	ask(t, http.StatusOK, http.MethodPost, strings.TrimSuffix(bare, "/")+"/_session", fmt.Sprintf(`{"name":%q,"password":"apple"}`, name))
}
