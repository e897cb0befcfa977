package couchtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"testing"
)

// Release says in what the releases of CouchDB that tests run with differ from the newest one.
type Release struct {
	// Before352 says that since_seq is not part of replication ids, that the hexadecimal id of a revision may have a sign, and that
	// some numbers with an exponent do not become the float that is nearest.
	Before352 bool
	// Before36 says that a validate function cannot be a selector, that since of a feed cannot be a time, and that feeds refuse without a
	// reason.
	Before36 bool
}

// Release returns what the server's release does, by the version that it names.
func (c *CouchDB) Release(t testing.TB) Release {
	t.Helper()
	var root struct{ Version string }
	if err := json.Unmarshal(c.Do(t, http.MethodGet, "/", nil, http.StatusOK), &root); err != nil {
		t.Fatal(err)
	}
	return releaseOf(root.Version)
}

// releaseOf returns what a release does. A build of the main branch has the number of an earlier release, and the
// abbreviated hash of its commit: 3.5.2-a6778e5.
func releaseOf(version string) Release {
	number := make([]int, 3)
	_, _ = fmt.Sscanf(version, "%d.%d.%d", &number[0], &number[1], &number[2]) // what is missing counts as 0
	after := func(release ...int) bool { return slices.Compare(number, release) > 0 }
	since352 := after(3, 5, 1)
	return Release{Before352: !since352, Before36: !after(3, 5, 3) && !(since352 && commit.MatchString(version))}
}

var commit = regexp.MustCompile(`-[0-9a-f]{7,}$`)
