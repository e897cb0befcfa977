package replicator

import (
	"maps"
	"slices"
	"strings"
)

// authKinds are the kinds of credentials that the object `auth` of an endpoint may have, in the order in which they count. They
// decide how each is read, and which members are secret.
var authKinds = []authKind{
	{name: "basic", members: []authMember{{name: "username"}, {name: "password", secret: true}}},
}

// authKind is a kind of credentials: the member of that name, an object of strings.
type authKind struct {
	name    string
	members []authMember
}

// authMember is a member of the object of a kind.
type authMember struct {
	name   string
	secret bool // it is masked wherever an endpoint is shown
}

// maxAuthName is how many bytes of the name of a member that is not used are shown.
const maxAuthName = 64

// auth returns the credentials of the object auth, nil if it has none. It doubts each member that is not used: one that
// this release does not know, or a second kind.
func (f *fields) auth() (found *credentials) {
	auth := f.object("auth", "an object")
	if auth == nil {
		return nil
	}
	known := map[string]bool{}
	for _, kind := range authKinds {
		given := auth.object(kind.name, kind.want())
		if given == nil {
			continue
		}
		members := kind.read(given)
		if found == nil {
			known[kind.name] = true
			found = &credentials{username: members["username"], password: members["password"], written: members["username"]}
		}
	}
	auth.doubtOthers(known)
	return found
}

// read returns the members of the object of a kind.
func (k authKind) read(given *fields) map[string]string {
	members, known := map[string]string{}, map[string]bool{}
	for _, m := range k.members {
		known[m.name] = true
		text, has := given.text(m.name, "a string")
		if !has {
			given.mustBe(m.name, "a string")
		}
		members[m.name] = text
	}
	given.doubtOthers(known)
	return members
}

// want says what the object of a kind must be.
func (k authKind) want() string {
	names := make([]string, len(k.members))
	for i, m := range k.members {
		names[i] = "`" + m.name + "`"
	}
	return "an object with " + strings.Join(names, " and ")
}

// doubtOthers doubts the members that are not among the known ones.
func (f *fields) doubtOthers(known map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !known[name] {
			f.doubt(f.prefix + cut(name, maxAuthName))
		}
	}
}

// unusedAuth returns the warning about a member of `auth` that is not used.
func unusedAuth(field string) string {
	names := make([]string, len(authKinds))
	for i, kind := range authKinds {
		names[i] = "`" + kind.name + "`"
	}
	return "`" + field + "` is not used: the credentials that are known in `auth` are " + strings.Join(names, ", ") + ", and the first of them counts"
}
