package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var manual = flag.String("manual", "", "the directory for the man pages of the commands")

// TestManual writes the man pages of all commands, to the directory that -manual names.
func TestManual(t *testing.T) {
	t.Parallel()
	dir := *manual
	if dir == "" {
		dir = t.TempDir()
	}
	root := newRoot()
	root.DisableAutoGenTag = true
	require.NoError(t, doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "settee", Manual: "settee"}, dir))
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		file := filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			assert.Contains(t, string(text), `--`+f.Name+`\fP`, cmd.CommandPath())
		})
		if _, err := exec.LookPath("groff"); err == nil {
			out, err := exec.Command("groff", "-man", "-Tutf8", "-ww", "-z", file).CombinedOutput()
			require.NoError(t, err)
			assert.Empty(t, string(out), "the warnings of groff")
		}
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" {
				check(sub)
			}
		}
	}
	check(root)
}

// Only commands that are about a store, or that take the flags of a node, have --store.
func TestCommandsWithAStore(t *testing.T) {
	t.Parallel()
	var with []string
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("store") != nil {
			with = append(with, cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(newRoot())
	assert.ElementsMatch(t, []string{
		"settee serve", "settee health", "settee firewall", "settee config", "settee check", "settee restore",
		"settee secrets keys", "settee secrets reseal", "settee secrets forget",
	}, with)
}
