package couchtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"settee/internal/testkit"
)

// Script runs a Node.js script that may use the packages of this directory: pouchdb and nano, which are clients for
// CouchDB. If the script fails, Script fails the test with the script's output.
func Script(t testing.TB, script string, args ...string) {
	t.Helper()
	testkit.SkipShort(t)
	home, err := packageDir()
	if err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(home, "node_modules")
	if _, err := os.Stat(filepath.Join(modules, "nano")); err != nil {
		t.Fatal("the packages are not installed: run make test, or npm ci in pkg/couch/couchtest")
	}
	command := exec.CommandContext(t.Context(), "node", append([]string{script}, args...)...)
	command.Env = append(os.Environ(), "NODE_PATH="+modules)
	if printed, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(script), err, printed)
	}
}
