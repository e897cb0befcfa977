package papers

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
)

var (
	// aCommand is a command in a line of text, or a line of a block.
	aCommand = regexp.MustCompile("(?m)`((?:go test|make) [^`]+|\\.ci/run)`|^((?:go test|make) .*)$")
	target   = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
)

// TestContributing runs the tests that the first section of CONTRIBUTING.md begins with, and looks for what all its commands name:
// tests, packages, and targets of make. Most of these run for minutes, or would run this test.
func TestContributing(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	page := read(t, "CONTRIBUTING.md")
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	found := map[string]int{}
	for _, m := range aCommand.FindAllStringSubmatch(page, -1) {
		text, _, _ := strings.Cut(m[1]+m[2], " #")
		words := strings.Fields(strings.ReplaceAll(text, "'", ""))
		found[words[0]]++
		switch words[0] {
		case "make":
			assert.True(t, targets[words[1]], "%s: the Makefile has no such target", text)
		case "go":
			checkTestCommand(t, text, words[2:])
		default:
			_, err := os.Stat(filepath.Join(root, words[0]))
			require.NoError(t, err)
		}
	}
	first, _, _ := strings.Cut(page, "\n## Set up\n")
	ran := 0
	for _, m := range aCommand.FindAllStringSubmatch(first, -1) {
		if words := strings.Fields(m[1]); words[0] == "go" {
			command := exec.CommandContext(t.Context(), "go", words[1:]...)
			command.Dir = root
			out, err := command.CombinedOutput()
			require.NoError(t, err, "%s: %s", m[1], out)
			ran++
		}
	}
	assert.Equal(t, 2, ran)
	assert.GreaterOrEqual(t, found["go"], 6, "%v", found)
	assert.GreaterOrEqual(t, found["make"], 20, "%v", found)
}

// checkTestCommand requires that the package of a go test exists, and has tests that its -run selects.
func checkTestCommand(t *testing.T, text string, arguments []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, arguments[0], "*_test.go"))
	require.NoError(t, err)
	assert.NotEmpty(t, files, "%s: the package has no tests", text)
	at := slices.Index(arguments, "-run")
	if at < 0 {
		return
	}
	selects, err := regexp.Compile(arguments[at+1])
	require.NoError(t, err, text)
	for _, file := range files {
		path, err := filepath.Rel(root, file)
		require.NoError(t, err)
		for name := range maps.Keys(functions(t, path)) {
			if strings.HasPrefix(name, "Test") && selects.MatchString(name) {
				return
			}
		}
	}
	assert.Fail(t, "no test has such a name", text)
}
