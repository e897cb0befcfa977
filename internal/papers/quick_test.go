package papers

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var quick = flag.String("quick", "", "the coverage profile of make quick")

// profiled is a line of a coverage profile: a file, the lines from which and to which statements go, and how often they ran.
var profiled = regexp.MustCompile(`(?m)^settee/(.+):(\d+)\.\d+,(\d+)\.\d+ \d+ (\d+)$`)

// TestRulesAreQuick compares the functions that docs/rules.md names with those that the quick tests of their packages have run. So
// the quick tests show in seconds what depends on a rule. make test-rules runs this test after them.
func TestRulesAreQuick(t *testing.T) {
	if *quick == "" {
		t.Skip("make test-rules runs it")
	}
	text, err := os.ReadFile(*quick)
	require.NoError(t, err)
	ran := map[string][][2]int{} // the lines that ran, by file
	for _, m := range profiled.FindAllStringSubmatch(string(text), -1) {
		from, errFrom := strconv.Atoi(m[2])
		to, errTo := strconv.Atoi(m[3])
		require.NoError(t, errFrom)
		require.NoError(t, errTo)
		if m[4] != "0" {
			ran[m[1]] = append(ran[m[1]], [2]int{from, to})
		}
	}
	for line := range strings.Lines(read(t, "docs/rules.md")) {
		m := rule.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		name, path := m[3], m[4]
		files := token.NewFileSet()
		body := declarations(t, files, path)[name].Body
		begin, end := files.Position(body.Lbrace).Line, files.Position(body.Rbrace).Line
		assert.True(t, slices.ContainsFunc(ran[path], func(lines [2]int) bool { return begin <= lines[0] && lines[1] <= end }),
			"no quick test of ./%s runs %s, which decides a rule of docs/rules.md", filepath.Dir(path), name)
	}
}

// declarations returns the functions that a Go file declares, by name. Names of methods follow their type and a dot.
func declarations(t *testing.T, files *token.FileSet, path string) map[string]*ast.FuncDecl {
	t.Helper()
	file, err := parser.ParseFile(files, filepath.Join(root, path), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	names := map[string]*ast.FuncDecl{}
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
		names[name] = function
	}
	return names
}
