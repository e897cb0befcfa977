package papers

import (
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// rule is a row of the tables in docs/rules.md: question, answer, function.
var rule = regexp.MustCompile("^\\| ([^|]+) \\| ([^|]+) \\| `([\\w.]+)` in `([\\w./-]+\\.go)` \\|$")

// TestRules looks for the functions that docs/rules.md names. A method is written Type.method.
func TestRules(t *testing.T) {
	t.Parallel()
	declared := map[string]map[string]bool{} // by file
	n := 0
	for line := range strings.Lines(read(t, "docs/rules.md")) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| rule |") || strings.HasPrefix(line, "| --- |") {
			continue
		}
		m := rule.FindStringSubmatch(line)
		if !assert.NotNil(t, m, "a row must be a question, an answer, and `name` in `path/file.go`: %s", line) {
			continue
		}
		n++
		name, path := m[3], m[4]
		if declared[path] == nil {
			declared[path] = functions(t, path)
		}
		assert.True(t, declared[path][name], "docs/rules.md names %s, which %s does not declare", name, path)
	}
	assert.GreaterOrEqual(t, n, 20, "rules")
}

// functions returns the names of the functions that a Go file declares. Names of methods follow their type and a dot.
func functions(t *testing.T, path string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for name := range declarations(t, token.NewFileSet(), path) {
		names[name] = true
	}
	return names
}
