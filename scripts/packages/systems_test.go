//go:build packages

package packages_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSystems checks the types of the program for all operating systems that have a tarball, once for each: no file of
// settee is for one architecture alone. That takes seconds, while compiling for all of them takes many minutes. In the
// packages of other modules it leaves out the bodies of functions.
func TestSystems(t *testing.T) {
	t.Parallel()
	for system, arch := range map[string]string{"linux": "arm64", "darwin": "arm64", "freebsd": "amd64", "windows": "amd64"} {
		t.Run(system+"/"+arch, func(t *testing.T) {
			cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./cmd/settee")
			cmd.Dir, cmd.Stderr = "../..", os.Stderr
			cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=")
			out, err := cmd.Output()
			require.NoError(t, err)
			checkTypes(t, arch, out)
		})
	}
}

// importer finds packages that have been checked.
type importer struct {
	checked map[string]*types.Package
	renamed map[string]string // of the package that imports
}

func (i importer) Import(path string) (*types.Package, error) {
	if renamed, is := i.renamed[path]; is {
		path = renamed
	}
	if p := i.checked[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("package %s is not among the dependencies", path)
}

// checkTypes checks the packages of a list, in which each follows its dependencies.
func checkTypes(t *testing.T, arch string, list []byte) {
	t.Helper()
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	files := token.NewFileSet()
	for decoder := json.NewDecoder(bytes.NewReader(list)); ; {
		var p struct {
			ImportPath, Dir string
			GoFiles         []string
			ImportMap       map[string]string
			Module          *struct{ Main bool }
		}
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if p.ImportPath == "unsafe" {
			continue
		}
		own := p.Module != nil && p.Module.Main
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			parsed = append(parsed, file)
		}
		config := types.Config{
			Importer: importer{checked, p.ImportMap}, Sizes: types.SizesFor("gc", arch), IgnoreFuncBodies: !own,
		}
		checked[p.ImportPath], err = config.Check(p.ImportPath, files, parsed, nil)
		require.NoError(t, err, p.ImportPath)
	}
	require.Contains(t, checked, "settee/cmd/settee")
}
