package papers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := function.Name.Name
		if function.Recv != nil {
			receiver := function.Recv.List[0].Type
			if pointer, ok := receiver.(*ast.StarExpr); ok {
				receiver = pointer.X
			}
			if generic, ok := receiver.(*ast.IndexExpr); ok {
				receiver = generic.X
			}
			name = receiver.(*ast.Ident).Name + "." + name
		}
		names[name] = true
	}
	return names
}
