package script

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestModuleIsThatOfThePackage compares the engine with the npm package that package-lock.json names, by its hash.
func TestModuleIsThatOfThePackage(t *testing.T) {
	t.Parallel()
	published, err := os.ReadFile("node_modules/quickjs-wasi/quickjs.wasm")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the package is not installed: npm ci installs it, as does make test")
	}
	require.NoError(t, err)
	require.True(t, string(published) == string(quickjs), "quickjs.wasm is another file than that of the package: go generate copies it")
}

func TestEngineVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("package.json")
	require.NoError(t, err)
	var npm struct{ Dependencies map[string]string }
	require.NoError(t, json.Unmarshal(text, &npm))
	name, version, _ := strings.Cut(EngineVersion, " ")
	require.Equal(t, map[string]string{name: version}, npm.Dependencies)
}

// TestMeterOfDamagedModules cuts the module off, and looks for a function that it does not import.
func TestMeterOfDamagedModules(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 7, 9, 1000, 100_000, len(quickjs) - 1} {
		_, err := meter(quickjs[:n], "env", "host_interrupt")
		require.ErrorIs(t, err, errModule, n)
	}
	_, err := meter(quickjs, "env", "missing")
	require.ErrorIs(t, err, errModule)
}
