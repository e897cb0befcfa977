package main

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/tuple"
)

// fill makes a node write rows of each layer.
func (p *process) fill() {
	p.t.Helper()
	p.ask(http.StatusCreated, http.MethodPut, "db", "")
	for _, id := range []string{"a", "b", "c"} {
		p.ask(http.StatusCreated, http.MethodPut, "db/"+id, `{"_attachments":{"x":{"data":"aGVsbG8="}}}`)
	}
	p.ask(http.StatusCreated, http.MethodPut, "db/_local/x", `{}`)
	p.ask(http.StatusCreated, http.MethodPut, "_users/org.couchdb.user:jan", `{"name":"jan","type":"user","roles":[],"password":"apple"}`)
	p.ask(http.StatusOK, http.MethodPut, "_node/_local/_config/replicator/max_jobs", `"100"`)
	p.ask(http.StatusOK, http.MethodPost, "_replicate", jsonLine(map[string]any{"source": p.url + "db", "target": p.url + "copy", "create_target": true}))
	p.ask(http.StatusCreated, http.MethodPut, "_replicator/gone", `{"source":"http://127.0.0.1:1/a","target":"http://127.0.0.1:1/b","continuous":true}`)
}

// change makes a transaction in a store.
func change(t *testing.T, storeURL string, fn func(tx kv.Transaction, pairs []kv.KeyValue)) {
	t.Helper()
	db, err := kv.Open(t.Context(), storeURL, kv.Options{})
	require.NoError(t, err)
	require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		pairs, err := tx.GetRange(kv.KeyRange{Begin: []byte{}, End: []byte{0xff}}, kv.RangeOptions{}).Slice()
		fn(tx, pairs)
		return err
	}))
	require.NoError(t, db.Close())
}

// keyWith returns the last key whose readable form contains all these texts.
func keyWith(t *testing.T, pairs []kv.KeyValue, texts ...string) (found kv.KeyValue) {
	t.Helper()
	for _, pair := range pairs {
		has := true
		for _, text := range texts {
			has = has && strings.Contains(check.Text(pair.Key), text)
		}
		if has {
			found = pair
		}
	}
	require.NotNil(t, found.Key, texts)
	return found
}

// TestCheck: the store of a node is sound, also after the node was killed. Each planted fault is named with its key.
// After the repair only those are left that do not follow from other rows.
func TestCheck(t *testing.T) {
	t.Parallel()
	store := aStore(t)
	node := serveNode(t, store)
	node.fill()
	node.end(syscall.SIGKILL)
	out, stderr, status := settee(t, "check", "--store", store)
	require.Zero(t, status, out+stderr)
	require.Contains(t, out, "sound: ")

	var planted []string
	var state kv.KeyValue
	change(t, store, func(tx kv.Transaction, pairs []kv.KeyValue) {
		planted = nil
		plant := func(key []byte) []byte {
			planted = append(planted, check.Text(key))
			return key
		}
		tx.Clear(plant(keyWith(t, pairs, `("docs", 3, `, `, 5, "a")`).Key))                                   // an index row
		tx.Add(plant(keyWith(t, pairs, `("docs", 3, `, `, 7, "docs")`).Key), 3)                               // a counter
		tx.Set(plant(tuple.Tuple{"replicator", "replication_ids", "x"}.Pack()), []byte("no job"))             // a dangling row
		tx.Add(plant(keyWith(t, pairs, `("fdbjobs", `, `"replication", "_jobs", 4, `, `"finished")`).Key), 1) // a counter
		tx.Set(plant(keyWith(t, pairs, `("docs", 3, `, `, 3, "b", `).Key), []byte(`[]`))                      // broken JSON
		tx.Set(plant(keyWith(t, pairs, `("docs", 3, `, `, 10, "c", `).Key), []byte(`hell`))                   // a truncated chunk
		state = keyWith(t, pairs, `("fdbjobs", 1, "replication", `)
		tx.Clear(state.Key)                                                                            // a state
		planted = append(planted, check.Text(keyWith(t, pairs, `("fdbjobs", 0, "replication", `).Key)) // whose job is named
		planted = append(planted, check.Text(keyWith(t, pairs, `("docs", 3, `, `, 9, "c", `).Key))     // whose digest is named
		tx.Set(plant(tuple.Tuple{"other"}.Pack()), []byte("secret value"))                             // an unknown key
		tx.Set(plant(tuple.Tuple{"meta", "level", "other"}.Pack()), nil)                               // below another one
	})
	named := func(args ...string) (keys []string, status int) {
		out, stderr, status := settee(t, append([]string{"check", "--json", "--store", store}, args...)...)
		assert.NotContains(t, out+stderr, "secret value")
		for line := range strings.Lines(out) {
			var f struct{ Key string }
			require.NoError(t, json.Unmarshal([]byte(line), &f), line)
			if f.Key != "" {
				keys = append(keys, f.Key)
			}
		}
		return keys, status
	}
	keys, status := named()
	assert.Equal(t, exitFaulty, status)
	assert.ElementsMatch(t, planted, keys)
	keys, status = named("--repair")
	assert.Equal(t, exitFaulty, status)
	assert.ElementsMatch(t, planted, keys)
	left, status := named("--repair")
	assert.Equal(t, exitFaulty, status)
	assert.ElementsMatch(t, planted[4:], left)

	// What can only be made good by hand.
	change(t, store, func(tx kv.Transaction, pairs []kv.KeyValue) {
		tx.Set(keyWith(t, pairs, `("docs", 3, `, `, 3, "b", `).Key, []byte(`{}`))
		tx.Set(keyWith(t, pairs, `("docs", 3, `, `, 10, "c", `).Key, []byte(`hello`))
		tx.Set(state.Key, state.Value)
		tx.Clear(tuple.Tuple{"other"}.Pack())
		tx.Clear(tuple.Tuple{"meta", "level", "other"}.Pack())
	})
	out, stderr, status = settee(t, "check", "--store", store)
	assert.Zero(t, status, out+stderr)
}

// TestCheckInUse: a store that one process owns cannot be checked while a node runs, another one can.
func TestCheckInUse(t *testing.T) {
	t.Parallel()
	store := aStore(t)
	node := serveNode(t, store)
	node.fill()
	out, stderr, status := settee(t, "check", "--store", store)
	if strings.HasPrefix(store, "pebble:") {
		assert.Equal(t, exitUnchecked, status)
		assert.Contains(t, stderr, "another process has it open")
	} else {
		assert.Zero(t, status, out+stderr)
	}
	node.end(os.Interrupt)
}

// TestCheckNothing: a store that does not exist is an error, and is not created.
func TestCheckNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct{ store, says string }{
		{"pebble:" + dir + "/none", "no such file"},
		{"pebble:" + dir, "there is no store in this directory"},
		{"mem:", "no node has used it"},
	} {
		_, stderr, status := settee(t, "check", "--store", c.store)
		assert.Equal(t, exitUnchecked, status)
		assert.Contains(t, stderr, c.says)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries)
}
