package couchtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// Release says in what the releases of CouchDB that tests run with differ.
type Release struct {
	// SinceSeqInIDs says that since_seq is part of replication ids: since 3.5.2.
	SinceSeqInIDs bool
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

// releaseOf returns what a release does. A build between releases, such as 3.5.2-a6778e5, counts as the release before it.
func releaseOf(version string) Release {
	number := make([]int, 3)
	_, _ = fmt.Sscanf(version, "%d.%d.%d", &number[0], &number[1], &number[2]) // what is missing counts as 0
	return Release{SinceSeqInIDs: slices.Compare(number, []int{3, 5, 2}) >= 0}
}
