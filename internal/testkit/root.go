package testkit

import (
	"errors"
	"os"
	"path/filepath"
)

// ModuleRoot returns the nearest directory with a go.mod, beginning at the working directory. A test runs in the directory
// of its package.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = parent
	}
}
