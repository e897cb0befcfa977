package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/levels"
)

// The table of levels in the documents is that of storeLevels, and the numbers follow one another.
func TestLevelsDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	var table strings.Builder
	table.WriteString("| level | since | what it changed | what it reads and writes of the one before | tested by |\n| --- | --- | --- | --- | --- |\n")
	for i, l := range storeLevels {
		assert.Equal(t, levels.First+int64(i), l.number)
		fmt.Fprintf(&table, "| %d | %s | %s | %s | %s |\n", l.number, l.since, l.changes, l.reads, l.tested)
	}
	assert.Contains(t, string(text), table.String()+"\n")
}

// A node says the level of its store, and has none to raise it to.
func TestUpgradeCommand(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	out, errs, status := settee(t, "upgrade", "--status", "--url", node.url)
	require.Zero(t, status, errs)
	assert.Equal(t, fmt.Sprintf("The store has level %d, the highest one that the node knows.\n", ownLevel), out)
	out, errs, status = settee(t, "upgrade", "--url", node.url)
	require.Zero(t, status, errs)
	assert.Equal(t, fmt.Sprintf("The store has level %d already, the highest one that the node knows.\n", ownLevel), out)
	assert.JSONEq(t, fmt.Sprintf(`{"level": %d, "waits_for": []}`, ownLevel), node.ask(http.StatusOK, http.MethodGet, "_node/_local/_upgrade", ""))
	node.ask(http.StatusMethodNotAllowed, http.MethodDelete, "_node/_local/_upgrade", "")
	_, errs, status = settee(t, "upgrade", "now", "--url", node.url)
	assert.Equal(t, exitUsage, status, errs)
}

// A store with a level that this version does not know is refused, by nodes and by commands.
func TestUnknownLevel(t *testing.T) {
	t.Parallel()
	store := aStore(t)
	node := serveNode(t, store)
	require.Zero(t, node.end(os.Interrupt))
	db, err := kv.Open(t.Context(), store, kv.Options{})
	require.NoError(t, err)
	require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		levels.Set(tx, levels.Options{Key: metaLevel, Own: ownLevel + 1, Release: "9.0.0"})
		return nil
	}))
	require.NoError(t, db.Close())
	for _, command := range [][]string{{"serve"}, {"check"}} {
		_, errs, status := settee(t, append(command, "--store", store, "--set", "admins/a=b")...)
		assert.NotZero(t, status)
		assert.Contains(t, errs, fmt.Sprintf("the store has level %d (of version 9.0.0), and this version knows only %d: start version 9.0.0, or a later one", ownLevel+1, ownLevel))
	}
}
