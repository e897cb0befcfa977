package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A node on an embedded store that was killed continues its jobs when it is started again, and does not wait for the
// activity timeout.
func TestContinuousOverKill(t *testing.T) {
	t.Parallel()
	peer := serveNode(t, "mem:")
	for _, name := range []string{"source", "target"} {
		peer.ask(http.StatusCreated, http.MethodPut, name, "")
	}
	store := "pebble:" + filepath.Join(t.TempDir(), "data")
	node := serveNode(t, store)
	node.ask(http.StatusAccepted, http.MethodPost, "_replicate",
		fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true}`, peer.url+"source", peer.url+"target"))
	peer.ask(http.StatusCreated, http.MethodPut, "source/one", `{}`)
	require.Eventually(t, exists(t, peer.url+"target/one"), limit, 10*time.Millisecond)

	node.end(syscall.SIGKILL)
	peer.ask(http.StatusCreated, http.MethodPut, "source/two", `{}`)
	node = serveNode(t, store)
	require.Eventually(t, exists(t, peer.url+"target/two"), limit, 10*time.Millisecond)
	assert.Contains(t, node.logged(), `"queue":"replication","jobs":1`)
	assert.NotContains(t, node.logged(), "that no node kept alive", "the activity timeout is over")
}
