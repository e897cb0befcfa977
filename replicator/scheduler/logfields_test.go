package scheduler

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The log of a run adds fields that name its job to each line. A line that adds one of them, too, has a member twice, and
// readers of the log take one of the two. So the packages that write to such a log use other names.
func TestFieldsOfRunsAreNamedOnce(t *testing.T) {
	t.Parallel()
	field := regexp.MustCompile(`\.(?:Any|Bool|Float64|Int|Int64|Str|Strs|Stringer|Time|Uint64)\("([a-z_]+)"`)
	own, err := os.ReadFile("run.go")
	require.NoError(t, err)
	_, hook, found := strings.Cut(string(own), ") logOf(")
	require.True(t, found)
	hook, _, _ = strings.Cut(hook, "\n}\n")
	names := map[string]bool{}
	for _, match := range field.FindAllStringSubmatch(hook, -1) {
		names[match[1]] = true
	}
	require.True(t, names["job"] && names["database"] && names["target"], "%v", names)
	for _, dir := range []string{".", "../mirror", "../worker"} {
		files, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, match := range field.FindAllStringSubmatch(strings.Replace(string(text), hook, "", 1), -1) {
				assert.False(t, names[match[1]], "%s has the field %q, which the log of a run adds", file, match[1])
			}
		}
	}
}
