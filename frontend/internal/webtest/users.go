package webtest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"
)

// Basic returns the header Authorization of a user.
func Basic(name, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
}

// As makes a request with other credentials than the administrator's: nobody, or name:password.
func (n *Node) As(who, method, target, body string, headers ...string) Answer {
	n.Helper()
	authorization := Nobody
	if who != Nobody {
		name, password, _ := strings.Cut(who, ":")
		authorization = Basic(name, password)
	}
	headers = append([]string{"Authorization", authorization, "Content-Type", "application/json"}, headers...)
	return n.Do(method, target, body, headers...)
}

// NewUser makes a user, whose password is the name and the tests' password.
func (n *Node) NewUser(name string, roles ...string) (credentials string) {
	n.Helper()
	n.UsersDatabase()
	text, err := json.Marshal(map[string]any{
		"type": "user", "name": name, "roles": append([]string{}, roles...), "password": name + "-" + Secret,
	})
	require.NoError(n, err)
	n.Do(http.MethodPut, "/_users/org.couchdb.user:"+name, string(text)).Is(n.T, http.StatusCreated)
	return name + ":" + name + "-" + Secret
}

// UsersDatabase makes _users if it is not there.
func (n *Node) UsersDatabase() {
	n.Helper()
	if n.Get("/_users").Status == http.StatusNotFound {
		require.Equal(n, http.StatusCreated, n.Do(http.MethodPut, "/_users", "").Status)
	}
}

// People are the users that make requests: a server administrator, an administrator and a member of the
// database, a user that is neither, and an anonymous one.
type People struct{ Root, Admin, Member, User string }

// Security is a security object with the people of NewPeople.
const Security = `{"admins":{"names":["boss"],"roles":[]},"members":{"names":[],"roles":["staff"]}}`

// NewPeople makes the people of databases with that security object.
func (n *Node) NewPeople() People {
	n.Helper()
	return People{
		Root: AdminName + ":" + AdminPassword, Admin: n.NewUser("boss"), Member: n.NewUser("ann", "staff"), User: n.NewUser("eve"),
	}
}

// All returns all of them, in the order of the fields, and an anonymous one.
func (p People) All() []string { return []string{p.Root, p.Admin, p.Member, p.User, Nobody} }

// With makes a database and says whose it is.
func (n *Node) With(database, security string) {
	n.Helper()
	path := "/" + strings.ReplaceAll(database, "/", "%2F")
	n.Do(http.MethodPut, path, "") // which may be there
	require.Equal(n, http.StatusOK, n.Do(http.MethodPut, path+"/_security", security, "Content-Type", "application/json").Status)
}
