package servers

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// RequireVariable is the environment variable that lists the servers whose absence is a failure, with commas
// between: fdb, couchdb. The tests of a server that is not listed and not installed are skipped.
const RequireVariable = "SETTEE_REQUIRE"

// The names of the servers in RequireVariable.
const (
	NameCouchDB      = "couchdb"
	NameFoundationDB = "fdb"
)

// Required reports whether the absence of a server is a failure. It fails if RequireVariable lists a server
// that is not known.
func Required(name string) (bool, error) {
	listed := strings.FieldsFunc(os.Getenv(RequireVariable), func(c rune) bool { return c == ',' || c == ' ' })
	for _, one := range listed {
		if one != NameCouchDB && one != NameFoundationDB {
			return false, fmt.Errorf("%s lists %q: it may list %s and %s", RequireVariable, one, NameCouchDB, NameFoundationDB)
		}
	}
	return slices.Contains(listed, name), nil
}

// LeaveOut ends a test whose server did not start because of err: the test is skipped if the server is neither
// installed nor required, and fails otherwise.
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
