package shares

import "strings"

// userPrefix begins the owners that are users. Database names contain no colon and no bar.
const userPrefix = "user:"

// OwnerOf returns the owner of the jobs of a replicator database, or of the jobs that a user has posted if database is empty.
// The name of the anonymous user is empty.
func OwnerOf(database, instance, user string) string {
	if database == "" {
		return userPrefix + user
	}
	return database + "|" + instance
}

// ParseOwner is the reverse of OwnerOf.
func ParseOwner(owner string) (database, instance, user string) {
	if user, is := strings.CutPrefix(owner, userPrefix); is {
		return "", "", user
	}
	database, instance, _ = strings.Cut(owner, "|")
	return database, instance, ""
}
