package auth_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/auth"
)

func TestSecurity(t *testing.T) {
	t.Parallel()
	var (
		nobody = auth.User{}
		ann    = auth.User{Name: "ann", Roles: []string{"staff"}}
		bob    = auth.User{Name: "bob"}
		root   = auth.User{Name: "root", Roles: []string{auth.AdminRole}}
		named  = auth.User{Name: "staff"} // also the name of a role
	)
	for text, want := range map[string]struct{ admins, members []auth.User }{
		`{}`: {[]auth.User{root}, []auth.User{nobody, ann, bob, root, named}},
		`{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}`:  {[]auth.User{root}, []auth.User{root}},
		`{"members":{"roles":["staff"]}}`:                                 {[]auth.User{root}, []auth.User{ann, root}},
		`{"members":{"names":["bob"]},"admins":{"roles":["staff"]}}`:      {[]auth.User{ann, root}, []auth.User{ann, bob, root}},
		`{"readers":{"names":["bob"]}}`:                                   {[]auth.User{root}, []auth.User{bob, root}},
		`{"readers":{"names":["bob"]},"members":{}}`:                      {[]auth.User{root}, []auth.User{nobody, ann, bob, root, named}},
		`{"admins":{"names":["ann"]}}`:                                    {[]auth.User{ann, root}, []auth.User{nobody, ann, bob, root, named}},
		`{"members":{"names":[""]}}`:                                      {[]auth.User{root}, []auth.User{root}},
		`{"Members":{"names":["bob"]},"members":{"Names":[]}}`:            {[]auth.User{root}, []auth.User{nobody, ann, bob, root, named}},
		`{"members":{"names":["bob"]},"members":{"names":["ann"]}}`:       {[]auth.User{root}, []auth.User{ann, root}},
		`{"couchdb_auth_only":true,"members":{"names":["bob"],"x":null}}`: {[]auth.User{root}, []auth.User{bob, root}},
	} {
		s, err := auth.ParseSecurity([]byte(text))
		require.NoError(t, err, text)
		for _, user := range []auth.User{nobody, ann, bob, root, named} {
			assert.Equal(t, contains(want.admins, user), s.IsAdmin(user), "%s: %v", text, user)
			assert.Equal(t, contains(want.members, user), s.IsMember(user), "%s: %v", text, user)
		}
	}
	for text, reason := range map[string]string{
		``: "the security object must be a JSON object", `null`: "the security object must be a JSON object",
		`{"admins":null}`:              "`admins` must be an object with `names` and `roles`",
		`{"members":{"names":"a"}}`:    "`members.names` must be a JSON list of strings",
		`{"readers":{"roles":["",1]}}`: "`readers.roles` must be a JSON list of strings",
		`{"admins":{"roles":[null]}}`:  "`admins.roles` must be a JSON list of strings",
		`{"admins":{"roles":null}}`:    "`admins.roles` must be a JSON list of strings",
	} {
		_, err := auth.ParseSecurity([]byte(text))
		require.EqualError(t, err, reason, text)
	}
}

func contains(users []auth.User, user auth.User) bool {
	for _, u := range users {
		if u.Name == user.Name {
			return true
		}
	}
	return false
}

func FuzzSecurity(f *testing.F) {
	f.Add([]byte(`{"admins":{"names":["a"],"roles":[]},"members":{"names":[],"roles":["r"]}}`))
	f.Add([]byte(`{"readers":{"names":["a"]},"other":[1,{"x":null}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := auth.ParseSecurity(text)
		if err != nil {
			return
		}
		user := auth.User{Name: "a", Roles: []string{"r"}}
		if s.IsAdmin(user) && !s.IsMember(user) {
			t.Fatalf("an administrator is not a member: %s", text)
		}
		if s.IsAdmin(auth.User{}) {
			t.Fatalf("the anonymous user is an administrator: %s", text)
		}
	})
}
