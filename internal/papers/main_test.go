package papers

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/servers"
	"settee/internal/testkit"
)

const (
	// root is the folder of the repository.
	root = "../.."
	// limit is how long a test waits for what must happen.
	limit = 2 * time.Minute
)

var update = flag.Bool("update", false, "write what is generated")

// builtIn is the folder of the program. It is empty until a test needs the program.
var builtIn string

func TestMain(m *testing.M) {
	status := m.Run()
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	os.Exit(status)
}

// built returns the path of the program, which it builds for the first test.
func built(t *testing.T) string {
	t.Helper()
	testkit.SkipShort(t)
	path, err := build()
	require.NoError(t, err)
	return path
}

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "settee-papers")
	if err != nil {
		return "", err
	}
	builtIn = dir
	path := filepath.Join(dir, "settee")
	return path, servers.BuildSettee(context.Background(), "", "", path)
})

// documents returns the paths of all documents, from the root.
func documents(t *testing.T) []string {
	t.Helper()
	inDocs, err := filepath.Glob(root + "/docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, inDocs)
	all := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "scripts/README.md"}
	for _, path := range inDocs {
		all = append(all, "docs/"+filepath.Base(path))
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}

// compare compares a generated file with what it should be, or writes it.
func compare(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(want), 0o644))
		return
	}
	require.Equal(t, want, read(t, path), "%s is stale: run go test ./internal/papers -update", path)
}

// startNode starts a node with its store in dir, and returns its address.
func startNode(t *testing.T, dir string, env []string) (address string) {
	t.Helper()
	cmd := exec.Command(built(t), "serve", "--store", "pebble:"+dir, "--set", "chttpd/port=0",
		"--set", "chttpd_auth/iterations=10", "--set", "log/level=info")
	cmd.Env = slices.Concat(env, []string{"COUCHDB_USER=admin", "COUCHDB_PASSWORD=relax"})
	pipe, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	addresses := make(chan string, 1)
	logged := make(chan string)
	go func() {
		var log strings.Builder
		lines := bufio.NewScanner(pipe)
		for lines.Scan() {
			log.WriteString(lines.Text() + "\n")
			var line struct {
				URL string `json:"url"`
			}
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.URL != "" {
				addresses <- strings.Trim(strings.TrimPrefix(line.URL, "http:"), "/")
			}
		}
		logged <- log.String()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		log := <-logged
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("the node ended with %v; its log:\n%s", err, log)
		}
	})
	select {
	case address = <-addresses:
	case <-time.After(limit):
		require.Fail(t, "the node accepts no requests")
	}
	return address
}
