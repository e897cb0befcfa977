package couchtest

import "net/url"

// Credentials returns a URL without its credentials, and the credentials, empty if it has none.
func Credentials(dbURL string) (bare, username, password string) {
	u := parsed(dbURL)
	if u.User != nil {
		username = u.User.Username()
		password, _ = u.User.Password()
		u.User = nil
	}
	return u.String(), username, password
}

// As returns a URL with a user's name and password instead of its own. A test with a wrong password should use a name
// of its own, because CouchDB locks an account for some minutes after five wrong passwords.
func As(dbURL, username, password string) string {
	u := parsed(dbURL)
	u.User = url.UserPassword(username, password)
	return u.String()
}

func parsed(dbURL string) *url.URL {
	u, err := url.Parse(dbURL)
	if err != nil {
		panic(redacted(dbURL)) // tests choose the URLs
	}
	return u
}
