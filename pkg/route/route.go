// Package route says which requests are answered by the same machine. What is shared between users because of a server, such
// as a feed, a session or a limit of rates, is shared between requests with one key. Otherwise a user with a proxy of his own
// would answer in a server's name to all others.
package route

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"net/url"
	"slices"
	"strings"
)

// mark is the byte in a key between the URL of the server and the hash. No URL of a server contains it.
const mark = "#"

// Key returns the key of everything in a request that decides who answers: the URL of the server, the URL of the proxy, or
// "" for none, and the headers. The key is the URL of the server if there is nothing else. Otherwise it ends with a hash, in
// which no password is.
//
// Some things are left out. Authorization and Cookie say who asks. The password of a proxy does not change which proxy it
// is. `Accept: application/json` is what requests without headers send, too. What a node's settings decide for all
// requests, such as connect_to and certificates, is the same for all.
func Key(server, proxy string, headers iter.Seq2[string, string]) string {
	var own []string
	for name, value := range headers {
		name = strings.ToLower(name)
		if name != "authorization" && name != "cookie" && (name != "accept" || value != "application/json") {
			own = append(own, name+":"+value)
		}
	}
	if proxy == "" && len(own) == 0 {
		return server
	}
	slices.Sort(own)
	text, err := json.Marshal(append([]string{withoutPassword(proxy)}, own...))
	if err != nil {
		panic(err) // strings always encode
	}
	hash := sha256.Sum256(text)
	return server + mark + hex.EncodeToString(hash[:16])
}

// Server returns the URL of the server of a key, and whether requests with the key have nothing else that decides who
// answers.
func Server(key string) (server string, plain bool) {
	server, _, found := strings.Cut(key, mark)
	return server, !found
}

func withoutPassword(proxy string) string {
	u, err := url.Parse(proxy)
	if err != nil {
		return proxy
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	return u.String()
}
