package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/servers"
)

// asCommand makes the test binary run the command.
const asCommand = "SETTEE_TEST_WITHSERVERS"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// withServersRun runs the command with a PATH without servers and more environment variables.
func withServersRun(t *testing.T, env []string, args ...string) (printed, said string, status int) {
	t.Helper()
	command := exec.Command(os.Args[0], args...)
	tools := t.TempDir()
	for _, tool := range []string{"sh", "echo", "nice"} {
		path, err := exec.LookPath(tool)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(tools, tool)))
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if name != servers.CouchDBHome && !strings.HasPrefix(name, "SETTEE_") {
			command.Env = append(command.Env, variable)
		}
	}
	command.Env = append(append(command.Env, asCommand+"=1", "PATH="+tools), env...)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

func TestCommand(t *testing.T) {
	t.Parallel()
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for name, test := range map[string]struct {
		env       []string
		args      []string
		status    int
		out, errs string // parts; empty errs: no output
	}{
		"no command":      {nil, nil, 2, "", "give either a command or -missing"},
		"command, too":    {nil, []string{"-missing", "true"}, 2, "", "give either a command or -missing"},
		"unknown flag":    {nil, []string{"-mysql", "true"}, 2, "", "not defined: -mysql"},
		"no servers":      {nil, []string{"sh", "-c", "echo ran; exit 7"}, 7, "ran\n", ""},
		"only looked for": {nil, []string{"-chromium", "echo", "ran"}, 0, "ran\n", "none of chromium, "},
		"unknown command": {nil, []string{"nosuchcommand"}, 1, "", "nosuchcommand"},
		"no release":      {[]string{"COUCHDB_HOME=" + nowhere}, []string{"-couchdb", "echo", "ran"}, 1, "", nowhere + " has no CouchDB release"},
		"named already":   {[]string{"COUCHDB_HOME=" + nowhere, "SETTEE_TEST_COUCHDB=http://a:b@c"}, []string{"-couchdb", "sh", "-c", "echo $SETTEE_TEST_COUCHDB"}, 0, "http://a:b@c\n", ""},
		"steps back":      {nil, []string{"sh", "-c", "test $(nice) -gt 0 && echo yes"}, 0, "yes\n", ""},
		"unknown server required": {[]string{"COUCHDB_HOME=" + nowhere, "SETTEE_REQUIRE=mysql"}, []string{"-fdb", "-missing"}, 1, "",
			`SETTEE_REQUIRE lists "mysql": it may list chromium, couchdb, fdb`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, errs, status := withServersRun(t, test.env, test.args...)
			assert.Equal(t, test.status, status, errs)
			assert.Equal(t, test.out, out)
			if test.errs == "" {
				assert.Empty(t, errs)
			}
			assert.Contains(t, errs, test.errs)
		})
	}
}

func TestLeavesOut(t *testing.T) {
	t.Parallel()
	out, errs, status := withServersRun(t, nil, "-fdb", "echo", "ran")
	assert.Zero(t, status)
	assert.Equal(t, "ran\n", out)
	assert.Equal(t, 2, strings.Count(errs, "left out: the tests with a FoundationDB: fdbserver is not in PATH"), "before and after: %s", errs)
	_, errs, status = withServersRun(t, nil, "-chromium", "-missing")
	assert.Zero(t, status)
	assert.Contains(t, errs, "left out: the tests with a Chromium: none of chromium, ")
	_, errs, status = withServersRun(t, []string{"SETTEE_REQUIRE=fdb"}, "-fdb", "echo", "ran")
	assert.Equal(t, 1, status)
	assert.Contains(t, errs, "fdbserver is not in PATH")
}

// TestFilesOfRuns: the files of the runs in a folder have the same paths, unless a run still uses them.
func TestFilesOfRuns(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir()) // where macOS has its caches
	temporary := t.TempDir()
	first, release, err := filesFolder(temporary)
	require.NoError(t, err)
	require.NotEqual(t, temporary, first)
	second, releaseSecond, err := filesFolder(temporary)
	require.NoError(t, err)
	assert.Equal(t, temporary, second)
	require.NoError(t, releaseSecond())
	require.NoError(t, release())
	third, release, err := filesFolder(temporary)
	require.NoError(t, err)
	assert.Equal(t, first, third)
	require.NoError(t, release())
	t.Chdir(t.TempDir())
	other, release, err := filesFolder(temporary)
	require.NoError(t, err)
	assert.NotEqual(t, first, other)
	require.NoError(t, release())
}
