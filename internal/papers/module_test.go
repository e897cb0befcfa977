package papers

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
)

// TestLibrary makes a module of its own of the program that docs/job-layer.md begins with, as the page says, and runs it.
func TestLibrary(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	const page = "docs/job-layer.md"
	all := blocks(t, page)
	program := all[slices.IndexFunc(all, func(b block) bool { return b.kind == "go" })].text
	lines := all[slices.IndexFunc(all, func(b block) bool { return strings.HasPrefix(b.text, "require settee ") })].text

	repository, err := filepath.Abs(root)
	require.NoError(t, err)
	code, printed, ok := strings.Cut(program, "\t// Output:\n")
	require.True(t, ok, "the program says what it prints")
	code = strings.NewReplacer("package fdbjobs_test", "package main", "func Example_worker()", "func main()").Replace(code) + "}\n"
	printed = strings.ReplaceAll(strings.TrimSuffix(printed, "}\n"), "\t// ", "")

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(code), 0o600))
	module := "module example.org/mails\n\ngo 1.26\n\n" + strings.Replace(lines, "../settee", repository, 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(module), 0o600))
	run := func(args ...string) string {
		command := exec.CommandContext(t.Context(), "go", args...)
		command.Dir, command.Env = dir, append(os.Environ(), "GOFLAGS=-trimpath", "CGO_ENABLED=0", "GOWORK=off")
		var said strings.Builder
		command.Stderr = &said
		output, err := command.Output()
		require.NoError(t, err, said.String())
		return string(output)
	}
	run("mod", "tidy")
	assert.Equal(t, printed, run("run", "."))
}
