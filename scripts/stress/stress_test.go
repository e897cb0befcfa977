package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const tests = `package tested

import (
	"os"
	"runtime"
	"testing"
)

func TestPasses(*testing.T) {}

func TestFailsWithOneProcessor(t *testing.T) {
	if runtime.GOMAXPROCS(0) == 1 {
		t.Fatal("the seed is", os.Getenv("SETTEE_FIRST_SEED"))
	}
}

func FuzzPasses(f *testing.F) { f.Fuzz(func(*testing.T, int) {}) }
`

func stressed(t *testing.T, o options) (string, error) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module tested\n\ngo 1.26\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(tests), 0o600))
	t.Chdir(dir)
	var out bytes.Buffer
	o.n, o.copies, o.timeout = 2, 1, time.Minute
	err := stress(t.Context(), o, []string{"./..."}, &out)
	return out.String(), err
}

func TestStress(t *testing.T) {
	out, err := stressed(t, options{run: ".", seed: 7, keepGoing: true})
	require.ErrorIs(t, err, errFailed)
	assert.Contains(t, out, "seed 7: 3 tests, each 2 times with one processor and with all, 1 at a time\n")
	seed := regexp.MustCompile(`the seed is (\d+)`).FindStringSubmatch(out)
	require.NotEmpty(t, seed, out)
	assert.Equal(t, 1, strings.Count(out, "the seed is"), "it ends at the first failure of a test")
	assert.Regexp(t, "failed: SETTEE_FIRST_SEED="+seed[1]+" go test -count 2 -cpu 1,[0-9]+ -run '\\^TestFailsWithOneProcessor\\$' tested\n", out)
	assert.Contains(t, out, "seed 7: 3 of 3 tests ran, 1 failed, in ")
}

func TestStressEndsAtTheFirstFailure(t *testing.T) {
	out, err := stressed(t, options{run: "Fails", seed: 7})
	require.ErrorIs(t, err, errFailed)
	assert.Contains(t, out, "tested TestFailsWithOneProcessor failed after ")
}

func TestNoTestMatches(t *testing.T) {
	_, err := stressed(t, options{run: "Nothing"})
	require.EqualError(t, err, "no test matches")
}

func TestStressPasses(t *testing.T) {
	out, err := stressed(t, options{run: "Passes"})
	require.NoError(t, err)
	assert.Contains(t, out, "tested  ")
}
