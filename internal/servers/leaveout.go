package servers

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// RequireVariable is the environment variable that lists the required servers, separated by
// commas: fdb, couchdb, chromium. Tests of other servers are skipped if these are not installed.
const RequireVariable = "SETTEE_REQUIRE"

// The names of the servers in RequireVariable.
const (
	NameCouchDB      = "couchdb"
	NameFoundationDB = "fdb"
	NameChromium     = "chromium"
)

var names = []string{NameChromium, NameCouchDB, NameFoundationDB}

// Required reports whether a server is required. It returns an error if RequireVariable lists an
// unknown server.
func Required(name string) (bool, error) {
	listed := strings.FieldsFunc(os.Getenv(RequireVariable), func(c rune) bool { return c == ',' || c == ' ' })
	for _, one := range listed {
		if !slices.Contains(names, one) {
			return false, fmt.Errorf("%s lists %q: it may list %s", RequireVariable, one, strings.Join(names, ", "))
		}
	}
	return slices.Contains(listed, name), nil
}

// LeaveOut ends a test whose server did not start because of err. It skips the test if the server
// is neither installed nor required, and fails it otherwise.
func LeaveOut(t testing.TB, name string, err error) {
	t.Helper()
	required, wrong := Required(name)
	switch {
	case wrong != nil:
		t.Fatal(wrong)
	case required || !errors.Is(err, ErrNotInstalled):
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}
