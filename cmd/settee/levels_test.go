package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/fdbjobs/upkeep"
	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/levels"
)

// The table of levels in the documents agrees with storeLevels, and the numbers follow one another.
func TestLevelsDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/backup-and-upgrade.md")
	require.NoError(t, err)
	var table strings.Builder
	table.WriteString("| level | since | what it changed | what it reads and writes of the one before | tested by |\n| --- | --- | --- | --- | --- |\n")
	for i, l := range storeLevels {
		assert.Equal(t, levels.First+int64(i), l.number)
		fmt.Fprintf(&table, "| %d | %s | %s | %s | %s |\n", l.number, l.since, l.changes, l.reads, l.tested)
	}
	assert.Contains(t, string(text), table.String()+"\n")
}

// The rows of before a level are converted as a task of the upkeep, after the raise, for the two levels that a release knows.
func TestConversionTasks(t *testing.T) {
	t.Parallel()
	testkit.RunBubble(t, "", func(t *testing.T) {
		steps := map[int64]int{}
		level := func(number int64) storeLevel {
			return storeLevel{number: number, convert: func(*node) func(kv.Transaction, []byte) ([]byte, error) {
				return func(_ kv.Transaction, from []byte) ([]byte, error) {
					if steps[number]++; from == nil {
						return []byte("half"), nil
					}
					return nil, nil
				}
			}}
		}
		known := []storeLevel{level(levels.First), level(levels.First + 1), level(levels.First + 2)}
		db := struct{ kv.Database }{enginetest.Memory(t)}
		before, err := levels.Open(t.Context(), db, optionsOf(known[:2], nil))
		require.NoError(t, err)
		require.NoError(t, before.Convert(t.Context(), levels.Conversion{Level: levels.First, Step: known[0].convert(nil)}))
		_, err = before.Raise(t.Context(), func(kv.Transaction) error { return nil })
		require.NoError(t, err)

		n := &node{}
		n.guard, err = levels.Open(t.Context(), db, optionsOf(known, nil))
		require.NoError(t, err)
		tasks := n.conversionTasks(known)
		require.Len(t, tasks, 2)
		layer := fdbjobs.Open(n.guard, jobsPrefix, fdbjobs.Options{})
		ended := make(chan error)
		go func() {
			ended <- upkeep.Run(t.Context(), n.guard, layer, tasks, func(task string, err error) {
				t.Errorf("%s: %v", task, err)
			})
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, map[int64]int{levels.First: 2, levels.First + 1: 2}, steps, "not to the level that the store does not have")
		_, err = n.guard.Raise(t.Context(), func(kv.Transaction) error { return nil })
		require.NoError(t, err)
		time.Sleep(documentUpkeepEvery + time.Second)
		synctest.Wait()
		assert.Equal(t, map[int64]int{levels.First: 2, levels.First + 1: 2, levels.First + 2: 2}, steps)
		layer.Close()
		require.ErrorIs(t, <-ended, fdbjobs.ErrClosed)
	})
}

// A conversion that takes long lets other tasks of the upkeep run.
func TestLongConversion(t *testing.T) {
	t.Parallel()
	testkit.RunBubble(t, "", func(t *testing.T) {
		db := struct{ kv.Database }{enginetest.Memory(t)}
		steps, others, during := 0, 0, 0
		known := []storeLevel{{number: levels.First}, {number: levels.First + 1, convert: func(*node) func(kv.Transaction, []byte) ([]byte, error) {
			return func(kv.Transaction, []byte) ([]byte, error) {
				time.Sleep(time.Second)
				if steps++; steps < 1000 {
					return []byte("more"), nil
				}
				during = others
				return nil, nil
			}
		}}}
		n := &node{}
		var err error
		n.guard, err = levels.Open(t.Context(), db, optionsOf(known, nil))
		require.NoError(t, err)
		_, err = n.guard.Raise(t.Context(), func(kv.Transaction) error { return nil })
		require.NoError(t, err)
		layer := fdbjobs.Open(n.guard, jobsPrefix, fdbjobs.Options{})
		ended := make(chan error)
		tasks := append(n.conversionTasks(known), upkeep.Task{Name: "other", Every: time.Minute, Run: func(context.Context, *fdbjobs.Held) error {
			others++
			return nil
		}})
		go func() {
			ended <- upkeep.Run(t.Context(), n.guard, layer, tasks, func(task string, err error) {
				t.Errorf("%s: %v", task, err)
			})
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		_, yet, err := n.guard.Converting(t.Context())
		require.NoError(t, err)
		assert.False(t, yet)
		assert.GreaterOrEqual(t, steps, 1000)
		assert.NotZero(t, during)
		layer.Close()
		require.ErrorIs(t, <-ended, fdbjobs.ErrClosed)
	})
}

// A node says the level of its store, and has none to raise it to.
func TestUpgradeCommand(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	out, errs, status := settee(t, "upgrade", "--status", "--url", node.url)
	require.Zero(t, status, errs)
	assert.Equal(t, fmt.Sprintf("The store has level %d, the highest one that the node knows.\n", ownLevel()), out)
	out, errs, status = settee(t, "upgrade", "--url", node.url)
	require.Zero(t, status, errs)
	assert.Equal(t, fmt.Sprintf("The store has level %d already, the highest one that the node knows.\n", ownLevel()), out)
	assert.JSONEq(t, fmt.Sprintf(`{"level": %d, "waits_for": [], "converting": false}`, ownLevel()), node.ask(http.StatusOK, http.MethodGet, "_node/_local/_upgrade", ""))
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
		levels.Set(tx, levels.Options{Key: metaLevel, Own: ownLevel() + 1, Release: "9.0.0"})
		return nil
	}))
	require.NoError(t, db.Close())
	for _, command := range [][]string{{"serve"}, {"check"}} {
		_, errs, status := settee(t, append(command, "--store", store, "--set", "admins/a=b")...)
		assert.NotZero(t, status)
		assert.Contains(t, errs, fmt.Sprintf("the store has level %d (of version 9.0.0), and this version knows only ", ownLevel()+1))
		assert.Contains(t, errs, fmt.Sprintf("%d: start version 9.0.0, or a later one", ownLevel()))
	}
}
