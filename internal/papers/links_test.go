package papers

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	goFile  = regexp.MustCompile("`([\\w./-]+\\.go)`")
	dropped = regexp.MustCompile("[^a-z0-9 _-]")
)

// TestLinks follows the links between documents.
func TestLinks(t *testing.T) {
	t.Parallel()
	for _, path := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, path), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); !assert.NoError(t, err, "%s links to %s", path, m[1]) || anchor == "" {
				continue
			}
			assert.Contains(t, anchors(read(t, target)), anchor, "%s links to %s", path, m[1])
		}
	}
}

// TestFiles looks for the Go files that documents name: by their path, or without one by their name alone.
func TestFiles(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.Name() == "node_modules" {
			return filepath.SkipDir
		}
		names[filepath.Base(path)] = true
		return err
	}))
	for _, path := range documents(t) {
		for _, m := range goFile.FindAllStringSubmatch(read(t, path), -1) {
			if !strings.Contains(m[1], "/") {
				assert.True(t, names[m[1]], "%s names %s", path, m[1])
				continue
			}
			_, err := os.Stat(filepath.Join(root, m[1]))
			assert.NoError(t, err, "%s names %s", path, m[1])
		}
	}
}

// anchors returns the anchors of a document's headings, as GitHub makes them.
func anchors(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}
