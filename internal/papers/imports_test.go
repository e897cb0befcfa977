package papers

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// projectPath is the path of this project, and the beginning of the paths of its packages.
const projectPath = "settee/"

// anyPackage in the place of imports stands for all packages.
const anyPackage = "*"

// arrows are the imports of this project's packages by package. Paths begin at the root.
type arrows map[string][]string

// reach returns the packages that a package imports, directly or indirectly.
func (a arrows) reach(from string) map[string]bool {
	reached := map[string]bool{}
	open := []string{from}
	for len(open) > 0 {
		next := open[len(open)-1]
		open = open[:len(open)-1]
		for _, to := range a[next] {
			if !reached[to] {
				reached[to] = true
				open = append(open, to)
			}
		}
	}
	return reached
}

// listed reads the lists of docs/architecture.md: which package imports which, and which packages tests may import from
// everywhere.
func listed(t *testing.T) (imports arrows, forTests []string) {
	t.Helper()
	_, section, found := strings.Cut(read(t, "docs/architecture.md"), "\n## Imports\n")
	require.True(t, found)
	parts := strings.Split(section, "```")
	require.GreaterOrEqual(t, len(parts), 4, "two lists")
	imports = arrows{}
	for line := range strings.Lines(strings.TrimPrefix(parts[1], "text\n")) {
		name, to, found := strings.Cut(strings.TrimSpace(line), ":")
		require.True(t, found, line)
		require.NotContains(t, imports, name, "it has two lines")
		imports[name] = strings.Fields(to)
	}
	return imports, strings.Fields(strings.TrimPrefix(parts[3], "text\n"))
}

// found reads the imports of all Go files, whatever systems and builds they are for.
func found(t *testing.T) (inPackages, inTests arrows) {
	t.Helper()
	inPackages, inTests = arrows{}, arrows{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			other := path == filepath.Join(root, "scripts") || name == "testdata" || name == "node_modules" ||
				name != ".." && strings.HasPrefix(name, ".")
			if other && path != root {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		in, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		into := inPackages
		if strings.HasSuffix(name, "_test.go") {
			into = inTests
		}
		if in = filepath.ToSlash(in); into[in] == nil {
			into[in] = []string{}
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if to, ours := strings.CutPrefix(imported, projectPath); ours && to != in && !slices.Contains(into[in], to) {
				into[in] = append(into[in], to)
			}
		}
		return nil
	}))
	return inPackages, inTests
}

// within reports whether a package is in a list, in which a path that ends with a slash stands for all below it.
func within(list []string, name string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		return entry == name || strings.HasSuffix(entry, "/") && strings.HasPrefix(name, entry)
	})
}

// faults compares the imports with the lists, and returns a line for each difference.
func faults(list arrows, forTests []string, inPackages, inTests arrows) []string {
	var lines []string
	add := func(parts ...string) { lines = append(lines, strings.Join(parts, "")) }
	known := map[string]bool{}
	for _, of := range []arrows{inPackages, inTests} {
		for name := range of {
			known[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		actual := slices.Sorted(slices.Values(inPackages[name]))
		may, exists := list[name]
		switch {
		case !exists:
			add(name, " has no line; it would be: ", name, ": ", strings.Join(actual, " "))
			continue
		case slices.Equal(may, []string{anyPackage}):
			continue
		case !slices.IsSorted(may):
			add(name, ": its line is not in order: ", strings.Join(slices.Sorted(slices.Values(may)), " "))
		}
		for _, to := range actual {
			if !slices.Contains(may, to) {
				add(name, " imports ", to, ", which its line does not have")
			}
		}
		for _, to := range may {
			if !slices.Contains(actual, to) && !slices.Contains(inTests[name], to) {
				add(name, ": its line has ", to, ", which it does not import")
			}
		}
		reached := list.reach(name)
		for _, to := range slices.Sorted(slices.Values(inTests[name])) {
			if !reached[to] && !within(forTests, to) {
				add("the tests of ", name, " import ", to, ", which ", name, " does not reach")
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if !known[name] {
			add(name, " has a line, and no Go files")
		}
	}
	return lines
}

func TestImports(t *testing.T) {
	t.Parallel()
	list, forTests := listed(t)
	inPackages, inTests := found(t)
	for _, fault := range faults(list, forTests, inPackages, inTests) {
		t.Errorf("docs/architecture.md, Imports: %s", fault)
	}
}

func TestFaultsOfImports(t *testing.T) {
	t.Parallel()
	forTests := []string{"internal/", "mem"}
	list := arrows{"cmd": {"*"}, "top": {"low", "mid"}, "mid": {"low"}, "low": {}, "gone": {}, "fire": {"top"}}
	assert.Empty(t, faults(arrows{"cmd": {"*"}, "top": {"mid"}, "mid": {"low"}, "low": {}, "fire": {"top"}}, forTests,
		arrows{"cmd": {"top", "mem"}, "top": {"mid"}, "mid": {"low"}, "low": {}},
		arrows{"top": {"low", "internal/x", "mem"}, "fire": {"top", "internal/y"}}))
	assert.Equal(t, []string{
		"low imports mid, which its line does not have",
		"the tests of low import top, which low does not reach",
		"new has no line; it would be: new: low",
		"top: its line has low, which it does not import",
		"gone has a line, and no Go files",
	}, faults(list, forTests,
		arrows{"cmd": {"top"}, "top": {"mid"}, "mid": {"low"}, "low": {"mid"}, "new": {"low"}},
		arrows{"low": {"top"}, "fire": {"top"}}))
}
